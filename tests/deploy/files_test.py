#!/usr/bin/env python3
"""The files of deploy/ themselves: strict YAML, schemas, the monitoring overlay, images, certificates, scripts."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import cluster
from cluster import SOURCE, have

DEPLOY = SOURCE / "deploy"
VERSIONS = ("1.27", "1.34")  # of Kubernetes: the oldest that deploy/README.md names, and one in use
OF_OPERATOR = {"ServiceMonitor", "PrometheusRule"}


def run(*words, **options):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, **options)


def validator():
    """What checks a file against the schema of a version of Kubernetes, or None."""
    ours = SOURCE / "build/deps/manifests/bin/kubernetes-validate"  # where deploy/install-deps.sh puts it
    command = str(ours) if ours.exists() else shutil.which("kubernetes-validate")
    return command and (lambda file, version: run(command, "--strict", "-k", version, file))


class Yaml(unittest.TestCase):
    def test_every_file_is_strict_yaml(self):
        files = sorted(DEPLOY.rglob("*.yaml"))
        self.assertGreater(len(files), 12)
        for file in files:
            with self.subTest(file=file.name):
                self.assertTrue(cluster.load(file.read_text(encoding="utf-8")))

    def test_a_key_that_stands_twice_is_seen(self):
        with self.assertRaises(cluster.yaml.YAMLError):
            cluster.load("a: 1\nb: 2\na: 3\n")

    def test_every_file_of_a_folder_is_used(self):
        for folder in (DEPLOY / "base", *(DEPLOY / "overlays").iterdir()):
            text = (folder / "kustomization.yaml").read_text(encoding="utf-8")
            for file in folder.iterdir():
                if file.name not in ("kustomization.yaml", "secret.example.yaml"):
                    self.assertIn(file.name, text, f"{folder.name}/kustomization.yaml")

    def test_the_example_of_a_secret_is_in_no_overlay_and_holds_none(self):
        (example,) = cluster.load((DEPLOY / "base/secret.example.yaml").read_text(encoding="utf-8"))
        self.assertEqual(set(example["stringData"]), {"ca.crt", "tls.crt", "tls.key"})
        self.assertNotIn("BEGIN", str(example))

    @unittest.skipUnless(have("yamllint"), "yamllint is not here")
    def test_style(self):
        rules = "{extends: default, rules: {line-length: {max: 120}, document-start: disable, truthy: disable, " \
                "octal-values: disable, indentation: {indent-sequences: true}}}"
        done = run("yamllint", "-s", "-d", rules, DEPLOY)
        self.assertEqual(done.returncode, 0, done.stdout)


@unittest.skipUnless(have("kubectl"), "kubectl is not here, which builds the overlays")
class Schemas(unittest.TestCase):
    def check(self, text, version=VERSIONS[-1]):
        check = validator()
        if not check:
            self.skipTest("kubernetes-validate of PyPI is not here (deploy/install-deps.sh --with-manifests)")
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            return check(file.name, version)

    def test_all_overlays_keep_to_kubernetes_schema(self):
        for overlay in (*cluster.OVERLAYS, "monitoring"):
            documents = [d for d in cluster.load(cluster.kustomize(overlay)) if d["kind"] not in OF_OPERATOR]
            for version in VERSIONS:
                with self.subTest(overlay=overlay, version=version):
                    done = self.check(cluster.yaml.safe_dump_all(documents), version)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    self.assertEqual((done.stdout + done.stderr).count(" passed "), len(documents))

    def test_a_misspelt_field_a_wrong_type_and_a_missing_field_are_seen(self):
        text = cluster.kustomize("cpu")
        for old, new in (("fsGroupChangePolicy:", "fsGroupChangePolicies:"), ("minReadySeconds: 10", 'minReadySeconds: "10"'),
                         ("serviceName: gradwire-peers", "replica: 1"), ("whenUnsatisfiable:", "whenUnsatisfied:")):
            with self.subTest(change=new):
                self.assertIn(old, text)
                self.assertNotEqual(self.check(text.replace(old, new)).returncode, 0)


@unittest.skipUnless(have("kubectl"), "kubectl is not here, which builds the overlays")
class Monitoring(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cluster.Server()
        cls.c = cluster.Cluster("monitoring", cluster.load(cluster.kustomize("monitoring")), cls.server)
        cls.cpu = cluster.Cluster("cpu", cluster.load(cluster.kustomize("cpu")), cls.server)

    def test_it_stands_beside_an_overlay(self):
        for d in self.c.documents:
            self.assertEqual(d["metadata"]["namespace"], self.cpu.namespace)
            self.assertFalse(self.cpu.all(d["kind"], d["metadata"]["name"]), d["metadata"]["name"])

    def test_prometheus_finds_the_metrics(self):
        service, monitor = self.c.one("Service"), self.c.one("ServiceMonitor")
        (endpoint,) = monitor["spec"]["endpoints"]
        (port,) = service["spec"]["ports"]
        self.assertEqual(monitor["spec"]["selector"]["matchLabels"].items() - service["metadata"]["labels"].items(), set())
        self.assertEqual(service["spec"]["selector"].items() - self.cpu.labels.items(), set())
        self.assertEqual(endpoint["port"], port["name"])
        self.assertEqual((port["port"], port["targetPort"]), (self.cpu.config_port("probe"), "probe"))
        self.assertIn(("GET", endpoint["path"]), self.server.probe_routes)

    def test_only_prometheus_is_let_in(self):
        (rule,) = self.c.one("NetworkPolicy")["spec"]["ingress"]
        self.assertEqual([p["port"] for p in rule["ports"]], [self.cpu.config_port("probe")])
        for end in rule["from"]:
            self.assertTrue(end["podSelector"]["matchLabels"] and end["namespaceSelector"]["matchLabels"])

    def test_the_alerts_speak_of_metrics_that_there_are(self):
        source = (SOURCE / "server/metrics.cpp").read_text(encoding="utf-8")
        rows = re.findall(r'Kind::(\w+), "(gradwire_\w+)"', source)
        names = {name + "_bucket" * (kind == "histogram") for kind, name in rows}
        rules = [r for g in self.c.one("PrometheusRule")["spec"]["groups"] for r in g["rules"]]
        self.assertGreaterEqual(len(rules), 5)
        for rule in rules:
            with self.subTest(alert=rule["alert"]):
                self.assertIn(rule["labels"]["severity"], ("warning", "critical"))
                self.assertRegex(rule["for"], r"^\d+m$")
                self.assertTrue(rule["annotations"]["summary"])
                for name in re.findall(r"\bgradwire_\w+", rule["expr"]):
                    self.assertIn(name, names)

    @unittest.skipUnless(have("promtool"), "promtool is not here")
    def test_promtool_reads_the_alerts(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            cluster.yaml.safe_dump(self.c.one("PrometheusRule")["spec"], file)
            file.flush()
            done = run("promtool", "check", "rules", file.name)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


def image_faults(text, user=10001):
    """What a Dockerfile lacks: reliability.md's list."""
    stages = re.split(r"^FROM ", text, flags=re.M)[1:]
    last = stages[-1]
    lines = [line.split(None, 1) for line in last.splitlines()[1:] if line and not line.startswith(("#", " "))]
    found = {}
    for word, rest in lines:
        found.setdefault(word, []).append(rest)
    if len(stages) < 2 or not last.startswith("scratch"):
        yield "the last stage is not empty"
    if found.get("USER") != [f"{user}:{user}"]:
        yield f"USER is {found.get('USER')}"
    if found.get("STOPSIGNAL") != ["SIGTERM"]:
        yield f"STOPSIGNAL is {found.get('STOPSIGNAL')}"
    if found.get("ENTRYPOINT") != ['["/usr/bin/gradwired"]']:
        yield "ENTRYPOINT is not the binary in exec form"
    if found.get("COPY") != ["--from=build /image /"] or set(found) & {"ADD", "RUN"}:
        yield "the last stage holds more than /image"
    if re.search(r"^ARG .*(:latest|=[^:]*)$", text[: text.index("FROM")], re.M) or re.search(r"^FROM (?!\$|scratch)", text, re.M):
        yield "a base image is not an argument with a fixed name"


