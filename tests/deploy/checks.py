"""What every overlay must keep to, one function a rule; each yields what it finds wrong. checks_test.py breaks each."""
import re
import tempfile

from cluster import at, gradwired, size

RESTRICTED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SAFE_SYSCTLS = {"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
                "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports"}
USER = 10001  # as in the image
GPU = "nvidia.com/gpu"
CLUSTER_OPTIONS = {"peer", "tls-ca", "tls-cert", "tls-key", "data-ports", "group-init", "group-name", "group-world-size", "group-rank"}


def selects(selector, labels):
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def expect(what, found, *wanted):
    if found not in wanted:
        yield f"{what} is {found!r}, not {' or '.join(map(repr, wanted))}"


# The namespace and who the pods are

def namespace_is_restricted(c):
    for mode in ("enforce", "audit", "warn"):
        label = f"pod-security.kubernetes.io/{mode}"
        yield from expect(label, c.one("Namespace")["metadata"].get("labels", {}).get(label), "restricted")


def objects_are_in_the_namespace(c):
    for d in c.documents:
        if d["kind"] != "Namespace":
            yield from expect(f"namespace of {d['kind']}/{d['metadata']['name']}", d["metadata"].get("namespace"), c.namespace)


def account_has_no_token(c):
    yield from expect("automountServiceAccountToken of the account", c.one("ServiceAccount").get("automountServiceAccountToken"), False)


def pod_has_no_token(c):
    yield from expect("automountServiceAccountToken of the pod", c.pod.get("automountServiceAccountToken"), False)


def pod_has_its_account(c):
    yield from expect("serviceAccountName", c.pod.get("serviceAccountName"), c.one("ServiceAccount")["metadata"]["name"])


def no_roles(c):
    for d in c.documents:
        if re.fullmatch(r"(Cluster)?Role(Binding)?", d["kind"]):
            yield f"there is a {d['kind']}"


# Services

def headless_has_no_address(c):
    yield from expect("clusterIP", c.headless["spec"].get("clusterIP"), "None")


def ranks_are_found_before_they_are_ready(c):
    yield from expect("publishNotReadyAddresses", c.headless["spec"].get("publishNotReadyAddresses"), True)


def headless_ports(c):
    yield from expect("ports", [p["name"] for p in c.headless["spec"]["ports"]], ["rpc", "http", "peer"])


def client_ports(c):
    yield from expect("ports", [p["name"] for p in c.client_service["spec"]["ports"]], ["rpc", "http"])


def clients_keep_their_pod(c):
    yield from expect("sessionAffinity", c.client_service["spec"].get("sessionAffinity"), "ClientIP")


def services_are_inside(c):
    for s in c.all("Service"):
        yield from expect(f"type of {s['metadata']['name']}", s["spec"].get("type", "ClusterIP"), "ClusterIP")
        if s["spec"].get("externalIPs"):
            yield f"{s['metadata']['name']} has externalIPs"


def services_select_the_pods(c):
    for s in c.all("Service"):
        if not selects(s["spec"].get("selector"), c.labels):
            yield f"{s['metadata']['name']} selects {s['spec'].get('selector')}, the pods have {c.labels}"


def services_lead_to_ports(c):
    ports = {p["name"]: p["containerPort"] for p in c.container["ports"]}
    for s in c.all("Service"):
        for p in s["spec"]["ports"]:
            if p.get("targetPort") not in ports or ports[p["targetPort"]] != p["port"] or p["name"] != p["targetPort"]:
                yield f"{s['metadata']['name']}: port {p} is none of the container's {ports}"


# The StatefulSet

def set_has_the_headless_service(c):
    yield from expect("serviceName", c.set["spec"].get("serviceName"), c.headless["metadata"]["name"])


def pods_start_together(c):
    yield from expect("podManagementPolicy", c.set["spec"].get("podManagementPolicy"), "Parallel")


def updates_roll(c):
    yield from expect("updateStrategy", at(c.set, "spec.updateStrategy.type"), "RollingUpdate")
    if not isinstance(at(c.set, "spec.updateStrategy.rollingUpdate.partition"), int):
        yield "updateStrategy has no partition"


