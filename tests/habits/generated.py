#!/usr/bin/env python3
"""The generated files of schema/ are what opgen prints today: generated.py OPGEN [ROOT]"""
import difflib
import pathlib
import subprocess
import sys
import tempfile

FILES = ("ops.h", "ops.md", "operators.json")

opgen = sys.argv[1]
root = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).resolve().parents[2])
stale = False
with tempfile.TemporaryDirectory() as fresh:
    subprocess.run([opgen, root, fresh], check=True)
    for name in FILES:
        want = pathlib.Path(fresh, name).read_text(encoding="utf-8").splitlines()
        have = (root / "schema" / name).read_text(encoding="utf-8").splitlines()
        difference = list(difflib.unified_diff(have, want, f"schema/{name}", "what opgen prints", lineterm="", n=1))
        if difference:
            stale = True
            print("\n".join(difference[:40]))
if stale:
    sys.exit("Renew them: cmake --build build/release --target generate")
