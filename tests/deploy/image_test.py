#!/usr/bin/env python3
"""The image without an engine for images: the root that image-root.sh makes."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from cluster import GRADWIRED, SOURCE

MAKE_ROOT = SOURCE / "deploy/image-root.sh"


class Image(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "image")

    def test_it_holds_the_program_and_its_libraries_only(self):
        subprocess.run([MAKE_ROOT, GRADWIRED, self.root], check=True)
        files = [f for f in self.root.rglob("*") if f.is_file()]
        libraries = {f for f in files if re.match(r"(lib|ld-linux).*\.so", f.name)}
        self.assertTrue(libraries)
        self.assertEqual({str(f.relative_to(self.root)) for f in set(files) - libraries},
                         {"usr/bin/gradwired", "etc/ld.so.conf", "etc/ld.so.cache", "etc/passwd", "etc/group", "etc/nsswitch.conf"})
        self.assertEqual([f for f in files if f.stat().st_mode & 0o6002], [])

    def test_a_directory_that_is_not_empty_is_left_alone(self):
        self.root.mkdir()
        (self.root / "mine").touch()
        self.assertEqual(subprocess.run([MAKE_ROOT, GRADWIRED, self.root], capture_output=True).returncode, 1)
        self.assertEqual([f.name for f in self.root.iterdir()], ["mine"])

    @unittest.skipUnless(shutil.which("cc"), "no compiler is here")
    def test_libraries_that_lie_elsewhere_are_found_and_missing_ones_are_said(self):
        """As CUDA's do, which only the builder's linker configuration finds."""
        there = self.root.parent / "opt/lib"
        there.mkdir(parents=True)
        (there / "a.c").write_text("int answer(void) { return 42; }\n")
        (there / "b.c").write_text("int answer(void);\nint main(void) { return answer(); }\n")
        program = there / "program"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", there / "libanswer.so.1", "-Wl,-soname,libanswer.so.1", there / "a.c"], check=True)
        subprocess.run(["cc", "-o", program, there / "b.c", there / "libanswer.so.1"], check=True)
        missing = subprocess.run([MAKE_ROOT, program, self.root], capture_output=True, text=True)
        self.assertNotEqual(missing.returncode, 0)
        self.assertIn("libanswer.so.1 => not found", missing.stderr)
        shutil.rmtree(self.root)
        subprocess.run([MAKE_ROOT, program, self.root], check=True, env={**os.environ, "LD_LIBRARY_PATH": str(there)})
        shutil.rmtree(there)
        if os.geteuid() == 0:
            self.assertEqual(subprocess.run(["chroot", self.root, "/usr/bin/gradwired"]).returncode, 42)


if __name__ == "__main__":
    unittest.main()
