#!/usr/bin/env python3
"""Collects the pages of the site in one folder, in the form that Sphinx reads.

  docs/site/stage.py FOLDER      scripts/build_site.sh calls this

Pages lie where people look for them in the tree: docs/, the changelog, the security policy. Links
between them are rewritten to pages of the site. A link to a file that is no page becomes its text.
A link whose text is a file's name gets the page's title as its text.
"""

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "papers/figures"))

import measurement_pages  # noqa: E402

RESULTS = "papers/results"
# Other files than docs/*.md, docs/site/*.md and papers/results/*.md that are pages, and their names
# on the site.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/README.md": "examples.md",
    "build/site/commands.md": "commands.md",
    "tests/python/README.md": "tests-python.md",
    "tests/device/README.md": "tests-device.md",
    "papers/results/plan/check.md": "measurements/plan-check.md",
    "papers/results/study/study.md": "measurements/study.md",
    "papers/results/reproduction/reproduction.md": "measurements/reproduction.md",
}
# Where links to parts of other files lead.
ELSEWHERE = {
    "README.md#install": "start.md#install",
    "README.md": "index.md",
    "papers/results/choose": "measurements/choose.md",
    "papers/results/study/study.html": "measurements/study.md",
}

# Files that pages and Sphinx read.
FILES = (
    "docs/site/conf.py",
    "docs/site/scorer.js",
    "tests/install/library/examples.cc",
    "tests/install/libtorch/examples.h",
)
FENCE = re.compile(r"^([ \t]*)(`{3,}).*?^\1\2[ \t]*$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
# A page that is named in prose without a link.
NAMED = re.compile(r"(?<![\w/`\[(-])docs/([\w-]+)\.md|(?<=\()docs/([\w-]+)\.md(?=\))")


def site_pages():
    """Maps files of the tree to pages of the site."""
    pages = {f"docs/{path.name}": path.name for path in ROOT.glob("docs/*.md")}
    pages |= {f"docs/site/{path.name}": path.name for path in ROOT.glob("docs/site/*.md")}
    pages |= {
        f"{RESULTS}/{path.name}": f"results/{path.name}" for path in ROOT.glob(f"{RESULTS}/*.md")
    }
    return pages | PAGES


def relative(target, page):
    """Returns the way from one page to another file of the site."""
    return os.path.relpath(target, os.path.dirname(page) or ".")


def linked(match, source, page, pages):
    """Returns a link of a source file as it must be on its page."""
    image, text, target = match.groups()
    text = " ".join(text.split("\n")) if image else text  # Sphinx would join the words
    if re.match(r"[a-z]+:|#|<", target):
        return match[0]
    path, _, anchor = target.partition("#")
    if source.startswith("docs/site/"):
        source = source.replace("docs/site/", "docs/")
        if not image and not (ROOT / "docs" / path).exists():
            return match[0]  # a page that only the site has; Sphinx checks the link
    found = os.path.normpath(os.path.join(os.path.dirname(source), path))
    anchor = f"#{anchor}" if anchor else ""
    if image:
        return f"![{text}]({relative(staged_file(found), page)})"
    if found + anchor in ELSEWHERE:
        found, anchor = "", ELSEWHERE[found + anchor]
        to = relative(anchor, page)
    elif found in ELSEWHERE:
        to = relative(ELSEWHERE[found], page) + anchor
    elif found in pages:
        to = relative(pages[found], page) + anchor
    else:
        return text
    named = re.fullmatch(r"`?[\w./-]+\.md`?", text)
    return f"[]({to})" if named else f"[{text}]({to})"


def staged_file(path):
    """Returns the place of a picture on the site."""
    if path.startswith(f"{RESULTS}/reproduction/pictures/"):
        return "pictures/" + path.removeprefix(f"{RESULTS}/reproduction/pictures/")
    return path.removeprefix("docs/")


def outside_code(text, change):
    """Applies `change` to the parts of a page that are not code."""
    kept = []

    def keep(match):
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    text = change(CODE.sub(keep, FENCE.sub(keep, text)))
    while "\0" in text:
        text = re.sub("\0(\\d+)\0", lambda match: kept[int(match[1])], text)
    return text


def converted(source, page, pages):
    """Returns a file of the tree as a page of the site."""
    text = (ROOT / source).read_text()

    # Texts of links may have code, so only fences are kept from this first change.
    fences = []

    def keep(match):
        fences.append(match[0])
        return f"\1{len(fences) - 1}\1"

    text = FENCE.sub(keep, text)
    text = LINK.sub(lambda match: linked(match, source, page, pages), text)
    text = outside_code(text, lambda prose: NAMED.sub(lambda m: named_page(m, pages), prose))
    return re.sub("\1(\\d+)\1", lambda match: fences[int(match[1])], text)


def named_page(match, pages):
    name = f"{match[1] or match[2]}.md"
    return f"[](/{name})" if name in pages.values() else match[0]


def main():
    folder = Path(sys.argv[1])
    pages = site_pages()
    # Pages are collected beside, and only those that differ are replaced, so that Sphinx reads
    # only these again.
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for source, page in pages.items():
        (fresh / page).parent.mkdir(parents=True, exist_ok=True)
        (fresh / page).write_text(converted(source, page, pages))
    shutil.copytree(ROOT / "docs/figures", fresh / "figures")
    shutil.copytree(ROOT / RESULTS / "reproduction/pictures", fresh / "pictures")
    shutil.copytree(ROOT / "docs/site/_static", fresh / "_static")
    for source in FILES:
        shutil.copy(ROOT / source, fresh)
    made = measurement_pages.write(fresh)
    replace_changed(fresh, folder)
    print(f"{len(pages)} pages and {made} of measurements in {folder}")


def replace_changed(fresh, folder):
    """Gives a folder the files of another one, and leaves those alone that are the same."""
    wanted = {path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()}
    for old in [path for path in folder.rglob("*") if path.is_file()]:
        if old.relative_to(folder) not in wanted:
            old.unlink()
    for name in wanted:
        new, old = fresh / name, folder / name
        if not old.exists() or old.read_bytes() != new.read_bytes():
            old.parent.mkdir(parents=True, exist_ok=True)
            new.replace(old)
    shutil.rmtree(fresh)


if __name__ == "__main__":
    main()
