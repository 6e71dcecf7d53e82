#!/usr/bin/env python3
"""The project's habits as checks: habits.py RULE [ROOT] prints what breaks the rule and exits 1, or exits 0.

A rule is a function below that is given the root of a source tree and yields one line for each break. That each of them
sees a break is shown by habits_test.py.
"""
import fnmatch
import os
import pathlib
import re
import subprocess
import sys

SOURCES = (".h", ".cpp", ".cu")
TEXT = SOURCES + (".md", ".py", ".sh", ".txt", ".cmake", ".capnp", ".yaml", ".json", ".supp")
GENERATED = ("schema/ops.h", "schema/ops.md", "schema/operators.json")
FOLDERS = ("schema", "engine", "server", "client", "tests", "deploy")


def files(root, *patterns):
    """Paths relative to the root, with /, sorted; of folders that hold what is built or fetched, none."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in (".git", "build", "__pycache__", ".cache")]
        for name in names:
            path = pathlib.Path(folder, name).relative_to(root).as_posix()
            if any(fnmatch.fnmatchcase(path, p) for p in patterns):
                found.append(path)
    return sorted(found)


def sources(root):
    return [f for f in files(root, "*") if f.endswith(SOURCES)]


def lines(root, path):
    return pathlib.Path(root, path).read_text(encoding="utf-8").split("\n")


def includes(root, path):
    """(line number, the name, True if it stands in quotes) of every #include."""
    for number, line in enumerate(lines(root, path), 1):
        found = re.match(r'\s*#\s*include\s*([<"])([^">]+)[">]', line)
        if found:
            yield number, found[2], found[1] == '"'


def reached(root, path, seen=()):
    """What a program that includes this header includes of ours: the SDK's public headers."""
    seen = set(seen) | {path}
    for _, name, quoted in includes(root, path):
        if quoted and name not in seen and pathlib.Path(root, name).is_file():
            seen |= reached(root, name, seen)
    return seen


# Who may include our own headers: the first row that fits the includer holds; the patterns say what it may include.
MAY = [
    ("schema/wire_*", ["schema/*"]),
    ("schema/*", ["schema/*"]),
    ("engine/functors/*", []),  # included inside each back end's own region
    ("engine/cpu/*", ["schema/*", "engine/cpu/*", "engine/functors/*", "engine/*.h"]),
    ("engine/cuda/*", ["schema/*", "engine/cuda/*", "engine/functors/*", "engine/*.h"]),
    ("engine/opgen.cpp", ["schema/*"]),
    ("engine/*", ["schema/*", "engine/*"]),
    ("server/rpc/*", ["schema/*", "engine/*", "server/*.h", "server/rpc/*"]),
    ("server/http/*", ["schema/*", "engine/*", "server/*.h", "server/http/*"]),
    ("server/cluster/*", ["schema/*", "engine/*", "server/*.h", "server/cluster/*", "server/rpc/listener.h",
                          "server/rpc/loop_queue.h", "server/rpc/quiet.h"]),
    ("server/main.cpp", ["schema/*", "engine/*", "server/*"]),
    ("server/*", ["schema/*", "engine/*", "server/*.h"]),
    ("client/*", ["schema/*", "client/*"]),
    ("tests/*", ["*"]),
]
# Back ends see views and launches, not tensors and graphs.
FRONT_END = ["engine/tensor.h", "engine/storage.h", "engine/autograd.h", "engine/apply.h", "engine/registry.h"]
# A folder's pattern with * would reach into its subfolders; these say where it must not.
SUBFOLDERS = {"server/*.h": 1, "engine/*.h": 1}

