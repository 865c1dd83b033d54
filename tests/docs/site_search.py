#!/usr/bin/env python3
"""Tries the searches of docs/site/searches.txt in a real browser, against the built site.

  site_search.py SITE [--screenshots FOLDER]     SITE is build/site, after scripts/build_site.sh

Types each query into the site's own search page in a headless Chromium (Debian's package
chromium), and looks where the page that answers it stands. It must be the first or second hit in at
least 18 of 20. With --screenshots it also takes pictures of four pages, 1280 and 400 pixels wide,
to be looked at. It is run by hand: a browser is no part of the gate.
"""

import argparse
import html
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
WANTED = 18
SHOWN = ("start", "pytorch", "cpp-api", "measurements/training")


def browse(browser, *arguments):
    """Returns the standard output of a headless browser with a profile of its own."""
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        ended = subprocess.run(
            [browser, "--no-sandbox", "--allow-file-access-from-files", *flags, *arguments],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    return ended.stdout


def hits(browser, site, query):
    """Returns the pages that the search page lists, best first."""
    address = f"file://{site}/html/search.html?q={urllib.parse.quote_plus(query)}"
    text = browse(browser, "--virtual-time-budget=8000", "--dump-dom", address)
    results = text.partition('class="search"')[2].partition("</ul>")[0]
    links = re.findall(r'<li[^>]*>\s*<a href="([^"]+)"', results)
    pages = [html.unescape(link).split("#")[0].split("?")[0] for link in links]
    return [page.removesuffix(".html") for page in dict.fromkeys(pages)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("site", type=Path)
    parser.add_argument("--screenshots", type=Path)
    flags = parser.parse_args()
    site = flags.site.resolve()
    browser = shutil.which("chromium")
    if browser is None:
        print("skipped: there is no chromium; apt-get install chromium")
        return SKIPPED
    lines = (ROOT / "docs/site/searches.txt").read_text().splitlines()
    searches = [line.split(" | ") for line in lines if line and not line.startswith("#")]
    found = 0
    for query, page in searches:
        listed = hits(browser, site, query)
        place = listed.index(page) + 1 if page in listed else 0
        found += place in (1, 2)
        first = ", ".join(listed[:3]) or "nothing"
        print(f"{place or '-':>3}  {query:32} {page:18} ({first})", flush=True)
    print(f"{found} of {len(searches)} pages are the first or second hit")
    for page in SHOWN if flags.screenshots else ():
        for width in (1280, 400):
            name = f"{page.replace('/', '-')}-{width}.png"
            flags.screenshots.mkdir(parents=True, exist_ok=True)
            browse(
                browser, f"--window-size={width},1600",
                f"--screenshot={flags.screenshots.resolve() / name}",
                f"file://{site}/html/{page}.html",
            )  # fmt: skip
    return 0 if found >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