def ready_counts_after_a_while(c):
    if c.set["spec"].get("minReadySeconds", 0) < 10 and c.name != "dev":
        yield "minReadySeconds is under 10"


def claims_outlive_pods(c):
    yield from expect("persistentVolumeClaimRetentionPolicy", c.set["spec"].get("persistentVolumeClaimRetentionPolicy"),
                      {"whenDeleted": "Retain", "whenScaled": "Retain"})


def claims_are_of_one_pod(c):
    for claim in c.set["spec"].get("volumeClaimTemplates", []):
        yield from expect("accessModes", claim["spec"].get("accessModes"), ["ReadWriteOnce"])


def set_selects_its_pods(c):
    if not selects(at(c.set, "spec.selector.matchLabels"), c.labels):
        yield f"the StatefulSet selects {at(c.set, 'spec.selector')}, its pods have {c.labels}"


def drain_wait(c):
    command = at(c.container, "lifecycle.preStop.exec.command", [])
    waits = [re.fullmatch(r"--wait=(\d+)s", word) for word in command]
    return next((int(w[1]) for w in waits if w), 0)


def grace_is_long_enough(c):
    needed = drain_wait(c) + c.config.get("drain-seconds", 30) + 10
    grace = c.pod.get("terminationGracePeriodSeconds", 30)
    if grace < needed:
        yield f"terminationGracePeriodSeconds {grace} is under preStop + drain + 10 = {needed}"


def pods_spread(c):
    rules = {r["topologyKey"]: r for r in c.pod.get("topologySpreadConstraints", [])}
    for key, when in (("kubernetes.io/hostname", "DoNotSchedule"), ("topology.kubernetes.io/zone", "ScheduleAnyway")):
        yield from expect(f"spread over {key}", (rules.get(key) or {}).get("whenUnsatisfiable"), when)
        yield from expect(f"maxSkew over {key}", (rules.get(key) or {}).get("maxSkew"), 1)


def spread_counts_the_pods(c):
    for r in c.pod.get("topologySpreadConstraints", []):
        if not selects(at(r, "labelSelector.matchLabels"), c.labels):
            yield f"the spread over {r['topologyKey']} counts other pods"


def no_service_links(c):
    yield from expect("enableServiceLinks", c.pod.get("enableServiceLinks"), False)


# The restricted profile, field by field

def runs_as_no_root(c):
    yield from expect("runAsNonRoot", at(c.pod, "securityContext.runAsNonRoot"), True)
    for x in c.containers:
        yield from expect(f"runAsNonRoot of {x['name']}", at(x, "securityContext.runAsNonRoot", True), True)


def runs_as_the_images_user(c):
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        yield from expect(field, at(c.pod, f"securityContext.{field}"), USER)
        for x in c.containers:
            yield from expect(f"{field} of {x['name']}", at(x, f"securityContext.{field}", USER), USER)


def volumes_change_owner_once(c):
    yield from expect("fsGroupChangePolicy", at(c.pod, "securityContext.fsGroupChangePolicy"), "OnRootMismatch")


def system_calls_are_filtered(c):
    yield from expect("seccompProfile", at(c.pod, "securityContext.seccompProfile.type"), "RuntimeDefault")
    for x in c.containers:
        yield from expect(f"seccompProfile of {x['name']}", at(x, "securityContext.seccompProfile.type", "RuntimeDefault"),
                          "RuntimeDefault")


def nothing_of_the_host(c):
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        yield from expect(field, c.pod.get(field, False), False)


def volume_types(c):
    for v in c.pod.get("volumes", []):
        for kind in set(v) - {"name"} - RESTRICTED_VOLUMES:
            yield f"volume {v['name']} is a {kind}"


def no_host_ports(c):
    for x in c.containers:
        for p in x.get("ports", []):
            yield from expect(f"hostPort of {p['name']}", p.get("hostPort", 0), 0)


def no_privilege_escalation(c):
    for x in c.containers:
        yield from expect(f"allowPrivilegeEscalation of {x['name']}", at(x, "securityContext.allowPrivilegeEscalation"), False)