class Images(unittest.TestCase):
    def test_dockerfiles(self):
        for name in ("Dockerfile", "Dockerfile.cuda"):
            text = (DEPLOY / name).read_text(encoding="utf-8")
            with self.subTest(file=name):
                self.assertEqual(list(image_faults(text)), [])
                self.assertIn("deploy/image-root.sh build/", text)
                for script in re.findall(r"deploy/[\w-]+\.sh", text):
                    self.assertTrue((SOURCE / script).is_file(), script)

    def test_every_fault_of_a_dockerfile_is_seen(self):
        text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
        for old, new in (("USER 10001:10001", "USER root"), ("STOPSIGNAL SIGTERM\n", ""), ("FROM scratch", "FROM debian:bookworm"),
                         ('["/usr/bin/gradwired"]', "gradwired"), ("COPY --from=build /image /", "COPY . /"),
                         ("debian:bookworm-slim\nFROM", "debian:latest\nFROM"), ("USER", "RUN true\nUSER")):
            with self.subTest(change=new):
                self.assertIn(old, text)
                self.assertNotEqual(list(image_faults(text.replace(old, new))), [])

    def test_the_build_context_leaves_out_what_was_built(self):
        ignored = (SOURCE / ".dockerignore").read_text(encoding="utf-8").split()
        self.assertIn("build", ignored)


