#!/usr/bin/env python3
"""The overlays keep every rule of checks.py, and each rule sees a break of it."""
import sys
import unittest

import checks
import cluster

SET, POD = "StatefulSet/gradwire", "spec.template.spec."
BOX = POD + "containers.0."
PEERS, CLIENTS = "Service/gradwire-peers", "Service/gradwire"
POLICY, PDB = "NetworkPolicy/gradwire", "PodDisruptionBudget/gradwire"
GONE = object()


def change(c, target, path, value):
    """Sets a field of an object, or takes it away; "+" at the end of a path appends to a list, "~" is a dot."""
    *parents, last = [part.replace("~", ".") for part in path.split(".")]
    there = c.one(*target.split("/"))
    for part in parents:
        there = there[int(part)] if isinstance(there, list) else there.setdefault(part, {})
    if last == "+":
        there.append(value)
    elif value is GONE:
        del there[int(last) if isinstance(there, list) else last]
    else:
        there[int(last) if isinstance(there, list) else last] = value


def env(name, value):
    def edit(c):
        c.container["env"] = [e for e in c.container["env"] if e["name"] != name] + [{"name": name, "value": value}]
    return edit


def config(old, new):
    def edit(c):
        data = c.one("ConfigMap", "gradwire-config*")["data"]
        (file,) = data
        assert old in data[file], old
        data[file] = data[file].replace(old, new)
    return edit


def add(kind, **more):
    return lambda c: c.documents.append({"kind": kind, "metadata": {"name": "extra", "namespace": "gradwire"}, **more})