# Where a library may be seen.
LIBRARIES = [
    (r"(kj|capnp)/|.*\.capnp\.h$", ["server/rpc/*", "server/cluster/*", "client/*.cpp", "client/*_impl.h", "schema/wire_*", "tests/*"]),
    (r"boost/", ["server/http/*.cpp", "server/executor.cpp", "tests/*"]),
    (r"cuda|cublas|cudnn|cusolver|cub/|nccl|thrust/", ["engine/cuda/*", "server/cluster/nccl/*"]),
    (r"hwy/", ["engine/cpu/*", "tests/engine/*", "tests/bench/*"]),
    (r"cblas|lapacke|dnnl|oneapi/", ["engine/cpu/*", "tests/engine/*", "tests/bench/*"]),
    (r"gloo/", ["server/cluster/plane/*", "tests/bench/*"]),
    (r"omp\.h", ["engine/cpu/*", "server/executor.cpp", "tests/*"]),
]


def fits(path, pattern):
    return fnmatch.fnmatchcase(path, pattern) and path.count("/") <= SUBFOLDERS.get(pattern, 9)


def rule_includes(root):
    """Includes go one way, from the root, the own header first; each library stays in its folders."""
    public = reached(root, "client/gradwire.h")
    for path in sources(root):
        own = path.rsplit(".", 1)[0] + ".h"
        # Highway reads such a file once a target, and wants its own header before all others.
        first = "foreach_target.h" not in "\n".join(lines(root, path))
        allowed = next((may for pattern, may in MAY if fnmatch.fnmatchcase(path, pattern)), None)
        for number, name, quoted in includes(root, path):
            where = f"{path}:{number}: includes {name}"
            for library, places in LIBRARIES:
                if re.match(library, name) and not any(fnmatch.fnmatchcase(path, p) for p in places):
                    yield f"{where}, which belongs to {', '.join(places)}"
            quoted = quoted and not re.match(r"hwy/|.*\.capnp\.h$", name)  # installed or generated
            if quoted:
                if not pathlib.Path(root, name).is_file():
                    yield f"{where}, which is no file from the root"
                elif allowed is None:
                    yield f"{path}: no row of MAY speaks of it"
                elif not any(fits(name, p) for p in allowed):
                    yield f"{where}; it may include {', '.join(allowed) or 'nothing'}"
                elif re.match(r"engine/(cpu|cuda)/", path) and name in FRONT_END:
                    yield f"{where}, which is the front end's"
            elif path.startswith("engine/functors/"):
                yield f"{where}; functors include nothing"
            if path in public and not name.startswith(("schema/", "client/")) and not re.fullmatch(r"[a-z_]+", name):
                yield f"{where}; the SDK's headers include std and schema/ only"
            if first and path.endswith((".cpp", ".cu")) and pathlib.Path(root, own).is_file() and name != own:
                yield f"{path}:{number}: {own} should come first"
            first = False


def rule_headers(root):
    """Every header is read once; the functors, and what Highway compiles for each target, many times."""
    for path in sources(root):
        if path.endswith(".h"):
            text = lines(root, path)
            once = "#pragma once" in text
            many = path.startswith("engine/functors/") or any("Included inside the" in line for line in text)
            if once == many:
                yield f"{path}: {'has' if once else 'lacks'} #pragma once"


def rule_length(root):
    """No source is longer than a person wants to read."""
    for path in files(root, "*"):
        if path.endswith(SOURCES + (".py", ".sh", ".cmake", ".capnp")) and path not in GENERATED:
            count = len(lines(root, path)) - 1
            if count > 800:
                yield f"{path}: {count} lines; 800 are the limit"


# Words that mean unfinished work, or that speak of how the text came to be and not of what it says.
STRAY = re.compile(
    r"\bTODO\b|\bFIXME\b|\bXXX\b|\bHACK\b|not yet implemented|not implemented yet|\bstub\b|lorem ipsum|<<<<<<<|>>>>>>>|"
    r"\.\./shared|/work/|\bissue #?\d+\b|\bthe brief\b|\bsub-?agent", re.IGNORECASE)


def rule_words(root):
    """Nothing unfinished, and nothing that only its writer understands."""
    for path in files(root, "*"):
        if path.endswith(TEXT) and not path.startswith(("tests/habits/", "tests/conformance/")):
            for number, line in enumerate(lines(root, path), 1):
                found = STRAY.search(line)
                if found:
                    yield f"{path}:{number}: {found[0]}"