def not_privileged(c):
    for x in c.containers:
        yield from expect(f"privileged of {x['name']}", at(x, "securityContext.privileged", False), False)
        yield from expect(f"procMount of {x['name']}", at(x, "securityContext.procMount", "Default"), "Default")


def root_is_read_only(c):
    for x in c.containers:
        yield from expect(f"readOnlyRootFilesystem of {x['name']}", at(x, "securityContext.readOnlyRootFilesystem"), True)


def no_capabilities(c):
    for x in c.containers:
        yield from expect(f"capabilities of {x['name']}", at(x, "securityContext.capabilities"), {"drop": ["ALL"]})


def sysctls_are_safe(c):
    for s in at(c.pod, "securityContext.sysctls", []):
        if s["name"] not in SAFE_SYSCTLS:
            yield f"sysctl {s['name']} is not safe"


def no_profile_is_lifted(c):
    for x in [c.pod, *c.containers]:
        if at(x, "securityContext.seLinuxOptions") or at(x, "securityContext.windowsOptions"):
            yield "seLinuxOptions or windowsOptions are set"
        yield from expect("appArmorProfile", at(x, "securityContext.appArmorProfile.type", "RuntimeDefault"), "RuntimeDefault")


# The container

def image_is_fixed(c):
    for x in c.containers:
        if not re.search(r"@sha256:[0-9a-f]{64}$", x["image"]) and x.get("imagePullPolicy") != "Never":
            yield f"{x['image']} is neither named by digest nor never pulled"


def image_is_not_latest(c):
    for x in c.containers:
        name = x["image"].split("@")[0].rsplit("/", 1)[-1]
        if "@" not in x["image"] and (":" not in name or name.endswith(":latest")) or name.endswith(":latest"):
            yield f"{x['image']} is the latest, whatever that is"


def memory_is_reserved(c):
    for x in c.containers:
        limit = at(x, "resources.limits", {}).get("memory")
        request = at(x, "resources.requests", {}).get("memory")
        if not limit or limit != request:
            yield f"memory of {x['name']}: asks for {request}, may have {limit}"


def quota_fits_the_limit(c):
    limit = size(at(c.container, "resources.limits", {}).get("memory", "0"))
    for key in ("server-memory", "session-memory"):
        if size(c.config.get(key, 0)) / 0.8 > limit:
            yield f"{key} {c.config[key]} is over 80 % of the memory limit"


def command_has_no_shell(c):
    for words in (c.container.get("command", []), at(c.container, "lifecycle.preStop.exec.command", [])):
        if words and words[0] != "gradwired":
            yield f"{words} does not start the binary itself"


def no_secret_in_the_environment(c):
    for x in c.containers:
        for e in x.get("env", []):
            if at(e, "valueFrom.secretKeyRef") or re.search(r"TOKEN(?!_FILE)|PASSWORD|SECRET|_KEY$(?<!TLS_KEY)", e["name"]):
                yield f"the variable {e['name']} holds a secret"
            if "PRIVATE KEY" in str(e.get("value", "")):
                yield f"the variable {e['name']} holds a key"
        for e in x.get("envFrom", []):
            if "secretRef" in e:
                yield "envFrom takes a secret"


def variables_are_options(c):
    for e in c.container.get("env", []):
        option = e["name"].removeprefix("GRADWIRE_").lower().replace("_", "-")
        known = c.server.options | {"config"} | (set() if "peer" in c.server.options else {"peer-advertise"})
        if e["name"].startswith("GRADWIRE_") and option not in known:
            yield f"{e['name']} is no option of gradwired"


def arguments_are_options(c):
    for word in c.container.get("args", []):
        option = re.match(r"--([a-z-]+)", word)
        if not option or option[1] not in c.server.options:
            yield f"{word} is no option of gradwired"


def clients_names_are_known(c):
    allowed = {word.split("=", 1)[1] for word in c.container.get("args", []) if word.startswith("--allowed-host=")}
    service, headless = c.client_service["metadata"]["name"], c.headless["metadata"]["name"]
    for name in (service, f"{service}.$(POD_NAMESPACE).svc", f"$(POD_NAME).{headless}.$(POD_NAMESPACE).svc"):
        if name not in allowed:
            yield f"a client that calls the server {name} is refused: no --allowed-host"


# Probes and the end

