#!/usr/bin/env python3
"""Each habit sees a break of it: a small tree that keeps all habits, and for each test one change that breaks one."""
import pathlib
import tempfile
import unittest

import habits

GOOD = {
    "README.md": "# G\n\n[the tests](tests/README.md), `engine/ops/`\n\n```sh\ntests/run.sh\n```\n\n```cpp\nint main() {}\n```\n",
    "client/examples/hello.cpp": "int main() {}\n",
    "schema/value.h": "#pragma once\n\n#include <string>\n",
    "schema/value.cpp": '#include "schema/value.h"\n',
    "schema/wire_stream.h": "#pragma once\n\n#include <capnp/serialize-async.h>\n",
    "engine/view.h": '#pragma once\n\n#include "schema/value.h"\n',
    "engine/tensor.h": '#pragma once\n\n#include "engine/view.h"\n',
    "engine/functors/unary.h": "struct neg {};\n",
    "engine/ops/unary.cpp": '#include "engine/tensor.h"\n',
    "engine/cpu/unary.cpp": '#include "engine/view.h"\n#include "hwy/highway.h"\n\nnamespace x {\n#include "engine/functors/unary.h"\n}\n',
    "engine/cuda/unary.cu": "#include <cuda_runtime.h>\n",
    "server/service.h": '#pragma once\n\n#include "engine/tensor.h"\n',
    "server/executor.cpp": "#include <boost/asio.hpp>\n",
    "server/main.cpp": '#include "server/rpc/rpc_server.h"\n',
    "server/rpc/rpc_server.h": '#pragma once\n\n#include "server/service.h"\n',
    "server/rpc/rpc_server.cpp": '#include "server/rpc/rpc_server.h"\n#include <kj/async.h>\n#include "schema/gradwire.capnp.h"\n',
    "server/http/json.cpp": "#include <boost/json.hpp>\n",
    "client/gradwire.h": '#pragma once\n\n#include <vector>\n#include "schema/value.h"\n',
    "client/client.cpp": '#include "client/gradwire.h"\n#include <capnp/rpc.h>\n',
    "tests/engine/view_test.cpp": '#include "engine/view.h"\n',
    "tests/run.sh": "#!/bin/bash\necho tests\n",
}
for folder in habits.FOLDERS:
    GOOD[f"{folder}/README.md"] = f"# {folder}\n\n| To | see |\n| --- | --- |\n| to read values | `schema/value.h` |\n"


