"""The versions in docs/stability.md are those of the sources, and each format has a test that fixes
its bytes. The version of sluice itself has one home.

stability_test.py ROOT
"""

import pathlib
import re
import sys
import tomllib
import unittest

ROOT = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".")
VERSION = re.compile(r"(?:\bk(?:File)?Version = |\.version = )(\d+)")


def formats() -> list[list[str]]:
    lines = (ROOT / "docs/stability.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    return [row for row in rows if len(row) == 4 and row[1].isdigit()]


class Formats(unittest.TestCase):
    def test_the_table_says_the_versions_of_the_sources(self) -> None:
        self.assertGreaterEqual(len(formats()), 8)
        for name, version, source, _ in formats():
            found = VERSION.findall((ROOT / source).read_text())
            self.assertEqual(found, [version], f"{name}: {source}")

    def test_no_format_is_left_out(self) -> None:
        listed = {source for _, _, source, _ in formats()}
        for path in sorted((ROOT / "sluice").rglob("*")):
            if path.suffix in (".h", ".cc") and not path.stem.endswith("_test"):
                name = str(path.relative_to(ROOT))
                if VERSION.search(path.read_text()):
                    self.assertIn(name, listed, "it has a version, and docs/stability.md has not")

    def test_the_bytes_of_checkpoints_and_of_the_header_are_fixed(self) -> None:
        for name, version, _, test in formats():
            if name.startswith("checkpoint") or "header" in name:
                text = (ROOT / test).read_text()
                self.assertIn(f"TheBytesOfVersion{version}AreFixed", text, test)


class OwnVersion(unittest.TestCase):
    def test_has_one_home(self) -> None:
        for folder in (ROOT, ROOT / "papers"):
            project = tomllib.loads((folder / "pyproject.toml").read_text())
            self.assertIn("version", project["project"]["dynamic"])
            rule = project["tool"]["scikit-build"]["metadata"]["version"]
            text = (folder / rule["input"]).read_text()
            self.assertEqual(len(re.findall(rule["regex"], text)), 1)


if __name__ == "__main__":
    unittest.main()
