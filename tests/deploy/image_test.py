#!/usr/bin/env python3
"""The image without an engine for images: image-root.sh's root, entered as a pod would, uid 10001 and process 1, with a
read-only root and no capability. Needs root for that."""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from cluster import GRADWIRED, SOURCE

LIMIT = 1 << 30  # bytes of memory that the root's cgroup file says

# Inside new namespaces: the mounts that a pod has, then no way back to root, then the program itself.
ENTER = r"""
set -e
root=$1; shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=0770,uid=10001,gid=10001 run "$root/run/gradwire"
mount -t tmpfs -o mode=0770,uid=10001,gid=10001 data "$root/var/lib/gradwire"
mount --bind "$root/limit" "$root/sys/fs/cgroup"
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+setuid,+setgid \
  chroot --userspec=10001:10001 --groups=10001 "$root" /usr/bin/gradwired "$@"
"""
IN_IT = ["--target", "PID", "--mount", "--pid", "--root", "--wd=/", "--setuid", "10001", "--setgid", "10001"]


def may():
    """Whether this user may make namespaces and mounts."""
    return os.geteuid() == 0 and all(map(shutil.which, ("unshare", "nsenter", "setpriv"))) and \
        subprocess.run(["unshare", "-m", "-p", "-f", "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True).returncode == 0


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        cls.root = pathlib.Path(folder.name, "image")
        subprocess.run([SOURCE / "deploy/image-root.sh", GRADWIRED, cls.root], check=True)
        (cls.root / "sys/fs/cgroup").mkdir(parents=True)
        (cls.root / "limit").mkdir()
        (cls.root / "limit/memory.max").write_text(f"{LIMIT}\n")
        cls.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "bash", "-c", ENTER, "enter", cls.root, "--rpc", "127.0.0.1:0",
             "--http", "127.0.0.1:0", "--unix", "/run/gradwire/s", "--data-dir", "/var/lib/gradwire"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/")
        cls.addClassCleanup(lambda: (cls.process.kill(), cls.process.communicate()))
        line = cls.process.stdout.readline()
        if not line:
            raise RuntimeError(cls.process.communicate()[1])
        cls.ready = json.loads(line)
        (cls.pid,) = pathlib.Path(f"/proc/{cls.process.pid}/task/{cls.process.pid}/children").read_text().split()

    def ask(self, method, path, body=None, listener="http"):
        link = http.client.HTTPConnection(self.ready[listener], timeout=30)
        link.request(method, path, None if body is None else json.dumps(body), {} if body is None else {"Content-Type": "application/json"})
        answer = link.getresponse()
        found = answer.status, json.loads(answer.read())
        link.close()
        return found

    def inside(self, *words):
        return subprocess.run(["nsenter", *(self.pid if w == "PID" else w for w in IN_IT), *words], capture_output=True, text=True)

    def test_1_it_holds_the_program_and_its_libraries_only(self):
        programs = [f for f in self.root.rglob("*") if f.is_file() and os.access(f, os.X_OK)]
        self.assertEqual({f.name for f in programs if not f.name.startswith("ld-linux")}, {"gradwired"})
        others = {str(f.relative_to(self.root)) for f in self.root.rglob("*")
                  if f.is_file() and not re.match(r"(lib|ld-linux).*\.so", f.name) and f.name != "gradwired"}
        self.assertEqual(others, {"etc/ld.so.conf", "etc/ld.so.cache", "etc/passwd", "etc/group", "etc/nsswitch.conf",
                                  "limit/memory.max"})

    def test_2_it_runs_as_process_1_of_user_10001_without_capabilities(self):
        status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines() if ":\t" in line)
        self.assertEqual(status["NSpid"].split()[-1], "1")
        self.assertEqual(set(status["Uid"].split() + status["Gid"].split()), {"10001"})
        self.assertEqual((int(status["CapEff"], 16), int(status["CapPrm"], 16), status["NoNewPrivs"]), (0, 0, "1"))
        self.assertEqual(os.readlink(f"/proc/{self.pid}/exe").rsplit("/", 1)[-1], "gradwired")
        self.assertFalse(os.access(f"/proc/{self.pid}/root/bin/sh", os.F_OK))

    def test_3_it_computes(self):
        self.assertEqual(self.ask("GET", "/readyz", listener="probe"), (200, {"status": "ok"}))
        _, session = self.ask("POST", "/v1/sessions", {})
        program = {"ops": [{"op": "ones", "attrs": {"size": [64, 64]}, "out": "a"}, {"op": "matmul", "in": ["a", "a"], "out": "b"},
                           {"op": "sum", "in": ["b"], "out": "s"}], "fetch": ["s"]}
        status, answer = self.ask("POST", f"/v1/sessions/{session['id']}/run", program)
        self.assertEqual(status, 200, answer)
        self.assertIn("262144", json.dumps(answer))

    def test_4_its_quota_is_80_percent_of_the_cgroups_limit(self):
        quota = LIMIT // 10 * 8
        status, answer = self.ask("POST", "/v1/sessions", {"memory_limit": quota + 1})
        self.assertEqual((status, answer["error"]["code"]), (507, "memory_limit"))
        self.assertIn(f"{quota} are left", answer["error"]["message"])
        self.assertEqual(self.ask("POST", "/v1/sessions", {"memory_limit": quota})[0], 201)

    def test_5_the_root_cannot_be_written(self):
        done = self.inside("/usr/bin/gradwired", "--rpc", "off", "--http", "off", "--probe", "off", "--unix", "/tmp/s")
        self.assertEqual(done.returncode, 78)
        self.assertIn("Read-only file system", done.stderr)

    def test_6_drain_and_sigterm_end_it_as_a_kubelet_would(self):
        done = self.inside("/usr/bin/gradwired", "drain", "--wait=0s", "--unix", "/run/gradwire/s")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        end = time.monotonic() + 30
        while self.ask("GET", "/readyz", listener="probe")[0] == 200 and time.monotonic() < end:
            pass
        self.assertEqual(self.ask("GET", "/readyz", listener="probe")[0], 503)
        self.assertEqual(self.ask("GET", "/livez", listener="probe")[0], 200)
        os.kill(int(self.pid), signal.SIGTERM)
        self.assertEqual(self.process.wait(60), 0)


if __name__ == "__main__":
    if not may():
        print("skipped: entering the image's root needs root, unshare, nsenter and setpriv")
        sys.exit(77)
    unittest.main()
