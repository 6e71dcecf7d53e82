#!/usr/bin/env python3
"""The generated files of schema/ are what opgen prints today: generated.py OPGEN ROWS.cpp…"""
import difflib
import pathlib
import subprocess
import sys
import tempfile

FILES = ("ops.h", "ops.md", "operators.json")

schema = pathlib.Path(__file__).resolve().parents[2] / "schema"
stale = False
with tempfile.TemporaryDirectory() as fresh:
    subprocess.run([sys.argv[1], fresh, *sys.argv[2:]], check=True)
    for name in FILES:
        want = pathlib.Path(fresh, name).read_text(encoding="utf-8").splitlines()
        have = (schema / name).read_text(encoding="utf-8").splitlines()
        difference = list(difflib.unified_diff(have, want, f"schema/{name}", "what opgen prints", lineterm="", n=1))
        if difference:
            stale = True
            print("\n".join(difference[:40]))
if stale:
    sys.exit("Renew them: cmake --build build/release --target generate")
