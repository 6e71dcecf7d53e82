"""What an overlay makes: its objects, and the server's own words about what stands in them."""
import copy
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

try:
    import yaml
except ImportError:  # another Python may have it: Debian's python3-yaml is for Debian's python3
    if sys.executable != "/usr/bin/python3" and os.access("/usr/bin/python3", os.X_OK):
        os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
    print("skipped: PyYAML is not here (python3-yaml)")
    sys.exit(77)

SOURCE = pathlib.Path(__file__).resolve().parents[2]
OVERLAYS = ("cpu", "gpu", "dev")
GRADWIRED = os.environ.get("GRADWIRED", str(SOURCE / "build/release/bin/gradwired"))


class Strict(yaml.SafeLoader):
    """As Kubernetes reads it in strict mode: a key may stand only once."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key '{key}' stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def load(text):
    return [document for document in yaml.load_all(text, Strict) if document is not None]


def have(program):
    return shutil.which(program) is not None


def kustomize(overlay):
    """The text that `kubectl apply -k` would send."""
    done = subprocess.run(["kubectl", "kustomize", str(SOURCE / "deploy/overlays" / overlay)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def gradwired(*arguments, env=None):
    return subprocess.run([GRADWIRED, *arguments], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **(env or {})})


def size(text):
    """Kubernetes' quantities and the config's sizes, in bytes or units: "4Gi", "4GiB", "100m", "2"."""
    number, unit = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]*)", str(text)).groups()
    steps = {"": 1, "m": 1e-3, "B": 1}
    for power, letter in enumerate("KMGT", 1):
        steps[letter] = 1000**power
        steps[letter + "i"] = steps[letter + "iB"] = steps[letter + "B"] = 1024**power
    return float(number) * steps[unit]


def at(value, path, default=None):
    """value["a"]["b"][0] for "a.b.0"; the default where a part is not there."""
    for part in path.split("."):
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return default
    return value


class Server:
    """What the binary says of itself; asked once."""

    def __init__(self):
        self.routes, self.probe_routes = set(), set()
        for line in gradwired("routes").stdout.splitlines():
            method, path, *probe = line.split()
            self.routes.add((method, path))
            if probe:
                self.probe_routes.add((method, path))
        self.options = set(re.findall(r"^ +--([a-z-]+)", gradwired("--help").stdout, re.M))


class Cluster:
    def __init__(self, name, documents, server):
        self.name, self.documents, self.server = name, documents, server

    def copy(self):
        return Cluster(self.name, copy.deepcopy(self.documents), self.server)

    def all(self, kind, name="*"):
        return [d for d in self.documents if d["kind"] == kind and fnmatch.fnmatch(d["metadata"]["name"], name)]

    def one(self, kind, name="*"):
        found = self.all(kind, name)
        if len(found) != 1:
            raise LookupError(f"{len(found)} objects {kind}/{name}, expected one")
        return found[0]

    @property
    def set(self):
        return self.one("StatefulSet")

    @property
    def pod(self):
        return self.set["spec"]["template"]["spec"]

    @property
    def labels(self):
        return self.set["spec"]["template"]["metadata"]["labels"]

    @property
    def containers(self):
        return self.pod.get("initContainers", []) + self.pod["containers"]

    @property
    def container(self):
        return self.pod["containers"][0]

    @property
    def headless(self):
        return self.one("Service", "gradwire-peers")

    @property
    def client_service(self):
        return self.one("Service", "gradwire")

    @property
    def policy(self):
        return self.one("NetworkPolicy", "gradwire")

    @property
    def namespace(self):
        return self.one("Namespace")["metadata"]["name"]

    @property
    def config_text(self):
        (text,) = self.one("ConfigMap", "gradwire-config*")["data"].values()
        return text

    @property
    def config(self):
        return tomllib.loads(self.config_text)

    @property
    def grouped(self):
        return "group-init" in self.config

    def env(self, name):
        for entry in self.container.get("env", []):
            if entry["name"] == name:
                return entry.get("value")
        return None

    def config_port(self, listener):
        """The port of an address in the config, or None."""
        address = self.config.get(listener)
        return int(address.rsplit(":", 1)[1]) if address else None

    @property
    def data_ports(self):
        first, last = self.config["data-ports"].split("-")
        return int(first), int(last)

    def mount_of(self, path):
        """The mount that holds a path of the container, and its volume: the deepest."""
        def holds(mount):
            return path == mount["mountPath"] or path.startswith(mount["mountPath"].rstrip("/") + "/")

        mounts = sorted(filter(holds, self.container.get("volumeMounts", [])), key=lambda m: len(m["mountPath"]))
        if not mounts:
            return None, None
        volumes = self.pod.get("volumes", []) + [
            {"name": claim["metadata"]["name"], "claim": claim} for claim in self.set["spec"].get("volumeClaimTemplates", [])
        ]
        return mounts[-1], next((v for v in volumes if v["name"] == mounts[-1]["name"]), None)