def probe(c, name, path, **numbers):
    found = c.container.get(name + "Probe", {})
    yield from expect(f"path of {name}", at(found, "httpGet.path"), path)
    for field, value in numbers.items():
        yield from expect(f"{field} of {name}", found.get(field), value)


def start_may_take_minutes(c):
    yield from probe(c, "startup", "/livez", periodSeconds=5, failureThreshold=60)


def liveness_is_patient(c):
    yield from probe(c, "liveness", "/livez", periodSeconds=10, timeoutSeconds=5, failureThreshold=6)


def readiness_is_quick(c):
    yield from probe(c, "readiness", "/readyz", periodSeconds=5, failureThreshold=2)


def probe_paths_are_routes(c):
    for name in ("startup", "liveness", "readiness"):
        path = at(c.container, f"{name}Probe.httpGet.path")
        if ("GET", path) not in c.server.probe_routes:
            yield f"{name}Probe asks {path}, which the probe listener has not"


def probes_ask_the_probe_port(c):
    for name in ("startup", "liveness", "readiness"):
        yield from expect(f"port of {name}Probe", at(c.container, f"{name}Probe.httpGet.port"), "probe")
    if not str(c.config.get("probe", "")).startswith(("0.0.0.0:", "[::]:")):
        yield "the kubelet cannot reach the probe listener"


def pods_drain_first(c):
    yield from expect("preStop", at(c.container, "lifecycle.preStop.exec.command", [])[:2], ["gradwired", "drain"])
    if drain_wait(c) < 1:
        yield "preStop does not wait: clients are still being sent here"


def drain_finds_the_server(c):
    if not c.config.get("unix"):
        yield "the config has no unix socket: drain finds no server"


# Disruption

def one_pod_at_a_time(c):
    yield from expect("maxUnavailable", c.one("PodDisruptionBudget")["spec"].get("maxUnavailable"), 1)


def broken_pods_hold_no_node(c):
    yield from expect("unhealthyPodEvictionPolicy", c.one("PodDisruptionBudget")["spec"].get("unhealthyPodEvictionPolicy"), "AlwaysAllow")


def budget_counts_the_pods(c):
    if not selects(at(c.one("PodDisruptionBudget"), "spec.selector.matchLabels"), c.labels):
        yield "the PodDisruptionBudget counts other pods"


# The network

def span(port):
    return port.get("port"), port.get("endPort", port.get("port"))


def numbers(rule):
    return [span(p) for p in rule.get("ports", [])]


def default_is_deny(c):
    d = c.one("NetworkPolicy", "default-deny")["spec"]
    yield from expect("the policy of all pods", d, {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})


def policy_is_for_the_pods(c):
    if not selects(at(c.policy, "spec.podSelector.matchLabels"), c.labels):
        yield "the policy is for other pods"
    yield from expect("policyTypes", c.policy["spec"].get("policyTypes"), ["Ingress", "Egress"])


def rules_name_both_ends(c):
    for policy in c.all("NetworkPolicy"):
        for direction, side in (("ingress", "from"), ("egress", "to")):
            for rule in policy["spec"].get(direction, []):
                if not rule.get("ports") or not rule.get(side):
                    yield f"a rule of {direction} is open to all: {rule}"
                for end in rule.get(side) or []:
                    named = {k: v for k, v in end.items() if v}
                    if "podSelector" not in named:
                        yield f"a rule of {direction} names no pods: {end}"


def from_pods_of_the_set(rule, side, c):
    ends = rule.get(side) or []
    return bool(ends) and all(set(e) == {"podSelector"} and selects(at(e, "podSelector.matchLabels"), c.labels) for e in ends)


def clients_reach_rpc_and_http(c):
    wanted = [c.one("Service", "gradwire")["spec"]["ports"][i]["port"] for i in (0, 1)]
    for rule in c.policy["spec"].get("ingress", []):
        if [first for first, _ in numbers(rule)] == wanted and all("namespaceSelector" in e and "podSelector" in e for e in rule["from"]):
            return
    yield "no rule lets labelled clients reach rpc and http, and nothing else"


