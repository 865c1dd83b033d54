#!/usr/bin/env python3
"""Every public name is in the reference of the built site, with an example where one is promised.

  site_test.py SITE     SITE is build/site, after scripts/build_site.sh has built it; it runs this

Python: every name of sluice.__all__ is documented and used in a doctest, and so is every public
member of its classes. The names of the plug-ins are documented and shown in an example; a few need
their framework to run, and tests/python/plugs/run.sh runs them. C++: every public member that
Doxygen sees in include/sluice is on the page, and every class has an example that uses it.
"""

import ast
import re
import sys
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(sys.argv.pop(1)) if len(sys.argv) > 1 else ROOT / "build/site"


PACKAGE = ROOT / "python/sluice"
# The other public modules: one for each framework, and one for programs that start ranks.
PROCESSES = "processes"
PLUGINS = sorted({path.stem for path in PACKAGE.glob("[a-z]*.py")} - {PROCESSES})


def parsed(module):
    return ast.parse((PACKAGE / f"{module}.py").read_text())


def public_python(module="__init__"):
    """Returns the names of a module's __all__, from the source."""
    for node in parsed(module).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return ast.literal_eval(node.value)
    raise AssertionError(f"python/sluice/{module}.py has no __all__")


def members_of_classes():
    """Yields Class.member for each public member of the classes in sluice.__all__."""
    for node in parsed("__init__").body:
        if not isinstance(node, ast.ImportFrom) or not node.module.startswith("sluice."):
            continue
        module = node.module.removeprefix("sluice.").replace(".", "/")
        names = {alias.name for alias in node.names} & set(public_python())
        if not names or not (PACKAGE / f"{module}.py").exists():
            continue  # _core is C++, and has no public class but an error
        for found in parsed(module).body:
            if isinstance(found, ast.ClassDef) and found.name in names:
                for member in found.body:
                    name = getattr(member, "name", None)
                    if isinstance(member, ast.AnnAssign):
                        name = member.target.id
                    if name is not None and not name.startswith("_"):
                        yield f"{found.name}.{name}"


def compounds():
    """Yields (name, element) for each public class or struct that Doxygen has found."""
    for path in sorted((SITE / "doxygen").glob("*.xml")):
        if not path.name.startswith(("class", "struct")):
            continue
        element = ElementTree.parse(path).getroot().find("compounddef")
        if element.get("prot") == "public" and element.find("compoundname") is not None:
            yield element.findtext("compoundname"), element


def words_of(member):
    """Returns the documentation of a member."""
    found = (member.find(f"{kind}description").itertext() for kind in ("brief", "detailed"))
    return "".join("".join(each) for each in found).strip()


def is_public(member):
    """Returns true iff users can call or read a member: it is not private, deleted, a friend or a
    destructor without a word of its own."""
    if member.findtext("name").startswith("~") and not words_of(member):
        return False
    is_deleted = re.search(r"=\s*delete", member.findtext("argsstring") or "")
    is_friend = member.get("kind") == "friend" and "operator" not in member.findtext("name")
    return member.get("prot") == "public" and not is_deleted and not is_friend


class Python(unittest.TestCase):
    def setUp(self):
        self.source = (ROOT / "docs/site/python-api.md").read_text()
        self.html = (SITE / "html/python-api.html").read_text()

    def test_every_name_is_documented(self):
        names = public_python()
        self.assertGreaterEqual(len(names), 9)
        for name in names:
            self.assertTrue(f'id="sluice.{name}"' in self.html, name)

    def test_every_name_has_an_example_that_runs(self):
        examples = "\n".join(re.findall(r"```\{doctest\}\n(.*?)```", self.source, re.DOTALL))
        for name in public_python():
            self.assertRegex(examples, rf"\bsluice\.{name}\b", name)

    def test_every_member_of_a_class_is_documented(self):
        members = list(members_of_classes())
        self.assertGreaterEqual(len(members), 5)
        for name in members:
            self.assertTrue(f'id="sluice.{name}"' in self.html, name)

    def test_every_name_of_another_module_is_documented_with_an_example(self):
        examples = "\n".join(
            re.findall(r"```(?:\{doctest\}|python).*?\n(.*?)```", self.source, re.S)
        )
        run = "\n".join(path.read_text() for path in (ROOT / "tests/python/plugs").glob("*.py"))
        for module in (*PLUGINS, PROCESSES):
            for name in public_python(module):
                self.assertTrue(f'id="sluice.{module}.{name}"' in self.html, name)
                self.assertRegex(examples, rf"\b{name}\b", name)
                if module == PROCESSES:  # every test with ranks runs these
                    continue
                short = re.search(rf'{name}\(.*?strategy="(\w+)"', examples)
                words = rf"\b{name}\b" + (rf'|"{short[1]}"' if short else "")
                self.assertRegex(run, words, f"tests/python/plugs/run.sh does not run {name}")


class Cpp(unittest.TestCase):
    def setUp(self):
        self.source = (ROOT / "docs/site/cpp-api.md").read_text()
        self.html = (SITE / "html/cpp-api.html").read_text()

    def test_every_member_is_on_the_page(self):
        ids = set(re.findall(r'id="([^"]*)"', self.html))
        namespace = ElementTree.parse(SITE / "doxygen/namespacesluice.xml").getroot()
        seen = 0
        for owner, element in [*compounds(), ("sluice", namespace.find("compounddef"))]:
            for member in element.iter("memberdef"):
                name = f"{owner}::{member.findtext('name')}"
                if not is_public(member):
                    continue
                seen += 1
                self.assertTrue(member.get("id") in ids, name)
                for value in member.iter("enumvalue"):
                    self.assertTrue(value.get("id") in ids, f"{name}::{value.findtext('name')}")
        self.assertGreaterEqual(seen, 150)

    def test_every_class_has_an_example_that_uses_it(self):
        shown = dict(re.findall(r"\n### (\S+)\n(.*?)(?=\n### |\n## |\Z)", self.source, re.DOTALL))
        listed = {
            name.removeprefix("sluice::").partition("<")[0].strip() for name, _ in compounds()
        }
        self.assertEqual(set(shown), listed)
        code = (ROOT / "tests/install/library/examples.cc").read_text()
        code += (ROOT / "tests/install/libtorch/examples.h").read_text()
        for name, section in shown.items():
            mark = re.search(r'start-after: "// \[(\w+)\]"', section)
            self.assertIsNotNone(mark, f"{name} has no example")
            example = code.partition(f"// [{mark[1]}]")[2].partition(f"// [{mark[1]} end]")[0]
            self.assertRegex(example, rf"\b{name.split('::')[-1]}\b", f"the example of {name}")

    def test_no_member_is_without_words(self):
        for owner, element in compounds():
            for member in element.iter("memberdef"):
                if is_public(member):
                    self.assertTrue(words_of(member), f"{owner}::{member.findtext('name')}")


if __name__ == "__main__":
    unittest.main()
