#!/usr/bin/env python3
"""The pods of the overlays, started as the rendered manifests say (pods.py)."""
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

import cluster
from cluster import SOURCE, size
from pods import Network, Pod, make_root, may


class OnePod(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        here = pathlib.Path(folder.name)
        cls.c = cluster.Cluster("dev", cluster.load(cluster.kustomize("dev")), cluster.Server())
        network = Network(1)
        cls.addClassCleanup(network.close)
        cls.pod = Pod(cls.c, here, make_root(cls.c, here, 1), network, 0)
        cls.addClassCleanup(cls.pod.stop)
        cls.pod.wait_until_ready()

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


class ThreePods(unittest.TestCase):
    """The StatefulSet of the cpu overlay, with the certificates of peer-certs.sh."""

    @classmethod
    def setUpClass(cls):
        server = cluster.Server()
        if "peer" not in server.options:
            raise unittest.SkipTest("this gradwired has no links to other servers")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        cls.here = pathlib.Path(folder.name)
        cls.c = cluster.Cluster("cpu", cluster.load(cluster.kustomize("cpu")), server)
        replicas = cls.c.set["spec"]["replicas"]
        made = subprocess.run([SOURCE / "deploy/peer-certs.sh", cls.here / "ca", str(replicas)], check=True, capture_output=True, text=True)
        cls.network = Network(replicas)
        cls.addClassCleanup(cls.network.close)
        root = make_root(cls.c, cls.here, replicas)
        cls.pods = []
        for i in range(replicas):
            cls.pods.append(Pod(cls.c, cls.here, root, cls.network, i, cluster.load(made.stdout)))
            cls.addClassCleanup(cls.pods[-1].stop)
        for pod in cls.pods:  # all at once, as podManagementPolicy has it
            pod.wait_until_ready()

    def test_1_every_pod_is_there_and_becomes_ready(self):
        end = time.monotonic() + 60
        while not all(pod.probe("readiness") for pod in self.pods) and time.monotonic() < end:
            time.sleep(0.1)
        for pod in self.pods:
            self.assertTrue(pod.probe("readiness"), pod.text())
            self.assertEqual(pod.ready["peer"], f"0.0.0.0:{self.c.config_port('peer')}")
        for rank, pod in enumerate(self.pods):
            while (made := f"rank {rank} of {len(self.pods)} of the group") not in pod.text() and time.monotonic() < end:
                time.sleep(0.1)
            self.assertIn(made, pod.text())

    def shake(self, to, certificate):
        """A TLS handshake of a stranger in pod 0's network with another pod's link; what is read after it."""
        context = ssl.create_default_context(cafile=self.here / "ca/ca.crt")
        if certificate:
            context.load_cert_chain(self.here / "ca/tls.crt", self.here / "ca/tls.key")
        name = f"{self.pods[to].name}.{self.c.headless['metadata']['name']}.{self.c.namespace}.svc"

        def work():
            with socket.create_connection((Network.address(to), self.c.config_port("peer")), timeout=10) as plain:
                with context.wrap_socket(plain, server_hostname=name) as link:
                    link.settimeout(1)
                    try:
                        return link.recv(1)
                    except TimeoutError:
                        return None  # the other side waits for our first message

        return self.network.within(0, work)

    def test_2_the_links_have_the_names_of_the_pods_and_let_nobody_in_without_a_certificate(self):
        for i in range(1, len(self.pods)):
            self.assertNotEqual(self.shake(i, True), b"")  # it is not hung up on
            with self.assertRaises((ssl.SSLError, ConnectionError)):
                if self.shake(i, False) == b"":
                    raise ConnectionError("closed")

    def test_3_all_end_cleanly(self):
        for pod in self.pods:
            self.assertEqual(pod.exec(*self.c.container["lifecycle"]["preStop"]["exec"]["command"][:2], "--wait=0s").returncode, 0)
            os.kill(int(pod.pid), signal.SIGTERM)
        for pod in self.pods:
            self.assertEqual(pod.process.wait(60), 0, pod.text())


if __name__ == "__main__":
    if not cluster.have("kubectl"):
        print("skipped: kubectl is not here, which builds the overlays")
        sys.exit(77)
    if not may():
        print("skipped: pods need root, unshare, nsenter, setpriv, ip and hostname")
        sys.exit(77)
    unittest.main()
