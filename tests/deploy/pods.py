"""Pods without a cluster: what a kubelet does with a StatefulSet's pods, as far as the tests need it. Namespaces of their
own for mounts, processes, names and the network, a read-only root that image-root.sh made, the manifest's user, volumes,
variables, arguments and memory limit. Needs root."""
import base64
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import threading

from cluster import GRADWIRED, SOURCE, at, size

CLONE_NEWNET = 0x40000000


def may():
    """Whether this user may make namespaces, mounts and networks."""
    return os.geteuid() == 0 and all(map(shutil.which, ("unshare", "nsenter", "setpriv", "ip", "hostname"))) and \
        subprocess.run(["unshare", "-m", "-p", "-n", "-u", "-f", "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True).returncode == 0


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


class Network:
    """A bridge, and a network namespace a pod: 10.77.0.1 for pod 0, and so on. Nothing of the host's own is touched."""

    def __init__(self, pods):
        self.names = [f"gradwire-{os.getpid()}-{i}" for i in range(pods)]
        self.switch = f"gradwire-{os.getpid()}-switch"
        try:
            ip("netns", "add", self.switch)
            ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.switch, "link", "set", "bridge", "up")
            for i, name in enumerate(self.names):
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"pod{i}", "netns", self.switch)
                ip("-n", self.switch, "link", "set", f"pod{i}", "master", "bridge", "up")
                ip("-n", name, "address", "add", f"{self.address(i)}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
        except BaseException:
            self.close()
            raise

    @staticmethod
    def address(pod):
        return f"10.77.0.{pod + 1}"

    def within(self, pod, action):
        """What the action returns in a thread whose network is the pod's."""
        found = []

        def work():
            with open(f"/run/netns/{self.names[pod]}") as net:
                if ctypes.CDLL(None, use_errno=True).setns(net.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            try:
                found.append((action(), None))
            except Exception as e:
                found.append((None, e))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        (value, error), = found
        if error:
            raise error
        return value

    def close(self):
        for name in (*self.names, self.switch):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def make_root(c, folder, pods):
    """The image, with what the container's runtime and the kubelet add to it."""
    root = folder / "image"
    subprocess.run([SOURCE / "deploy/image-root.sh", GRADWIRED, root], check=True)
    (root / "sys/fs/cgroup").mkdir(parents=True)
    peers = c.headless["metadata"]["name"]
    names = [f"{Network.address(i)} gradwire-{i}.{peers}.{c.namespace}.svc gradwire-{i}" for i in range(pods)]
    (root / "etc/hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
    return root


class Pod:
    def __init__(self, c, folder, root, network, ordinal, secrets=()):
        self.c, self.root, self.network, self.ordinal = c, root, network, ordinal
        self.secrets = {s["metadata"]["name"]: s for s in secrets}
        self.name = f"{c.set['metadata']['name']}-{ordinal}"
        self.folder = folder / self.name
        self.folder.mkdir()
        self.user = at(c.pod, "securityContext.runAsUser")
        self.group = at(c.pod, "securityContext.fsGroup")
        self.env = {"PATH": "/usr/bin", "HOSTNAME": self.name}
        for entry in c.container.get("env", []):
            field = at(entry, "valueFrom.fieldRef.fieldPath")
            fields = {"metadata.name": self.name, "metadata.namespace": c.namespace}
            self.env[entry["name"]] = fields[field] if field else self.expand(entry["value"])
        words = [self.expand(word) for word in c.container["command"] + c.container.get("args", [])]
        script = "\n".join([f"hostname {self.name}", *self.mounts(),
                            f"exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+setuid,+setgid "
                            f"chroot --userspec={self.user}:{self.user} --groups={self.group} {root} {shlex.join(words)}"])
        self.log = open(self.folder / "log", "w+")
        self.process = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{network.names[ordinal]}", "unshare", "--mount", "--pid", "--uts", "--fork", "bash", "-ec", script],
            env={**self.env, "PATH": "/usr/bin:/usr/sbin:/bin:/sbin"}, cwd="/", text=True, stdout=subprocess.PIPE, stderr=self.log)

    def wait_until_ready(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} does not start: {self.text()}")
        self.ready = json.loads(line)
        self.pid = self.children()[0]
        return self

    def children(self):
        """Process 1 of the pod, as this side numbers it."""
        return pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()

    def text(self):
        """What it has logged."""
        return pathlib.Path(self.log.name).read_text()

    def expand(self, text):
        return re.sub(r"\$\((\w+)\)", lambda m: self.env[m[1]], text)

    def files(self, volume, contents, mode):
        """A folder with a ConfigMap's or a Secret's files."""
        place = self.folder / volume["name"]
        place.mkdir()
        for name, content in contents.items():
            (place / name).write_bytes(content)
            os.chown(place / name, 0, self.group)
            (place / name).chmod(mode)
        return place

    def mounts(self):
        """The commands that mount what the manifest mounts, into a root that is read-only at the end."""
        yield f"mount --bind {self.root} {self.root}"
        yield f"mount -t proc proc {self.root}/proc"
        limit = self.folder / "cgroup"  # the memory limit, as a cgroup of version 2 shows it
        limit.mkdir()
        (limit / "memory.max").write_text(f"{int(size(self.c.container['resources']['limits']['memory']))}\n")
        yield f"mount --bind {limit} {self.root}/sys/fs/cgroup"
        for mount in self.c.container["volumeMounts"]:
            place = f"{self.root}{mount['mountPath']}"
            _, volume = self.c.mount_of(mount["mountPath"])
            if "configMap" in volume:
                data = self.c.one("ConfigMap", volume["configMap"]["name"])["data"]
                source = self.files(volume, {k: v.encode() for k, v in data.items()}, volume["configMap"]["defaultMode"])
            elif "secret" in volume:
                data = self.secrets[volume["secret"]["secretName"]]["data"]
                source = self.files(volume, {k: base64.b64decode(v) for k, v in data.items()}, volume["secret"]["defaultMode"])
            else:
                most = int(size(at(volume, "emptyDir.sizeLimit") or "64Mi"))
                yield f"mount -t tmpfs -o mode=2770,uid=0,gid={self.group},size={most} volume {place}"
                continue
            yield f"mount --bind {source} {place} && mount -o remount,bind,ro {place}"
        yield f"mount -o remount,bind,ro {self.root}"

    def ask(self, listener, method, path, body=None, host=None):
        """A request from within the pod's network: (status, JSON)."""
        def request():
            port = int(self.ready[listener].rsplit(":", 1)[1])
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as link:
                headers = {"Host": host} if host else {}
                if body is not None:
                    headers["Content-Type"] = "application/json"
                link.request(method, path, None if body is None else json.dumps(body), headers)
                answer = link.getresponse()
                return answer.status, json.loads(answer.read())

        return self.network.within(self.ordinal, request)

    def probe(self, name):
        """What a kubelet would ask: whether the probe holds now."""
        asked = self.c.container[name + "Probe"]["httpGet"]
        port = next(p["containerPort"] for p in self.c.container["ports"] if p["name"] == asked["port"])
        assert self.ready["probe"] == f"0.0.0.0:{port}", self.ready
        return 200 <= self.ask("probe", "GET", asked["path"])[0] < 400

    def exec(self, *words):
        """As `kubectl exec`, or a hook: with the container's variables, in its namespaces, as its user."""
        return subprocess.run(["nsenter", "--target", self.pid, "--mount", "--pid", "--net", "--uts", "--root", "--wd=/",
                               "--setuid", str(self.user), "--setgid", str(self.user), "/usr/bin/" + words[0], *words[1:]],
                              env=self.env, capture_output=True, text=True, timeout=60)

    def stop(self):
        if self.process.poll() is None:
            for pid in self.children():  # with it goes all of its namespace
                os.kill(int(pid), signal.SIGKILL)
        self.process.communicate()
        self.log.close()
