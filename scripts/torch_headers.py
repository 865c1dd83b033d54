#!/usr/bin/env python3
"""Fetches what the backend is compiled with out of a wheel of Torch: its headers, and nothing else.

  scripts/torch_headers.py 2.15.0 3.11 build/torch/2.15.0
  SLUICE_TORCH=build/torch/2.15.0/torch scripts/build_wheels.sh

A CUDA wheel has 530 to 920 MB. This reads about 30 MB of it, by HTTP ranges, from the index that
pip is set to, and compares every file with the sums in the wheel's RECORD. In place of Torch's
libraries it makes empty ones of their names: the backend is linked with them so that it asks for
the real ones when it is loaded.
"""

import argparse
import base64
import csv
import hashlib
import html.parser
import io
import os
import pathlib
import platform
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import zipfile

LIBRARIES = ("libc10", "libtorch_cpu", "libtorch_python")
# Headers of operators' implementations, half of all files, which no program includes.
UNUSED = re.compile(
    r"torch/include/ATen/ops/\w+_(cpu|cuda|meta|compositeimplicit\w*|compositeexplicit\w*)_dispatch\.h"
)
AHEAD = 8 << 20  # bytes that are read at once


class Links(html.parser.HTMLParser):
    """The files of a package, by their names, on the page of an index."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "a" and (url := dict(attributes).get("href")):
            file = urllib.parse.unquote(urllib.parse.urlparse(url).path.rpartition("/")[2])
            self.found[file] = url.partition("#")[0]


class Remote(io.RawIOBase):
    """A file on a server that answers ranges."""

    def __init__(self, url: str) -> None:
        self._url, self._at, self.fetched = url, 0, 0
        self._begin, self._bytes = 0, b""
        with ask(url, "bytes=-1") as answer:
            total = answer.headers.get("Content-Range", "").rpartition("/")[2]
        if not total.isdigit():
            sys.exit(f"torch_headers: the server of {url} does not answer ranges")
        self._size = int(total)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer) -> int:
        if self._at >= self._size:
            return 0
        if not self._begin <= self._at < self._begin + len(self._bytes):
            end = min(self._size, self._at + max(len(buffer), AHEAD))
            with ask(self._url, f"bytes={self._at}-{end - 1}") as answer:
                self._begin, self._bytes = self._at, answer.read()
            self.fetched += len(self._bytes)
        first = self._at - self._begin
        part = self._bytes[first : first + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


def ask(url: str, ranges: str = ""):
    headers = {"Range": ranges} if ranges else {}
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=120)
    except urllib.error.URLError as error:
        sys.exit(f"torch_headers: cannot read {url}: {error.reason}")


def index() -> str:
    """Returns the index that pip uses."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    if url := os.environ.get("PIP_INDEX_URL") or told:
        return url
    from pip._internal.models.index import PyPI  # pip says it nowhere else

    return PyPI.simple_url


def find(version: str, python: str) -> str:
    """Returns the address of the wheel of PyPI for this release, which is a CUDA build."""
    page = f"{index().rstrip('/')}/torch/"
    with ask(page) as answer:
        links = Links()
        links.feed(answer.read().decode())
    tag = f"cp{python.replace('.', '')}"
    wanted = re.compile(
        rf"torch-{re.escape(version)}-{tag}-{tag}-\w*linux\w*{platform.machine()}\.whl"
    )
    for name, url in links.found.items():
        if wanted.fullmatch(name):
            return urllib.parse.urljoin(page, url)
    versions = sorted({name.split("-")[1] for name in links.found if f"-{tag}-" in name})
    sys.exit(
        f"torch_headers: no wheel of Torch {version} for Python {python}; "
        f"there are: {', '.join(versions)}"
    )


def fetch(url: str, to: pathlib.Path) -> int:
    """Takes the headers and version.py out of a wheel. Returns the bytes that were fetched."""
    remote = Remote(url)
    wheel = zipfile.ZipFile(io.BufferedReader(remote, 1 << 20))
    record = next(name for name in wheel.namelist() if name.endswith(".dist-info/RECORD"))
    sums = {row[0]: row[1] for row in csv.reader(io.StringIO(wheel.read(record).decode()))}
    wanted = [
        entry
        for entry in wheel.infolist()
        if not entry.is_dir()
        and (
            entry.filename == "torch/version.py"
            or (
                entry.filename.startswith("torch/include/") and not UNUSED.fullmatch(entry.filename)
            )
        )
    ]
    for entry in sorted(wanted, key=lambda entry: entry.header_offset):
        content = wheel.read(entry)
        found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if sums.get(entry.filename) != f"sha256={found}":
            sys.exit(f"torch_headers: {entry.filename} is not the file that RECORD names")
        file = to / entry.filename
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return remote.fetched


def make_libraries(folder: pathlib.Path) -> None:
    """Makes an empty library for each of Torch's."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        subprocess.run(
            ["cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", folder / f"{name}.so",
             f"-Wl,-soname,{name}.so"], check=True
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], epilog=__doc__.partition("\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("version", help="of Torch, as in 2.15.0")
    parser.add_argument("python", help="as in 3.11")
    parser.add_argument("to", type=pathlib.Path, help="folder to write to")
    flags = parser.parse_args()
    done = flags.to / "ready"
    if done.exists():
        print(f"torch_headers: {flags.to} is there")
        return
    url = find(flags.version, flags.python)
    fetched = fetch(url, flags.to)
    make_libraries(flags.to / "torch" / "lib")
    done.touch()
    print(
        f"torch_headers: {url.rpartition('/')[2]}: {fetched / 1e6:.1f} MB fetched into {flags.to}"
    )


if __name__ == "__main__":
    main()
