#!/usr/bin/env python3
"""What the manifests ask of gradwired, asked of a real process: check-config, routes, drain, and dead children."""
import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from cluster import GRADWIRED, SOURCE, gradwired


def wait_for(what, seconds=30):
    """Until it is true; what it was."""
    end = time.monotonic() + seconds
    while not (value := what()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


class Process:
    def __init__(self, *arguments, **options):
        self.process = subprocess.Popen([GRADWIRED, "--rpc", "127.0.0.1:0", "--http", "127.0.0.1:0", *arguments],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        self.ready = json.loads(self.process.stdout.readline())

    def ask(self, method, path, body=None, listener="http"):
        with contextlib.closing(http.client.HTTPConnection(self.ready[listener], timeout=30)) as link:
            link.request(method, path, None if body is None else json.dumps(body), {} if body is None else {"Content-Type": "application/json"})
            answer = link.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None

    def end(self):
        """Ends it; the exit status and the log."""
        self.process.send_signal(signal.SIGTERM)
        log = self.process.communicate(timeout=60)[1]
        return self.process.returncode, log


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.socket = str(self.folder / "s")

    def start(self, *arguments, **options):
        p = Process(*arguments, **options)
        self.addCleanup(lambda: p.process.poll() is None and (p.process.kill(), p.process.communicate()))
        return p

    def test_check_config_of_good_and_bad_files(self):
        for text, code, words in (
            ('http = "127.0.0.1:0"\n', 0, "would start"),
            ("lane = 2\n", 78, "lane"),
            ("lanes = 0\n", 78, "lanes"),
            ("lanes = \n[\n", 78, ""),
            ('http = "0.0.0.0:80"\n', 78, "--token-file"),
        ):
            with self.subTest(text=text):
                file = self.folder / "gradwired.toml"
                file.write_text(text)
                done = gradwired("check-config", str(file))
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stdout + done.stderr)
                self.assertEqual(bool(done.stderr), code != 0)
                self.assertEqual(bool(done.stdout), code == 0)
        done = gradwired("check-config", str(self.folder / "gone.toml"))
        self.assertEqual(done.returncode, 78)
        self.assertIn("gone.toml", done.stderr)

    def test_a_variable_names_the_config_file(self):
        file = self.folder / "gradwired.toml"
        file.write_text('http = "127.0.0.1:4711"\n')
        self.assertIn("4711", gradwired("check-config", env={"GRADWIRE_CONFIG": str(file)}).stdout)
        self.assertNotEqual(gradwired("check-config", env={"GRADWIRE_CONFIG": str(file) + "x"}).returncode, 0)

    def test_routes_are_those_that_answer(self):
        p = self.start()
        lines = [line.split() for line in gradwired("routes").stdout.splitlines()]
        self.assertIn(["GET", "/livez", "probe"], lines)
        self.assertIn(["POST", "/v1/sessions"], lines)
        plain = [line for line in lines if line[0] == "GET" and "{" not in line[1]]
        self.assertGreater(len(plain), 5)
        for method, path, *probe in plain:
            with self.subTest(path=path):
                with contextlib.closing(http.client.HTTPConnection(p.ready["http"], timeout=30)) as link:
                    link.request(method, path)
                    self.assertEqual(link.getresponse().status, 200)
                with contextlib.closing(http.client.HTTPConnection(p.ready["probe"], timeout=30)) as link:
                    link.request(method, path)
                    self.assertEqual(link.getresponse().status, 200 if probe else 404)

    def test_a_drained_server_takes_no_new_sessions_and_goes_on_with_the_old(self):
        p = self.start("--unix", self.socket)
        status, session = p.ask("POST", "/v1/sessions", {})
        self.assertEqual(status, 201)
        self.assertEqual(p.ask("GET", "/readyz", listener="probe")[0], 200)
        begin = time.monotonic()
        done = gradwired("drain", "--wait=300ms", "--unix", self.socket)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertGreaterEqual(time.monotonic() - begin, 0.3)
        status, answer = wait_for(lambda: (a := p.ask("GET", "/readyz", listener="probe"))[0] != 200 and a)
        self.assertEqual((status, answer["error"]["code"]), (503, "draining"))
        status, answer = p.ask("POST", "/v1/sessions", {})
        self.assertEqual((status, answer["error"]["code"]), (503, "draining"))
        program = {"inputs": {"x": {"data": [1.0, 2.0]}}, "ops": [{"op": "mul", "in": ["x", "x"], "out": "y"}], "fetch": ["y"]}
        status, answer = p.ask("POST", f"/v1/sessions/{session['id']}/run", program)
        self.assertEqual(status, 200)
        self.assertEqual(p.ask("GET", "/livez", listener="probe")[0], 200)
        # Asked again it is no other: the second preStop of a pod, or a person's.
        self.assertEqual(gradwired("drain", "--wait=0s", "--unix", self.socket).returncode, 0)
        code, log = p.end()
        self.assertEqual(code, 0)
        self.assertEqual(log.count("draining: no new sessions"), 1)

    def test_the_socket_may_stand_in_the_config_that_both_read(self):
        file = self.folder / "gradwired.toml"
        file.write_text(f'unix = "{self.socket}"\n')
        env = {"GRADWIRE_CONFIG": str(file)}
        p = self.start(env={**os.environ, **env})
        self.assertEqual(p.ready["unix"], self.socket)
        self.assertEqual(gradwired("drain", "--wait=0s", env=env).returncode, 0)
        self.assertTrue(wait_for(lambda: p.ask("GET", "/readyz")[0] == 503))

    def test_drain_says_why_it_cannot(self):
        p = self.start("--unix", self.socket)
        p.end()
        for arguments, words in ((("--unix", self.socket), self.socket), ((), "--unix PATH"), (("--unix", "x" * 200), "--unix")):
            with self.subTest(arguments=arguments):
                done = gradwired("drain", "--wait=5m", *arguments)  # it does not wait for what was not asked
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)
        for wait in ("5", "-1s", "61m", "soon"):
            self.assertEqual(gradwired("drain", "--wait=" + wait, "--unix", self.socket).returncode, 64, wait)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be another user")
    def test_another_user_cannot_drain(self):
        os.chmod(self.folder, 0o755)
        p = self.start("--unix", self.socket)
        # The mode of the socket is the first lock; without it the kernel still refuses the signal.
        for mode in (0o600, 0o666):
            os.chmod(self.socket, mode)
            program = self.folder / "gradwired"
            if not program.exists():
                os.link(GRADWIRED, program) if os.stat(GRADWIRED).st_dev == os.stat(self.folder).st_dev else \
                    program.write_bytes(pathlib.Path(GRADWIRED).read_bytes())
                program.chmod(0o755)
            done = subprocess.run([program, "drain", "--wait=0s", "--unix", self.socket], capture_output=True, text=True,
                                  user=10001, group=10001, extra_groups=[])
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("ermi", done.stderr)  # "Permission denied", "Operation not permitted"
        self.assertEqual(p.ask("GET", "/readyz")[0], 200)

    def test_children_that_nobody_waits_for_are_buried(self):
        """As process 1 of a pod it inherits orphans: here, a child that was there before it became gradwired."""
        command = f'sleep 0.1 & echo $! >{self.folder}/pid; exec "$0" "$@"'
        p = subprocess.Popen(["bash", "-c", command, GRADWIRED, "--rpc", "off", "--http", "127.0.0.1:0"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(lambda: (p.kill(), p.communicate()))
        p.stdout.readline()
        orphan = int((self.folder / "pid").read_text())
        status = pathlib.Path(f"/proc/{orphan}/stat")
        self.assertIn(f") Z {p.pid} ", wait_for(lambda: (t := status.read_text()) and ") Z " in t and t) or "")
        self.assertTrue(wait_for(lambda: not status.exists()))
        self.assertIsNone(p.poll())


if __name__ == "__main__":
    unittest.main()
