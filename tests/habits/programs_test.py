#!/usr/bin/env python3
"""The checks of programs see what they are there for: programs_test.py CXX compiles and imitates bad ones."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
CXX = sys.argv.pop(1) if len(sys.argv) > 1 else "c++"

# Listens as gradwired does, and answers every request with one text.
FAKE_SERVER = """#!{python}
import http.server, json, os, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = {answer!r}.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
signal.signal(signal.SIGTERM, lambda *arguments: os._exit({code}))
print(json.dumps({{"http": "127.0.0.1:%d" % server.server_port}}), flush=True)
server.serve_forever()
"""


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_check(self, name, *arguments):
        return subprocess.run([sys.executable, "-B", HERE / name, *arguments], capture_output=True, text=True)

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def program(self, source, *flags):
        (self.folder / "p.cpp").write_text(source, encoding="utf-8")
        subprocess.run([CXX, self.folder / "p.cpp", "-o", self.folder / "p", *flags], check=True)
        return self.folder / "p"

    SOURCE = """#include <cstring>
        #include <vector>
        int main(int n, char** v) { std::vector<int> x(n); char b[16]; strcpy(b, v[0]); return x[n + 3] + b[n]; }"""

    def test_a_program_without_hardening_is_seen_in_every_respect(self):
        soft = self.program(self.SOURCE, "-O2", "-no-pie", "-fcf-protection=none", "-fno-stack-protector",
                            "-U_FORTIFY_SOURCE", "-Wl,-z,norelro,-z,execstack")
        found = self.run_check("binaries.py", "hardening", soft)
        self.assertEqual(found.returncode, 1)
        for word in ["PIE", "RELRO", "stack that cannot be run", "stack protector", "_FORTIFY_SOURCE",
                     "_GLIBCXX_ASSERTIONS", "CET"]:
            self.assertIn(word, found.stdout)

    def test_a_client_that_links_the_engine_or_its_libraries_is_seen(self):
        fat = self.program("namespace gradwire::engine { int value() { return 1; } } int main() { return 0; }",
                           "-Wl,--no-as-needed", "-lgomp")
        found = self.run_check("binaries.py", "slim", fat)
        self.assertEqual(found.returncode, 1)
        self.assertIn("libgomp", found.stdout)
        self.assertIn("gradwire::engine::value", found.stdout)

    def test_generated_files_that_differ_are_seen(self):
        for changed in ["ops.h", "ops.md", "operators.json"]:
            opgen = self.script("opgen", f'#!/bin/sh\ncp "{HERE.parents[1]}"/schema/ops.* "$1"\n'
                                f'cp "{HERE.parents[1]}/schema/operators.json" "$1"\necho other >> "$1/{changed}"\n')
            found = self.run_check("generated.py", opgen, "rows.cpp")
            self.assertEqual(found.returncode, 1)
            self.assertIn(f"--- schema/{changed}", found.stdout)
            self.assertIn("+other", found.stdout)

    def test_an_answer_that_is_not_the_readmes_is_seen(self):
        server = self.script("server", FAKE_SERVER.format(python=sys.executable, answer='{"id": "1"}', code=0))
        found = self.run_check("readme_http.py", server)
        self.assertEqual(found.returncode, 1)
        self.assertIn("the README says", found.stderr)


if __name__ == "__main__":
    unittest.main()