class Habits(unittest.TestCase):
    def broken(self, rule, **changes):
        """What the rule says of the good tree with some files changed (a text, or None for absent)."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**GOOD, **changes}.items():
                if text is not None:
                    file = pathlib.Path(root, path)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(text, encoding="utf-8")
                    file.chmod(0o755 if path.endswith(".sh") else 0o644)
            return list(getattr(habits, "rule_" + rule)(root))

    def sees(self, rule, path, text, *words):
        found = self.broken(rule, **{path: text})
        self.assertEqual(len(found), 1, found)
        for word in (path, *words):
            self.assertIn(word, found[0])

    def test_the_good_tree_keeps_every_rule(self):
        for name in dir(habits):
            if name.startswith("rule_"):
                self.assertEqual(self.broken(name[5:]), [], name)

    def test_includes_go_one_way(self):
        for path, name in [
            ("schema/bad.cpp", "engine/view.h"),
            ("schema/bad.h", "client/gradwire.h"),
            ("engine/bad.cpp", "server/service.h"),
            ("engine/bad.cpp", "client/gradwire.h"),
            ("engine/cpu/bad.cpp", "engine/tensor.h"),
            ("engine/cuda/bad.cu", "engine/tensor.h"),
            ("server/bad.cpp", "server/rpc/rpc_server.h"),
            ("server/bad.cpp", "client/gradwire.h"),
            ("server/http/bad.cpp", "server/rpc/rpc_server.h"),
            ("client/bad.cpp", "engine/view.h"),
            ("client/bad.cpp", "server/service.h"),
            ("engine/opgen.cpp", "engine/tensor.h"),
        ]:
            with self.subTest(path=path, name=name):
                once = "#pragma once\n" if path.endswith(".h") else ""
                self.sees("includes", path, f'{once}#include "{name}"\n', name)

    def test_libraries_stay_in_their_folders(self):
        for path, name in [
            ("engine/bad.cpp", "kj/async.h"),
            ("server/bad.cpp", "capnp/message.h"),
            ("server/http/bad.cpp", "schema/gradwire.capnp.h"),
            ("schema/bad.cpp", "kj/io.h"),
            ("server/rpc/bad.cpp", "boost/json.hpp"),
            ("server/http/bad.h", "boost/json.hpp"),
            ("client/bad.cpp", "boost/url.hpp"),
            ("engine/bad.cpp", "cuda_runtime.h"),
            ("engine/cpu/bad.cpp", "cublas_v2.h"),
            ("engine/ops/bad.cpp", "cblas.h"),
            ("engine/bad.cpp", "hwy/highway.h"),
        ]:
            with self.subTest(path=path, name=name):
                self.sees("includes", path, f"#include <{name}>\n", name)

    def test_the_sdk_headers_include_std_and_schema_only(self):
        for name in ["sys/socket.h", "capnp/rpc.h"]:
            found = self.broken("includes", **{
                "client/gradwire.h": '#pragma once\n\n#include "client/bad.h"\n',
                "client/bad.h": f"#pragma once\n\n#include <{name}>\n",
            })
            self.assertTrue(any("client/bad.h" in line and "std and schema/ only" in line for line in found), found)
        self.assertEqual(self.broken("includes", **{"client/private.h": "#pragma once\n\n#include <sys/socket.h>\n"}), [])

    def test_functors_include_nothing(self):
        self.sees("includes", "engine/functors/bad.h", "#include <cmath>\n", "nothing")
        self.sees("includes", "engine/functors/bad.h", '#include "engine/view.h"\n', "nothing")

    def test_includes_are_named_from_the_root(self):
        self.sees("includes", "engine/bad.cpp", '#include "view.h"\n', "no file from the root")

    def test_the_own_header_comes_first(self):
        self.sees("includes", "schema/value.cpp", '#include <string>\n#include "schema/value.h"\n', "first")

    def test_headers_are_read_once_and_functors_are_not(self):
        self.sees("headers", "schema/bad.h", "struct Bad {};\n", "lacks")
        self.sees("headers", "engine/functors/bad.h", "#pragma once\n", "has")

    def test_long_files(self):
        self.sees("length", "engine/bad.cpp", "// line\n" * 801, "801")
        self.assertEqual(self.broken("length", **{"engine/good.cpp": "// line\n" * 800}), [])

    def test_stray_words(self):
        for word in ["TODO: later", "FIXME", "XXX", "not implemented yet", "a stub", "../shared/x", "/work/x", "issue 7"]:
            with self.subTest(word=word):
                self.sees("words", "engine/bad.cpp", f"// {word}\n")

    def test_banned_calls(self):
        for call in ["std::abort()", "::system(x)", "alloca(4)", "dlopen(x, 1)", "assert(n > 0)", "strcpy(a, b)"]:
            with self.subTest(call=call):
                self.sees("calls", "engine/bad.cpp", f"int f() {{ {call}; }}\n")
        fine = '// calls abort() on\nauto s = "system(x)";\nboost::system::error_code e;\nstatic_assert(sizeof(int) == 4);\nx.abort();\n'
        self.assertEqual(self.broken("calls", **{"server/good.cpp": fine}), [])

    def test_untidy_text(self):
        self.sees("tidy", "engine/bad.cpp", "int x; \n", "blank")
        self.sees("tidy", "engine/bad.cpp", "int x;", "newline")
        self.sees("tidy", "engine/bad.cpp", "int x;\n\n", "newline")
        self.sees("tidy", "deploy/bad.sh", "#!/bin/bash\nif true\n", "syntax error")
        self.sees("tidy", "deploy/bad.md", "#!/bin/bash\n", "cannot be run")

    def test_readmes(self):
        table = "| To | see |\n"
        self.sees("readmes", "engine/README.md", None, "missing")
        self.sees("readmes", "engine/README.md", "# engine\n", "where-to-look")
        self.sees("readmes", "engine/README.md", table + "| x | [no](gone.md) |\n", "gone.md")
        self.sees("readmes", "engine/README.md", table + "| x | `engine/gone.cpp` |\n", "engine/gone.cpp")
        self.sees("readmes", "engine/README.md", table + "| x | `gone/` |\n", "gone/")
        self.sees("readmes", "engine/README.md", table + "\n```sh\ntests/gone.sh --quick\n```\n", "tests/gone.sh")

    def test_the_program_of_the_readme_is_the_example(self):
        self.sees("hello", "client/examples/hello.cpp", "int main() { return 1; }\n")


if __name__ == "__main__":
    unittest.main()