class Certificates(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def make(self, *arguments):
        return run(DEPLOY / "peer-certs.sh", pathlib.Path(self.folder.name, "ca"), *arguments)

    def test_they_name_every_pod_and_come_from_one_private_ca(self):
        done = self.make("3")
        self.assertEqual(done.returncode, 0, done.stderr)
        (secret,) = cluster.load(done.stdout)
        (example,) = cluster.load((DEPLOY / "base/secret.example.yaml").read_text(encoding="utf-8"))
        self.assertEqual({k: secret[k] for k in ("apiVersion", "kind", "metadata", "type")},
                         {k: example[k] for k in ("apiVersion", "kind", "metadata", "type")})
        self.assertEqual(set(secret["data"]), set(example["stringData"]))
        here = pathlib.Path(self.folder.name, "ca")
        for i in range(3):
            for name in (f"gradwire-{i}.gradwire-peers.gradwire.svc", f"gradwire-{i}.gradwire-peers.gradwire.svc.cluster.local"):
                for purpose in ("sslserver", "sslclient"):
                    done = run("openssl", "verify", "-CAfile", here / "ca.crt", "-purpose", purpose, "-verify_hostname", name,
                               "-x509_strict", here / "tls.crt")
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotEqual(run("openssl", "verify", "-CAfile", here / "ca.crt", "-verify_hostname",
                                "gradwire-3.gradwire-peers.gradwire.svc", here / "tls.crt").returncode, 0)
        self.assertEqual(run("openssl", "x509", "-in", here / "tls.crt", "-noout", "-checkend", str(300 * 86400)).returncode, 0)
        for file in here.iterdir():
            self.assertEqual(file.stat().st_mode & 0o077, 0, file.name)

    def test_a_second_run_renews_under_the_same_ca(self):
        self.assertEqual(self.make().returncode, 0)
        here = pathlib.Path(self.folder.name, "ca")
        ca, certificate = (here / "ca.crt").read_bytes(), (here / "tls.crt").read_bytes()
        self.assertEqual(self.make("12", "elsewhere").returncode, 0)
        self.assertEqual((here / "ca.crt").read_bytes(), ca)
        self.assertNotEqual((here / "tls.crt").read_bytes(), certificate)
        done = run("openssl", "verify", "-CAfile", here / "ca.crt", "-verify_hostname",
                   "gradwire-11.gradwire-peers.elsewhere.svc", here / "tls.crt")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_bad_arguments_make_nothing(self):
        for arguments in (("0",), ("many",), ("3", "A_B"), ("3", "a", "b")):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.make(*arguments).returncode, 2)
        self.assertFalse(pathlib.Path(self.folder.name, "ca").exists())


class Scripts(unittest.TestCase):
    @unittest.skipUnless(have("shellcheck"), "shellcheck is not here")
    def test_shellcheck(self):
        scripts = [DEPLOY / "image-root.sh", DEPLOY / "peer-certs.sh"]
        done = run("shellcheck", "-S", "style", *scripts)
        self.assertEqual(done.returncode, 0, done.stdout)


class Readme(unittest.TestCase):
    def test_it_says_how_the_placeholder_is_replaced(self):
        text = (DEPLOY / "README.md").read_text(encoding="utf-8")
        self.assertIn("0" * 64, (DEPLOY / "overlays/cpu/kustomization.yaml").read_text(encoding="utf-8"))
        for word in ("digest:", "sha256", "kubectl apply -k deploy/overlays/", "deploy/peer-certs.sh", "group-world-size", "drain",
                     f"Kubernetes {VERSIONS[0]} or later"):
            self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main()