def peers_reach_peers_only(c):
    peer = next(p["port"] for p in c.headless["spec"]["ports"] if p["name"] == "peer")
    for direction, side in (("ingress", "from"), ("egress", "to")):
        found = False
        for rule in c.policy["spec"].get(direction, []):
            theirs = [s for s in numbers(rule) if s[0] is None or s[0] <= peer <= s[1] or (c.grouped and s[0] <= c.data_ports[1] and s[1] >= c.data_ports[0])]
            if theirs and not from_pods_of_the_set(rule, side, c):
                yield f"{direction}: others than the set's pods have {theirs}"
            found = found or bool(theirs)
        if not found:
            yield f"{direction}: no rule for the peers"


def data_ports_are_open_to_peers(c):
    if not c.grouped:
        return
    for direction, side in (("ingress", "from"), ("egress", "to")):
        if not any(c.data_ports in numbers(rule) and from_pods_of_the_set(rule, side, c) for rule in c.policy["spec"].get(direction, [])):
            yield f"{direction}: the peers' data-ports {c.data_ports} are not let through"


def names_can_be_asked(c):
    for rule in c.policy["spec"].get("egress", []):
        if {(p.get("port"), p.get("protocol", "TCP")) for p in rule["ports"]} >= {(53, "UDP"), (53, "TCP")}:
            return
    yield "no rule of egress leads to DNS"


def probe_port_is_the_nodes(c):
    port = next(p["containerPort"] for p in c.container["ports"] if p["name"] == "probe")
    for rule in c.policy["spec"].get("ingress", []):
        if any(first <= port <= last for first, last in numbers(rule)):
            yield "pods may reach the probe port"


# The config and the secrets

def config_is_good(c):
    text = c.config_text
    if "peer" not in c.server.options:  # a build without groups knows the rest of the file
        text = "\n".join(line for line in text.splitlines() if line.split("=")[0].strip() not in CLUSTER_OPTIONS)
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        done = gradwired("check-config", file.name, env={"HOSTNAME": c.set["metadata"]["name"] + "-0"})
        if done.returncode:
            yield f"check-config: {done.returncode} {done.stderr}"


def config_is_where_the_server_looks(c):
    path = c.env("GRADWIRE_CONFIG")
    mount, volume = c.mount_of(path or "")
    config = c.one("ConfigMap", "gradwire-config*")
    if not volume or at(volume, "configMap.name") != config["metadata"]["name"]:
        yield f"GRADWIRE_CONFIG {path} is not on the ConfigMap's volume"
    elif path.removeprefix(mount["mountPath"] + "/") not in config["data"]:
        yield f"the ConfigMap has no {path}"


def ports_agree(c):
    ports = {p["name"]: p["containerPort"] for p in c.container["ports"]}
    for listener in ("rpc", "http", "probe", "peer"):
        port = c.config_port(listener)
        if port is None and (listener != "peer" or c.grouped):
            yield f"the config has no address for {listener}"
        elif port is not None:
            yield from expect(f"containerPort {listener}", ports.get(listener), port)


def writable_paths_are_volumes(c):
    for key in ("data-dir", "unix"):
        mount, volume = c.mount_of(c.config.get(key, ""))
        if not volume or not ("claim" in volume or "emptyDir" in volume) or mount.get("readOnly"):
            yield f"{key} {c.config.get(key)} is not on a volume that can be written"
        elif key == "data-dir" and "claim" not in volume:
            yield "data-dir does not outlive the pod"


def no_secret_is_kept_here(c):
    for d in c.documents:
        if d["kind"] == "Secret":
            yield f"Secret/{d['metadata']['name']} stands in the manifests"
    if "PRIVATE KEY" in c.config_text:
        yield "the config holds a key"


def secrets_are_for_the_group_only(c):
    for v in c.pod.get("volumes", []):
        for kind in ("secret", "configMap"):
            if kind in v:
                yield from expect(f"defaultMode of {v['name']}", v[kind].get("defaultMode"), 0o440)
                mounts = [m for m in c.container["volumeMounts"] if m["name"] == v["name"]]
                if not all(m.get("readOnly") for m in mounts):
                    yield f"{v['name']} is mounted for writing"


