#!/usr/bin/env python3
"""The README's curl call, run against a live server: readme_http.py GRADWIRED

The block of README.md that calls curl is run as it stands, with the server's address in place of the default one; what it
prints must be the block that follows it, as JSON.
"""
import json
import pathlib
import re
import subprocess
import sys

import habits

readme = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
blocks = habits.blocks(readme)
calls = [(code, blocks[i + 1][1]) for i, (language, code) in enumerate(blocks) if language == "sh" and "curl" in code]
if not calls:
    sys.exit("README.md shows no curl call")

server = subprocess.Popen([sys.argv[1], "--rpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--probe", "127.0.0.1:0"],
                          stdout=subprocess.PIPE, text=True)
try:
    address = json.loads(server.stdout.readline())["http"]
    for code, want in calls:
        # What starts the server in the README is already done.
        code = re.sub(r"^.*gradwired.*\n", "", code, flags=re.M).replace("127.0.0.1:7421", address)
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], capture_output=True, text=True, timeout=60)
        if done.returncode:
            sys.exit(f"it failed with {done.returncode}:\n{done.stdout}{done.stderr}")
        if json.loads(done.stdout) != json.loads(want):
            sys.exit(f"it printed\n{done.stdout}and the README says\n{want}")
finally:
    server.terminate()
    if server.wait(60) != 0:
        sys.exit(f"the server ended with {server.returncode}")
