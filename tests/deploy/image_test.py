#!/usr/bin/env python3
"""The image without an engine for images, and one pod without a cluster: image-root.sh's root, entered as the dev overlay
says (user, mounts, files, variables, memory limit, probes, preStop), process 1 of namespaces of its own. Needs root."""
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
import sys
import tempfile
import threading
import time
import unittest

import cluster
from cluster import GRADWIRED, SOURCE, at, size

CLONE_NEWNET = 0x40000000
MAKE_ROOT = SOURCE / "deploy/image-root.sh"


def may():
    """Whether this user may make namespaces and mounts."""
    return os.geteuid() == 0 and all(map(shutil.which, ("unshare", "nsenter", "setpriv", "ip"))) and \
        subprocess.run(["unshare", "-m", "-p", "-n", "-f", "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True).returncode == 0


class Pod:
    """Pod 0 of an overlay's StatefulSet, as a kubelet would start it on this machine."""

    def __init__(self, c, folder):
        self.c, self.folder, self.root = c, folder, folder / "image"
        subprocess.run([MAKE_ROOT, GRADWIRED, self.root], check=True)
        self.user = at(c.pod, "securityContext.runAsUser")
        self.env = {"PATH": "/usr/bin"}
        for entry in c.container.get("env", []):
            field = at(entry, "valueFrom.fieldRef.fieldPath")
            fields = {"metadata.name": c.set["metadata"]["name"] + "-0", "metadata.namespace": c.namespace}
            self.env[entry["name"]] = fields[field] if field else self.expand(entry["value"])
        self.words = [self.expand(word) for word in c.container["command"] + c.container.get("args", [])]
        script = "\n".join([*self.mounts(), "ip link set lo up",
                            f"exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+setuid,+setgid "
                            f"chroot --userspec={self.user}:{self.user} --groups={self.user} {self.root} {shlex.join(self.words)}"])
        self.process = subprocess.Popen(["unshare", "--mount", "--pid", "--net", "--fork", "bash", "-ec", script], env=
                                        {**self.env, "PATH": "/usr/bin:/usr/sbin:/bin:/sbin"}, cwd="/", text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.communicate()[1])
        self.ready = json.loads(line)
        self.pid = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0]

    def expand(self, text):
        return re.sub(r"\$\((\w+)\)", lambda m: self.env[m[1]], text)

    def mounts(self):
        """The commands that mount what the manifest mounts, into a root that is read-only at the end."""
        yield f"mount --bind {self.root} {self.root}"
        yield f"mount -t proc proc {self.root}/proc"
        groups = self.folder / "cgroup"  # the memory limit, as the server sees it in a cgroup of version 2
        groups.mkdir()
        (groups / "memory.max").write_text(f"{int(size(self.c.container['resources']['limits']['memory']))}\n")
        (self.root / "sys/fs/cgroup").mkdir(parents=True)
        yield f"mount --bind {groups} {self.root}/sys/fs/cgroup"
        for mount in self.c.container["volumeMounts"]:
            place = f"{self.root}{mount['mountPath']}"
            _, volume = self.c.mount_of(mount["mountPath"])
            if "configMap" in volume:
                files = self.folder / volume["name"]
                files.mkdir()
                for name, text in self.c.one("ConfigMap", volume["configMap"]["name"])["data"].items():
                    (files / name).write_text(text)
                    os.chown(files / name, 0, at(self.c.pod, "securityContext.fsGroup"))
                    (files / name).chmod(volume["configMap"]["defaultMode"])
                yield f"mount --bind {files} {place} && mount -o remount,bind,ro {place}"
            else:
                assert "claim" in volume or at(volume, "emptyDir"), volume
                most = at(volume, "emptyDir.sizeLimit") or "64Mi"
                group = at(self.c.pod, "securityContext.fsGroup")
                yield f"mount -t tmpfs -o mode=2770,uid=0,gid={group},size={int(size(most))} volume {place}"
        yield f"mount -o remount,bind,ro {self.root}"

    def ask(self, listener, method, path, body=None, host=None):
        """A request from within the pod's network: (status, JSON)."""
        found = []

        def request():
            with open(f"/proc/{self.pid}/ns/net") as net:
                if ctypes.CDLL(None, use_errno=True).setns(net.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            port = self.ready[listener].rsplit(":", 1)[1]
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)) as link:
                headers = {"Host": host} if host else {}
                if body is not None:
                    headers["Content-Type"] = "application/json"
                link.request(method, path, None if body is None else json.dumps(body), headers)
                answer = link.getresponse()
                found.append((answer.status, json.loads(answer.read())))

        thread = threading.Thread(target=request)  # its network namespace is its own
        thread.start()
        thread.join()
        return found[0]

    def probe(self, name):
        """What a kubelet would ask: whether the probe holds now."""
        asked = self.c.container[name + "Probe"]["httpGet"]
        port = next(p["containerPort"] for p in self.c.container["ports"] if p["name"] == asked["port"])
        assert self.ready["probe"] == f"0.0.0.0:{port}", self.ready
        return 200 <= self.ask("probe", "GET", asked["path"])[0] < 400

    def exec(self, *words):
        """As `kubectl exec`, or a hook: with the container's variables, in its namespaces, as its user."""
        return subprocess.run(["nsenter", "--target", self.pid, "--mount", "--pid", "--net", "--root", "--wd=/", "--setuid", str(self.user),
                               "--setgid", str(self.user), "/usr/bin/" + words[0], *words[1:]], env=self.env, capture_output=True,
                              text=True, timeout=60)

    def stop(self):
        self.process.kill()
        self.process.communicate()