BANNED = re.compile(r"(?<![\w.>:])(?:std::|::)?(abort|system|alloca|dlopen|gets|strcpy|sprintf|assert)\s*\(")


def rule_calls(root):
    """What ends the process, runs a shell or trusts a length has no place in what users run."""
    for path in sources(root):
        if not path.startswith("tests/"):
            for number, line in enumerate(lines(root, path), 1):
                found = BANNED.search(re.sub(r'"(\\.|[^"\\])*"', '""', line.split("//")[0]))
                if found:
                    yield f"{path}:{number}: calls {found[1]}"


def rule_tidy(root):
    """Files end with one newline, lines do not end with blanks, scripts can be run and parsed."""
    for path in files(root, "*"):
        if path.endswith(TEXT) or path == ".ci/run":
            text = pathlib.Path(root, path).read_text(encoding="utf-8")
            if text and (not text.endswith("\n") or text.endswith("\n\n")):
                yield f"{path}: should end with one newline"
            for number, line in enumerate(text.split("\n"), 1):
                if line != line.rstrip():
                    yield f"{path}:{number}: ends with a blank"
            if text.startswith("#!/bin/bash"):
                if not os.access(pathlib.Path(root, path), os.X_OK):
                    yield f"{path}: cannot be run (chmod +x)"
                parsed = subprocess.run(["bash", "-n", pathlib.Path(root, path)], capture_output=True, text=True)
                if parsed.returncode:
                    yield f"{path}: {parsed.stderr.strip()}"


def blocks(text):
    """(language, code) of every fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)


def rule_readmes(root):
    """READMEs are there, and what they name is there."""
    for folder in FOLDERS:
        path = f"{folder}/README.md"
        if not pathlib.Path(root, path).is_file():
            yield f"{path} is missing"
        elif not re.search(r"^\| *to\b.*\|.*\|", "\n".join(lines(root, path)), re.M | re.I):
            yield f"{path}: has no where-to-look table (a row that begins with 'To …')"
    for path in files(root, "*README.md"):
        folder = pathlib.Path(root, path).parent
        text = "\n".join(lines(root, path))
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)

        def there(name):
            name = name.split("#")[0]
            return not name or any(any(base.glob(name)) if "*" in name else (base / name).exists()
                                   for base in (folder, pathlib.Path(root)))

        for name in re.findall(r"\]\(([^)\s]+)\)", prose):
            if not re.match(r"https?:|mailto:", name) and not there(name):
                yield f"{path}: links to {name}, which is not there"
        for name in re.findall(r"`([\w.*/-]+)`", prose):
            looks_like_file = re.search(r"\.(h|cpp|cu|md|sh|py|capnp|json|txt|cmake)$", name) or name.endswith("/")
            if looks_like_file and not name.startswith(("build/", "/")) and not there(name.rstrip("/")):
                yield f"{path}: names {name}, which is not there"
        for language, code in blocks(text):
            for line in code.split("\n") if language in ("sh", "bash") else []:
                command = re.match(r"(?:bash )?((?:deploy|tests|\.ci)/[\w./-]+)", line)
                if command and not os.access(pathlib.Path(root, command[1]), os.X_OK):
                    yield f"{path}: runs {command[1]}, which cannot be run"


def rule_hello(root):
    """The program that the README shows is the example that the tests run."""
    shown = [code for language, code in blocks("\n".join(lines(root, "README.md"))) if language == "cpp"]
    example = pathlib.Path(root, "client/examples/hello.cpp").read_text(encoding="utf-8")
    if example not in shown:
        yield "README.md: no block is client/examples/hello.cpp, letter by letter"


def main():
    rules = {name[5:]: rule for name, rule in globals().items() if name.startswith("rule_")}
    if len(sys.argv) < 2 or sys.argv[1] not in rules:
        sys.exit(f"usage: habits.py {'|'.join(rules)} [ROOT]")
    root = sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).resolve().parents[2]
    broken = list(rules[sys.argv[1]](root))
    for line in broken:
        print(line)
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
