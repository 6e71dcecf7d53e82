#!/usr/bin/env python3
"""What the release build hands to users: binaries.py hardening PROGRAM… | slim PROGRAM…"""
import re
import subprocess
import sys


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def hardening(program):
    """Position-independent, resolved at start and read-only after, with canaries and checked libc calls."""
    header, dynamic, segments = readelf("-h", program), readelf("-d", program), readelf("-l", program)
    symbols = readelf("--dyn-syms", program)
    # Debian's C start-up files carry no CET note, so the linker drops ours; the code itself shows it.
    main = subprocess.run(["objdump", "-d", "--disassemble=main", program], capture_output=True, text=True).stdout
    checks = {
        "position-independent (PIE)": "PIE" in dynamic and "DYN" in header,
        "full RELRO": "GNU_RELRO" in segments and re.search(r"\bNOW\b", dynamic),
        "stack that cannot be run": re.search(r"GNU_STACK.*\bRW\b ", segments),
        "stack protector": "__stack_chk_fail" in symbols,
        "_FORTIFY_SOURCE": re.search(r"__\w+_chk\b(?<!__stack_chk)", symbols),
        "_GLIBCXX_ASSERTIONS": "__glibcxx_assert_fail" in symbols,
        "CET": "X86-64" not in header or "endbr64" in main,
    }
    return [f"{program}: no {name}" for name, holds in checks.items() if not holds]


def slim(program):
    """The client's side: neither the engine's libraries nor the server's."""
    needed = re.findall(r"NEEDED.*\[(.*)\]", readelf("-d", program))
    heavy = [name for name in needed if re.match(r"lib(openblas|dnnl|gomp|hwy|cu|boost|spdlog|prometheus)", name)]
    symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True).stdout
    ours = re.findall(r" [TtVvWw] (gradwire::(?:engine|server)::\S+)", symbols)
    return [f"{program}: links {name}" for name in heavy + ours[:3]]


broken = [line for program in sys.argv[2:] for line in {"hardening": hardening, "slim": slim}[sys.argv[1]](program)]
print("\n".join(broken))
sys.exit(bool(broken))
