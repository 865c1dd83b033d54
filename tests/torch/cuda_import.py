#!/usr/bin/env python3
"""Makes a CUDA build of Torch importable on a machine without a GPU and without CUDA.

  python3 tests/torch/cuda_import.py 2.15.0 DIR     installs that Torch into DIR/site, as below
  . DIR/environment                                 PYTHONPATH and LD_LIBRARY_PATH for it

Torch's libraries name a dozen libraries of CUDA, and the loader wants every one. Two are real
packages of PyPI (libcudart and libcupti run at load time). All others are stand-ins: libraries of
these names whose functions return 1. Nothing calls them where there is no GPU. `libcuda.so.1` is
left out, so that Torch finds no driver.
"""

import argparse
import collections
import importlib.metadata
import pathlib
import re
import subprocess
import sys

# What runs at load time, by the beginnings of packages' names; everything else is a stand-in.
REAL = ("nvidia-cuda-runtime", "nvidia-cuda-cupti")
DRIVER = "libcuda."
# Symbols without a version belong to the library whose functions are named so.
PREFIXES = {
    "libcublasLt": "cublasLt",
    "libcublas": "cublas",
    "libcudnn": "cudnn",
    "libcufft": "cufft",
    "libcurand": "curand",
    "libcusolver": "cusolver",
    "libcusparseLt": "cusparseLt",
    "libcusparse": "cusparse",
    "libnccl": "nccl",
    "libnvrtc": "nvrtc",
    "libcufile": "cuFile",
    "libnvshmem_host": "nvshmem",
}


def output(*command: object) -> str:
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=True
    ).stdout


def needed(file: pathlib.Path) -> set[str]:
    return set(re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-dW", file)))


def file_of_version(file: pathlib.Path) -> dict[str, str]:
    """Returns the library that each version of a symbol comes from."""
    found, library = {}, ""
    for line in output("readelf", "-VW", file).splitlines():
        if match := re.search(r"File: (\S+)", line):
            library = match[1]
        elif library and (match := re.search(r"Name: (\S+)", line)):
            found[match[1]] = library
    return found


def wanted(files: list[pathlib.Path], missing: list[str]) -> dict[str, set[tuple[str, str]]]:
    """Returns the symbols, with their versions, that the files ask of each missing library."""
    found: dict[str, set[tuple[str, str]]] = collections.defaultdict(set)
    for file in files:
        versions = file_of_version(file)
        for line in output("nm", "-D", "--undefined-only", file).splitlines():
            name, _, version = line.split()[-1].partition("@")
            if version:
                if versions.get(version) in missing:
                    found[versions[version]].add((name, version))
                continue
            fitting = [
                library
                for library in missing
                if name.startswith(PREFIXES.get(library.partition(".so")[0], "\0"))
            ]
            if fitting:
                found[max(fitting, key=len)].add((name, ""))
    return found


def make(library: pathlib.Path, symbols: set[tuple[str, str]]) -> None:
    """Writes a library whose functions return 1."""
    names = sorted({name for name, _ in symbols})
    source, script = library.with_suffix(".s"), library.with_suffix(".map")
    functions = "".join(f".globl {name}\n.type {name},@function\n{name}:\n" for name in names)
    source.write_text(
        f'.text\n{functions} mov $1,%eax\n ret\n.section .note.GNU-stack,"",@progbits\n'
    )
    command = ["cc", "-shared", "-nostdlib", source, "-o", library, f"-Wl,-soname,{library.name}"]
    versions = sorted({version for _, version in symbols if version})
    if versions:
        script.write_text(
            "\n".join(
                f"{version} {{ global: {' '.join(f'{name};' for name, of in sorted(symbols) if of == version)} }};"
                for version in versions
            )
        )
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True)
    source.unlink()
    script.unlink(missing_ok=True)


def stand_ins(libraries: pathlib.Path, out: pathlib.Path, real: list[pathlib.Path]) -> list[str]:
    """Makes the libraries that those in a folder need and that are nowhere. Returns their names."""
    out.mkdir(parents=True, exist_ok=True)
    files = sorted(file for file in libraries.iterdir() if ".so" in file.name)
    there = set(re.findall(r"^\t(\S+) ", output("ldconfig", "-p"), re.M))
    for folder in [libraries, *real]:
        there |= {file.name for file in folder.iterdir()}
    missing = sorted(
        name for name in set().union(*map(needed, files)) - there if not name.startswith(DRIVER)
    )
    symbols = wanted(files, missing)
    for name in missing:
        make(out / name, symbols[name])
    return missing


def pip(to: pathlib.Path, *what: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--target", str(to), *what],
        check=True,
    )  # fmt: skip


def real_packages(site: pathlib.Path) -> list[str]:
    """Returns the two packages that Torch asks for, with their versions."""
    torch = next(importlib.metadata.distributions(name="torch", path=[str(site)]))
    found = []
    for requirement in torch.requires or []:
        name = re.match(r"[\w.-]+", requirement)[0]
        if name.startswith(REAL) or name == "cuda-toolkit":
            found.append(requirement.partition(";")[0].strip())
    return found


def prepare(version: str, to: pathlib.Path) -> None:
    site = to / "site"
    if not (to / "environment").exists():
        pip(site, f"torch==={version}")  # not 2.15.0+cpu
        packages = real_packages(site)
        if toolkit := [one for one in packages if one.startswith("cuda-toolkit")]:
            # A package of names only: the versions are those of its extras.
            pip(to / "toolkit", re.sub(r"\[.*\]", "", toolkit[0]))
            meta = next(
                importlib.metadata.distributions(name="cuda-toolkit", path=[str(to / "toolkit")])
            )
            packages = sorted(
                {
                    one.partition(";")[0].strip()
                    for one in meta.requires or []
                    if one.startswith(REAL)
                }
            )
        pip(site, *packages)
        real = sorted({file.parent for file in site.glob("nvidia/**/*.so*")})
        names = stand_ins(site / "torch" / "lib", to / "stand-ins", real)
        paths = ":".join(map(str, [(to / "stand-ins").resolve(), *(one.resolve() for one in real)]))
        (to / "environment").write_text(
            f"export LD_LIBRARY_PATH={paths}\nexport PYTHONPATH={site.resolve()}${{PYTHONPATH:+:$PYTHONPATH}}\n"
        )
        print(f"cuda_import: Torch {version} in {site}, with {len(names)} stand-ins")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        epilog=__doc__.partition("\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("version", help="of Torch, as in 2.15.0")
    parser.add_argument("to", type=pathlib.Path, help="folder to write to")
    flags = parser.parse_args()
    prepare(flags.version, flags.to)


if __name__ == "__main__":
    main()