class Image(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "image")

    def test_it_holds_the_program_and_its_libraries_only(self):
        subprocess.run([MAKE_ROOT, GRADWIRED, self.root], check=True)
        files = [f for f in self.root.rglob("*") if f.is_file()]
        libraries = {f for f in files if re.match(r"(lib|ld-linux).*\.so", f.name)}
        self.assertTrue(libraries)
        self.assertEqual({str(f.relative_to(self.root)) for f in set(files) - libraries},
                         {"usr/bin/gradwired", "etc/ld.so.conf", "etc/ld.so.cache", "etc/passwd", "etc/group", "etc/nsswitch.conf"})
        self.assertEqual([f for f in files if f.stat().st_mode & 0o6002], [])

    def test_a_directory_that_is_not_empty_is_left_alone(self):
        self.root.mkdir()
        (self.root / "mine").touch()
        self.assertEqual(subprocess.run([MAKE_ROOT, GRADWIRED, self.root], capture_output=True).returncode, 1)
        self.assertEqual([f.name for f in self.root.iterdir()], ["mine"])

    @unittest.skipUnless(shutil.which("cc"), "no compiler is here")
    def test_libraries_that_lie_elsewhere_are_found_and_missing_ones_are_said(self):
        """As CUDA's do, which only the builder's linker configuration finds."""
        there = self.root.parent / "opt/lib"
        there.mkdir(parents=True)
        (there / "a.c").write_text("int answer(void) { return 42; }\n")
        (there / "b.c").write_text("int answer(void);\nint main(void) { return answer(); }\n")
        program = there / "program"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", there / "libanswer.so.1", "-Wl,-soname,libanswer.so.1", there / "a.c"], check=True)
        subprocess.run(["cc", "-o", program, there / "b.c", there / "libanswer.so.1"], check=True)
        missing = subprocess.run([MAKE_ROOT, program, self.root], capture_output=True, text=True)
        self.assertNotEqual(missing.returncode, 0)
        self.assertIn("libanswer.so.1 => not found", missing.stderr)
        shutil.rmtree(self.root)
        subprocess.run([MAKE_ROOT, program, self.root], check=True, env={**os.environ, "LD_LIBRARY_PATH": str(there)})
        shutil.rmtree(there)
        self.assertEqual(subprocess.run(["chroot", self.root, "/usr/bin/gradwired"]).returncode, 42)