# (rule, overlay, what is changed): either (object, path, value) or a function of the cluster.
BREAKS = [
    ("namespace_is_restricted", "cpu", ("Namespace/gradwire", "metadata.labels", {"pod-security.kubernetes.io/enforce": "baseline"})),
    ("objects_are_in_the_namespace", "cpu", (PEERS, "metadata.namespace", GONE)),
    ("account_has_no_token", "cpu", ("ServiceAccount/gradwire", "automountServiceAccountToken", True)),
    ("pod_has_no_token", "cpu", (SET, POD + "automountServiceAccountToken", GONE)),
    ("pod_has_its_account", "cpu", (SET, POD + "serviceAccountName", "default")),
    ("no_roles", "cpu", add("ClusterRoleBinding")),
    ("no_roles", "cpu", add("Role")),
    ("headless_has_no_address", "cpu", (PEERS, "spec.clusterIP", GONE)),
    ("ranks_are_found_before_they_are_ready", "cpu", (PEERS, "spec.publishNotReadyAddresses", GONE)),
    ("headless_ports", "cpu", (PEERS, "spec.ports.2", GONE)),
    ("client_ports", "cpu", (CLIENTS, "spec.ports.+", {"name": "peer", "port": 7422, "targetPort": "peer"})),
    ("clients_keep_their_pod", "cpu", (CLIENTS, "spec.sessionAffinity", "None")),
    ("services_are_inside", "cpu", (CLIENTS, "spec.type", "LoadBalancer")),
    ("services_select_the_pods", "cpu", (CLIENTS, "spec.selector", {"app.kubernetes.io/name": "gradwired"})),
    ("services_select_the_pods", "cpu", (CLIENTS, "spec.selector", {})),
    ("services_lead_to_ports", "cpu", (CLIENTS, "spec.ports.0.port", 7424)),
    ("services_lead_to_ports", "cpu", (CLIENTS, "spec.ports.0.targetPort", "http")),
    ("set_has_the_headless_service", "cpu", (SET, "spec.serviceName", "gradwire")),
    ("pods_start_together", "cpu", (SET, "spec.podManagementPolicy", GONE)),
    ("updates_roll", "cpu", (SET, "spec.updateStrategy.type", "OnDelete")),
    ("updates_roll", "cpu", (SET, "spec.updateStrategy.rollingUpdate", GONE)),
    ("ready_counts_after_a_while", "cpu", (SET, "spec.minReadySeconds", 0)),
    ("claims_outlive_pods", "cpu", (SET, "spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Delete")),
    ("claims_are_of_one_pod", "cpu", (SET, "spec.volumeClaimTemplates.0.spec.accessModes", ["ReadWriteMany"])),
    ("set_selects_its_pods", "cpu", (SET, "spec.selector.matchLabels", {"app": "gradwire"})),
    ("grace_is_long_enough", "cpu", (SET, POD + "terminationGracePeriodSeconds", 104)),
    ("grace_is_long_enough", "cpu", config("drain-seconds = 90", "drain-seconds = 116")),
    ("grace_is_long_enough", "dev", (SET, BOX + "lifecycle.preStop.exec.command.2", "--wait=11s")),
    ("pods_spread", "cpu", (SET, POD + "topologySpreadConstraints.0.whenUnsatisfiable", "ScheduleAnyway")),
    ("pods_spread", "cpu", (SET, POD + "topologySpreadConstraints.1", GONE)),
    ("pods_spread", "cpu", (SET, POD + "topologySpreadConstraints.0.maxSkew", 2)),
    ("spread_counts_the_pods", "cpu", (SET, POD + "topologySpreadConstraints.1.labelSelector", {})),
    ("no_service_links", "cpu", (SET, POD + "enableServiceLinks", GONE)),
    ("runs_as_no_root", "cpu", (SET, POD + "securityContext.runAsNonRoot", GONE)),
    ("runs_as_no_root", "cpu", (SET, BOX + "securityContext.runAsNonRoot", False)),
    ("runs_as_the_images_user", "cpu", (SET, POD + "securityContext.runAsGroup", 0)),
    ("runs_as_the_images_user", "cpu", (SET, BOX + "securityContext.runAsUser", 1000)),
    ("volumes_change_owner_once", "cpu", (SET, POD + "securityContext.fsGroupChangePolicy", GONE)),
    ("system_calls_are_filtered", "cpu", (SET, POD + "securityContext.seccompProfile", GONE)),
    ("system_calls_are_filtered", "cpu", (SET, BOX + "securityContext.seccompProfile", {"type": "Unconfined"})),
    ("nothing_of_the_host", "cpu", (SET, POD + "hostNetwork", True)),
    ("nothing_of_the_host", "cpu", (SET, POD + "hostPID", True)),
    ("volume_types", "gpu", (SET, POD + "volumes.+", {"name": "x", "hostPath": {"path": "/dev"}})),
    ("no_host_ports", "cpu", (SET, BOX + "ports.0.hostPort", 7420)),
    ("no_privilege_escalation", "cpu", (SET, BOX + "securityContext.allowPrivilegeEscalation", GONE)),
    ("no_privilege_escalation", "cpu", (SET, POD + "initContainers", [{"name": "x", "image": "x"}])),
    ("not_privileged", "gpu", (SET, BOX + "securityContext.privileged", True)),
    ("not_privileged", "cpu", (SET, BOX + "securityContext.procMount", "Unmasked")),
    ("root_is_read_only", "cpu", (SET, BOX + "securityContext.readOnlyRootFilesystem", False)),
    ("no_capabilities", "gpu", (SET, BOX + "securityContext.capabilities.add", ["SYS_PTRACE"])),
    ("no_capabilities", "cpu", (SET, BOX + "securityContext.capabilities.drop", ["NET_RAW"])),
    ("sysctls_are_safe", "gpu", (SET, POD + "securityContext.sysctls.+", {"name": "kernel.shmmax", "value": "1"})),
    ("no_profile_is_lifted", "cpu", (SET, POD + "securityContext.seLinuxOptions", {"type": "spc_t"})),
    ("no_profile_is_lifted", "cpu", (SET, BOX + "securityContext.appArmorProfile", {"type": "Unconfined"})),
    ("image_is_fixed", "cpu", (SET, BOX + "image", "registry.example.com/gradwire:1.0")),
    ("image_is_fixed", "dev", (SET, BOX + "imagePullPolicy", "IfNotPresent")),
    ("image_is_not_latest", "dev", (SET, BOX + "image", "gradwire:latest")),
    ("image_is_not_latest", "dev", (SET, BOX + "image", "registry:5000/gradwire")),
    ("memory_is_reserved", "cpu", (SET, BOX + "resources.requests.memory", "8Gi")),
    ("memory_is_reserved", "gpu", (SET, BOX + "resources.limits.memory", GONE)),
    ("quota_fits_the_limit", "cpu", config('session-memory = "1GiB"', 'server-memory = "13GiB"')),
    ("quota_fits_the_limit", "dev", config('session-memory = "128MiB"', 'session-memory = "410MiB"')),
    ("command_has_no_shell", "cpu", (SET, BOX + "command", ["sh", "-c", "gradwired"])),
    ("command_has_no_shell", "cpu", (SET, BOX + "lifecycle.preStop.exec.command.0", "sh")),
    ("no_secret_in_the_environment", "cpu", env("GRADWIRE_TOKEN", "abc")),
    ("no_secret_in_the_environment", "cpu", env("X", "-----BEGIN PRIVATE KEY-----")),
    ("no_secret_in_the_environment", "cpu", (SET, BOX + "env.+", {"name": "X", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}})),
    ("no_secret_in_the_environment", "cpu", (SET, BOX + "envFrom", [{"secretRef": {"name": "a"}}])),
    ("variables_are_options", "cpu", env("GRADWIRE_LANE", "2")),
    ("arguments_are_options", "cpu", (SET, BOX + "args.+", "--allowed-hosts=x")),
    ("clients_names_are_known", "cpu", (SET, BOX + "args", ["--allowed-host=gradwire"])),
    ("start_may_take_minutes", "cpu", (SET, BOX + "startupProbe", GONE)),
    ("start_may_take_minutes", "gpu", (SET, BOX + "startupProbe.failureThreshold", 3)),
    ("liveness_is_patient", "cpu", (SET, BOX + "livenessProbe.httpGet.path", "/readyz")),
    ("liveness_is_patient", "cpu", (SET, BOX + "livenessProbe.timeoutSeconds", 1)),
    ("readiness_is_quick", "cpu", (SET, BOX + "readinessProbe.httpGet.path", "/livez")),
    ("probe_paths_are_routes", "cpu", (SET, BOX + "readinessProbe.httpGet.path", "/ready")),
    ("probe_paths_are_routes", "cpu", (SET, BOX + "readinessProbe.httpGet.path", "/v1/info")),
    ("probes_ask_the_probe_port", "cpu", (SET, BOX + "livenessProbe.httpGet.port", "http")),
    ("probes_ask_the_probe_port", "dev", config("0.0.0.0:7423", "127.0.0.1:7423")),
    ("pods_drain_first", "cpu", (SET, BOX + "lifecycle", GONE)),
    ("pods_drain_first", "cpu", (SET, BOX + "lifecycle.preStop.exec.command.2", "--wait=0s")),
    ("drain_finds_the_server", "cpu", config("unix =", "# unix =")),
    ("one_pod_at_a_time", "cpu", (PDB, "spec.maxUnavailable", 2)),
    ("broken_pods_hold_no_node", "cpu", (PDB, "spec.unhealthyPodEvictionPolicy", GONE)),
    ("budget_counts_the_pods", "cpu", (PDB, "spec.selector.matchLabels", {"app": "x"})),
    ("default_is_deny", "cpu", ("NetworkPolicy/default-deny", "spec.policyTypes", ["Ingress"])),
    ("default_is_deny", "cpu", ("NetworkPolicy/default-deny", "spec.ingress", [{}])),
    ("policy_is_for_the_pods", "cpu", (POLICY, "spec.podSelector.matchLabels", {"app": "x"})),
    ("policy_is_for_the_pods", "cpu", (POLICY, "spec.policyTypes", ["Ingress"])),
    ("rules_name_both_ends", "cpu", (POLICY, "spec.ingress.0.from", GONE)),
    ("rules_name_both_ends", "cpu", (POLICY, "spec.ingress.1.ports", GONE)),
    ("rules_name_both_ends", "cpu", (POLICY, "spec.ingress.0.from.0.podSelector", {})),
    ("rules_name_both_ends", "cpu", (POLICY, "spec.egress.+", {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 443}]})),
    ("clients_reach_rpc_and_http", "cpu", (POLICY, "spec.ingress.0.ports.+", {"port": 7422})),
    ("clients_reach_rpc_and_http", "cpu", (POLICY, "spec.ingress.0.ports.0.port", 7424)),
    ("peers_reach_peers_only", "cpu", (POLICY, "spec.ingress.1.from.+", {"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "b"}}})),
    ("peers_reach_peers_only", "cpu", (POLICY, "spec.ingress.0.ports.+", {"port": 20500})),
    ("peers_reach_peers_only", "cpu", (POLICY, "spec.egress.0", GONE)),
    ("data_ports_are_open_to_peers", "cpu", (POLICY, "spec.ingress.1.ports.1.endPort", 20998)),
    ("data_ports_are_open_to_peers", "cpu", config("20000-20999", "20000-21999")),
    ("names_can_be_asked", "cpu", (POLICY, "spec.egress.1.ports.0.protocol", "TCP")),
    ("probe_port_is_the_nodes", "cpu", (POLICY, "spec.ingress.0.ports.1.endPort", 7423)),
    ("config_is_good", "cpu", config("insecure-no-tls = true", "insecure-no-tls = false")),
    ("config_is_good", "cpu", config("drain-seconds", "drain-second")),
    ("config_is_good", "dev", config('"128MiB"', '"a lot"')),
    ("config_is_where_the_server_looks", "cpu", env("GRADWIRE_CONFIG", "/etc/gradwire/gradwire.toml")),
    ("config_is_where_the_server_looks", "cpu", env("GRADWIRE_CONFIG", "/run/gradwire/gradwired.toml")),
    ("ports_agree", "cpu", config("0.0.0.0:7420", "0.0.0.0:7430")),
    ("ports_agree", "cpu", config("0.0.0.0:7422", "0.0.0.0:7432")),
    ("ports_agree", "dev", config("probe =", "# probe =")),
    ("writable_paths_are_volumes", "cpu", config("/var/lib/gradwire", "/data")),
    ("writable_paths_are_volumes", "cpu", config("/run/gradwire/", "/run/")),
    ("writable_paths_are_volumes", "cpu", config("/var/lib/gradwire", "/run/gradwire/data")),
    ("no_secret_is_kept_here", "cpu", add("Secret")),
    ("secrets_are_for_the_group_only", "cpu", (SET, POD + "volumes.1.secret.defaultMode", 0o444)),
    ("secrets_are_for_the_group_only", "cpu", (SET, BOX + "volumeMounts.1.readOnly", GONE)),
    ("files_arrive_in_running_pods", "cpu", (SET, BOX + "volumeMounts.0.subPath", "gradwired.toml")),
    ("peer_links_have_certificates", "cpu", config("tls-ca =", "# tls-ca =")),
    ("peer_links_have_certificates", "cpu", config("/etc/gradwire-peer/tls.key", "/etc/gradwire/tls.key")),
    ("world_is_the_replicas", "cpu", (SET, "spec.replicas", 4)),
    ("world_is_the_replicas", "dev", (SET, "spec.replicas", 2)),
    ("rank_is_the_ordinal", "cpu", config('"ordinal"', '"0"')),
    ("group_meets_at_rank_0", "cpu", config("tcp://gradwire-0", "tcp://gradwire-1")),
    ("group_meets_at_rank_0", "cpu", config("svc:7422", "svc:7420")),
    ("peers_have_stable_names", "cpu", env("GRADWIRE_PEER_ADVERTISE", "$(POD_NAME)")),
    ("peers_have_stable_names", "cpu", env("GRADWIRE_PEER_ADVERTISE", "$(POD_NAME).gradwire-peers.$(POD_NAMESPACE).svc:7420")),
    ("peers_have_stable_names", "cpu", lambda c: c.container["env"].reverse()),
    ("gpus_are_limits", "gpu", (SET, BOX + "resources.requests.nvidia~com/gpu", 2)),
    ("gpus_are_limits", "gpu", (SET, BOX + "resources.limits.nvidia~com/gpu", "500m")),
    ("device_is_what_there_is", "gpu", (SET, BOX + "resources.limits.nvidia~com/gpu", GONE)),
    ("device_is_what_there_is", "cpu", env("GRADWIRE_DEVICE", "cuda:0")),
    ("gpu_pods_find_their_nodes", "gpu", (SET, POD + "tolerations", [])),
    ("gpu_pods_find_their_nodes", "gpu", (SET, POD + "affinity", GONE)),
    ("gpu_pods_have_a_runtime", "gpu", (SET, POD + "runtimeClassName", GONE)),
    ("nccl_has_shared_memory", "gpu", lambda c: [v.update(emptyDir={}) for v in c.pod["volumes"] if v["name"] == "shm"]),
    ("nccl_stays_in_the_range", "gpu", (SET, POD + "securityContext.sysctls", [])),
    ("nccl_stays_in_the_range", "gpu", (SET, POD + "securityContext.sysctls.0.value", "32768 60999")),
]


@unittest.skipUnless(cluster.have("kubectl"), "kubectl is not here, which builds the overlays")
class Overlays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = cluster.Server()
        cls.overlays = {name: cluster.Cluster(name, cluster.load(cluster.kustomize(name)), server) for name in cluster.OVERLAYS}

    def test_every_overlay_keeps_every_rule(self):
        for name, c in self.overlays.items():
            for rule, check in checks.ALL.items():
                with self.subTest(overlay=name, rule=rule):
                    self.assertEqual(list(check(c)), [])

    def test_every_rule_sees_a_break_of_it(self):
        for number, (rule, overlay, broken) in enumerate(BREAKS):
            with self.subTest(rule=rule, number=number):
                c = self.overlays[overlay].copy()
                if callable(broken):
                    broken(c)
                else:
                    change(c, broken[0], broken[1], broken[2])
                self.assertNotEqual(list(checks.ALL[rule](c)), [])

    def test_no_rule_is_without_a_break(self):
        self.assertEqual(set(checks.ALL), {rule for rule, _, _ in BREAKS})
        self.assertGreaterEqual(len(checks.ALL), 60)

    def test_the_options_of_groups_are_known(self):
        c = self.overlays["cpu"]
        if "peer" not in c.server.options:
            self.skipTest("this gradwired forms no groups: the config's keys for them are unchecked")
        self.assertEqual(set(c.config) - c.server.options, set())


if __name__ == "__main__":
    if not cluster.have("kubectl"):
        print("skipped: kubectl is not here, which builds the overlays")
        sys.exit(77)
    unittest.main()
