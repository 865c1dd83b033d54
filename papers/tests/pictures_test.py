#!/usr/bin/env python3
"""Each picture of a page can be made again: the page names the command that makes it.

  pictures_test.py

A picture that papers/figures/draw_figures.py draws needs this name on its page, or a link to the
page of its measurement, which has it. Any other picture of docs/figures needs `sluice plot ...
-o PICTURE`, and one of the papers `sluice reproduce`. Every file of docs/figures must be on a page.
The test also plants faults in copies of pages, and must find them.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs/figures"
DRAWN = "papers/figures/draw_figures.py"
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")


def pages():
    folders = ("docs", "examples", "papers")
    found = [
        ROOT / "README.md",
        *(page for each in folders for page in (ROOT / each).rglob("*.md")),
    ]
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(found)}


def experiments():
    """Returns {picture: page} of the measurements on the site."""
    kept = json.loads((ROOT / "docs/site/experiments.json").read_text())
    return {each["picture"]: f"measurements/{each['name']}.md" for each in kept}


def drawn():
    """Returns the names of the pictures that papers/figures/draw_figures.py writes."""
    text = (ROOT / DRAWN).read_text()
    names = re.findall(r'save(?:Svg)?\([^,]+, f?"([^"]+)"\)', text)
    networks = re.search(r"NETWORKS = \{(.*?)\n\}", text, re.DOTALL)[1]
    keys = re.findall(r'"(\w+)":', networks)
    return {name.replace("{network}", key) for name in names for key in keys}


def fault_of(picture, text):
    """Returns what is wrong with a picture on a page with this text, or nothing."""
    name = picture.rpartition("/")[2]
    if "reproduction/pictures/" in picture or picture.startswith("pictures/"):
        return None if "sluice reproduce" in text else "no `sluice reproduce`"
    if name in drawn():
        measured = experiments().get(name)
        named = DRAWN in text or (measured is not None and measured in text)
        return None if named else f"no {DRAWN}"
    plotted = re.search(rf"sluice plot [^\n]*-o {re.escape(name)}\b", text)
    return None if plotted else f"no `sluice plot ... -o {name}`"


def faults_in(texts):
    found, shown = [], set(experiments())
    for page, text in texts.items():
        for picture in IMAGE.findall(text):
            shown.add(picture.rpartition("/")[2])
            if fault := fault_of(picture, text):
                found.append(f"{page}: {fault}, for {picture}")
    kept = {path.name for path in FIGURES.iterdir() if path.suffix in (".png", ".svg")}
    found += [f"docs/figures/{name} is on no page" for name in sorted(kept - shown)]
    found += [f"docs/figures has no {name}" for name in sorted(drawn() - kept)]
    return found


# Faults to plant: a page, what is replaced in it, and by what.
PLANTED = (
    ("docs/how-it-works.md", DRAWN, "a script"),
    ("docs/collective.md", "-o pipe.png", "-o bars.png"),
    ("docs/reproduction.md", "sluice reproduce", "make"),
    ("docs/bench.md", "figures/sweep-resnet50.png", "figures/other.png"),
)


def main():
    texts = pages()
    for page, old, new in PLANTED:
        assert old in texts[page], f"there is no place to plant a fault: {page}: {old}"
        planted = texts | {page: texts[page].replace(old, new)}
        assert len(faults_in(planted)) > len(faults_in(texts)), f"not found when planted: {new}"
    found = faults_in(texts)
    count = sum(len(IMAGE.findall(text)) for text in texts.values())
    print("\n".join(found) or f"{count} pictures with the command that makes them")
    return 1 if found or count < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