@unittest.skipUnless(cluster.have("kubectl"), "kubectl is not here, which builds the overlay")
class OnePod(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        cls.c = cluster.Cluster("dev", cluster.load(cluster.kustomize("dev")), cluster.Server())
        cls.pod = Pod(cls.c, pathlib.Path(folder.name))
        cls.addClassCleanup(cls.pod.stop)

    def test_1_it_is_process_1_of_user_10001_without_capabilities(self):
        lines = pathlib.Path(f"/proc/{self.pod.pid}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        self.assertEqual(status["NSpid"].split()[-1], "1")
        self.assertEqual(set(status["Uid"].split() + status["Gid"].split()), {"10001"})
        self.assertEqual((int(status["CapEff"], 16), int(status["CapPrm"], 16), status["NoNewPrivs"]), (0, 0, "1"))
        self.assertTrue(os.readlink(f"/proc/{self.pod.pid}/exe").endswith("/usr/bin/gradwired"))
        self.assertFalse(os.path.exists(f"/proc/{self.pod.pid}/root/bin/sh"))

    def test_2_the_probes_hold(self):
        for name in ("startup", "liveness", "readiness"):
            self.assertTrue(self.pod.probe(name), name)

    def test_3_it_computes_for_clients_of_the_names_it_knows(self):
        for host in ("gradwire", "gradwire.gradwire.svc", "gradwire-0.gradwire-peers.gradwire.svc.cluster.local", "gradwire:7421"):
            self.assertEqual(self.pod.ask("http", "GET", "/v1/info", host=host)[0], 200, host)
        self.assertEqual(self.pod.ask("http", "GET", "/v1/info", host="rebound.example.com")[0], 403)
        _, session = self.pod.ask("http", "POST", "/v1/sessions", {})
        program = {"ops": [{"op": "ones", "attrs": {"size": [64, 64]}, "out": "a"}, {"op": "matmul", "in": ["a", "a"], "out": "b"},
                           {"op": "sum", "in": ["b"], "out": "s"}], "fetch": ["s"]}
        status, answer = self.pod.ask("http", "POST", f"/v1/sessions/{session['id']}/run", program)
        self.assertEqual(status, 200, answer)
        self.assertIn("262144", json.dumps(answer))

    def test_4_its_quota_is_80_percent_of_the_memory_limit(self):
        quota = int(size(self.c.container["resources"]["limits"]["memory"])) // 10 * 8
        status, answer = self.pod.ask("http", "POST", "/v1/sessions", {"memory_limit": quota + 1})
        self.assertEqual((status, answer["error"]["code"]), (507, "memory_limit"))
        self.assertIn(f"{quota} are left", answer["error"]["message"])
        self.assertEqual(self.pod.ask("http", "POST", "/v1/sessions", {"memory_limit": quota})[0], 201)

    def test_5_the_config_can_be_checked_and_nothing_be_written_but_volumes(self):
        self.assertEqual(self.pod.exec("gradwired", "check-config").returncode, 0)
        listen = ("gradwired", "--rpc", "off", "--http", "off", "--probe", "off", "--unix")
        for place in ("/tmp/s", "/etc/gradwire/s"):
            done = self.pod.exec(*listen, place)
            self.assertEqual(done.returncode, 78)
            self.assertIn("Read-only file system", done.stderr)

    def test_6_it_drains_and_ends_within_its_grace(self):
        begin = time.monotonic()
        done = self.pod.exec(*self.c.container["lifecycle"]["preStop"]["exec"]["command"])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertFalse(self.pod.probe("readiness"))
        self.assertTrue(self.pod.probe("liveness"))
        os.kill(int(self.pod.pid), signal.SIGTERM)
        self.assertEqual(self.pod.process.wait(60), 0)
        self.assertLess(time.monotonic() - begin, self.c.pod["terminationGracePeriodSeconds"])


if __name__ == "__main__":
    if not may():
        print("skipped: entering the image's root needs root, unshare, nsenter, setpriv and ip")
        sys.exit(77)
    unittest.main()
