#!/usr/bin/env python3
"""Fails if a link or a picture inside the built site leads nowhere, or a page cannot be reached.

scripts/site_links.py HTML
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Collects the targets that a page has, and those that it leads to."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.ids.add(value)
            elif value and ((tag == "a" and name == "href") or name == "src"):
                self.links.add(value)


def main():
    root = Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in sorted(root.rglob("*.html"))}
    broken, links, reached = [], 0, {root / "index.html"}
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            links += 1
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            reached.add(target)
            name = unquote(parts.fragment)
            if not target.exists():
                broken.append(f"{path.relative_to(root)}: {link} is not there")
            elif name and target in pages and name not in pages[target].ids:
                broken.append(f"{path.relative_to(root)}: {link}: the page has no such place")
    special = {root / name for name in ("search.html", "genindex.html", "py-modindex.html")}
    for path in pages:
        if path not in reached and path not in special:
            broken.append(f"{path.relative_to(root)}: no page leads there")
    print("\n".join([*broken, f"{len(pages)} pages, {links} links inside, {len(broken)} broken"]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