def files_arrive_in_running_pods(c):
    for m in c.container.get("volumeMounts", []):
        if m.get("subPath") or m.get("subPathExpr"):
            yield f"{m['mountPath']} is a subPath, which never changes"


def peer_links_have_certificates(c):
    if not c.config.get("peer"):
        return
    for key in ("tls-ca", "tls-cert", "tls-key"):
        _, volume = c.mount_of(c.config.get(key, ""))
        if not volume or "secret" not in volume:
            yield f"{key} {c.config.get(key)} is not in a mounted Secret"


# The process group

def world_is_the_replicas(c):
    if c.grouped:
        yield from expect("group-world-size", c.config.get("group-world-size"), c.set["spec"]["replicas"])
    elif c.set["spec"]["replicas"] != 1:
        yield "several replicas form no group"


def rank_is_the_ordinal(c):
    if c.grouped:
        yield from expect("group-rank", c.config.get("group-rank"), "ordinal")


def group_meets_at_rank_0(c):
    if c.grouped:
        name, peers = c.set["metadata"]["name"], c.headless["metadata"]["name"]
        yield from expect("group-init", c.config["group-init"], f"tcp://{name}-0.{peers}.{c.namespace}.svc:{c.config_port('peer')}")


def peers_have_stable_names(c):
    if c.grouped:
        peers = c.headless["metadata"]["name"]
        yield from expect("GRADWIRE_PEER_ADVERTISE", c.env("GRADWIRE_PEER_ADVERTISE"), f"$(POD_NAME).{peers}.$(POD_NAMESPACE).svc:{c.config_port('peer')}")
        names = [e["name"] for e in c.container["env"]]
        for used in ("POD_NAME", "POD_NAMESPACE"):
            if used not in names or names.index(used) > names.index("GRADWIRE_PEER_ADVERTISE"):
                yield f"{used} is not defined before it is used"


# GPUs

def gpus(x, where):
    return at(x, f"resources.{where}", {}).get(GPU)


def gpus_are_limits(c):
    for x in c.containers:
        limit, request = gpus(x, "limits"), gpus(x, "requests")
        if request is not None and request != limit:
            yield f"{x['name']} asks for {request} GPUs, and may have {limit}"
        if limit is not None and not re.fullmatch(r"[1-9]\d*", str(limit)):
            yield f"{limit} is no whole number of GPUs"


def device_is_what_there_is(c):
    device = c.env("GRADWIRE_DEVICE") or c.config.get("device", "cpu")
    if device.startswith("cuda") != (gpus(c.container, "limits") is not None):
        yield f"device {device} with GPUs: {gpus(c.container, 'limits')}"


def gpu_pods_find_their_nodes(c):
    if not gpus(c.container, "limits"):
        return
    if not any(t.get("key") == GPU for t in c.pod.get("tolerations", [])):
        yield "no toleration of nvidia.com/gpu"
    if "nvidia.com/gpu.product" not in str(c.pod.get("affinity")) + str(c.pod.get("nodeSelector")):
        yield "any kind of GPU will do"


def gpu_pods_have_a_runtime(c):
    if gpus(c.container, "limits"):
        yield from expect("runtimeClassName", c.pod.get("runtimeClassName"), "nvidia")


def nccl_has_shared_memory(c):
    if not gpus(c.container, "limits"):
        return
    mount, volume = c.mount_of("/dev/shm")
    if at(volume or {}, "emptyDir.medium") != "Memory" or not at(volume or {}, "emptyDir.sizeLimit"):
        yield "/dev/shm is not in memory with a limit"


def nccl_stays_in_the_range(c):
    if gpus(c.container, "limits"):
        ranges = [s["value"] for s in at(c.pod, "securityContext.sysctls", []) if s["name"] == "net.ipv4.ip_local_port_range"]
        yield from expect("net.ipv4.ip_local_port_range", ranges, ["{} {}".format(*c.data_ports)])


# Every function above that takes a cluster alone and is no helper.
HELPERS = {"selects", "expect", "drain_wait", "probe", "span", "numbers", "from_pods_of_the_set", "gpus"}
ALL = {name: f for name, f in list(globals().items())
       if callable(f) and getattr(f, "__module__", "") == __name__ and name not in HELPERS}
