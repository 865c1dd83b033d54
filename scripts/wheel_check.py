"""Checks the programs and modules of an installed wheel: which symbols they export, and which
libraries they need and load.

scripts/wheel_check.py files SITE-PACKAGES PROGRAM   reads the files; needs readelf
scripts/wheel_check.py hardened FILE...   looks for the guards of cmake/SluiceOptions.cmake
python scripts/wheel_check.py papers                 compares sluice-papers with torch-sluice
scripts/wheel_check.py same WHEEL DIRECTORY   compares two builds of one wheel
python scripts/wheel_check.py process                loads the modules, with the Python of the wheel
"""

import importlib.metadata
import pathlib
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Libraries of glibc and gcc, which every manylinux wheel may use.
SYSTEM = ("ld-linux-x86-64", "libc", "libm", "libdl", "libpthread", "librt", "libgcc_s",
          "libstdc++")  # fmt: skip
# The newest versions of symbols that RHEL 9, Amazon Linux 2023 and Ubuntu 22.04 all have.
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13)}
DISTRIBUTIONS = ("torch-sluice", "sluice-papers")
TORCH = ("libtorch", "libtorch_cpu", "libtorch_python", "libc10")


def readelf(option: str, file: pathlib.Path) -> list[list[str]]:
    done = subprocess.run(
        ["readelf", "--wide", option, file], check=True, capture_output=True, text=True
    )
    return [line.split() for line in done.stdout.splitlines()]


def needed(file: pathlib.Path) -> set[str]:
    rows = readelf("--dynamic", file)
    return {row[-1].strip("[]").split(".so")[0] for row in rows if "(NEEDED)" in row}


def exported(file: pathlib.Path) -> set[str]:
    """Number, value, size, type, binding, visibility, section, name."""
    rows = [row for row in readelf("--dyn-syms", file) if len(row) >= 8 and row[0].endswith(":")]
    return {row[7] for row in rows if row[4] in ("GLOBAL", "WEAK", "UNIQUE") and row[6] != "UND"}


def too_new(file: pathlib.Path) -> list[str]:
    """Returns the symbols that an older system lacks: `open_tree@GLIBC_2.36`."""
    found = []
    for row in readelf("--dyn-syms", file):
        if len(row) < 8 or row[6] != "UND" or "@" not in row[7]:
            continue
        library, _, numbers = row[7].split("@")[-1].rpartition("_")
        try:
            version = tuple(int(number) for number in numbers.split("."))
        except ValueError:  # GLIBC_PRIVATE and the like have no number
            continue
        if version > NEWEST.get(library, version):
            found.append(row[7])
    return found


def unguarded(file: pathlib.Path, is_optimised: bool = True) -> list[str]:
    """Returns the guards that a program, library or module was built without."""
    dynamic = [" ".join(row) for row in readelf("--dynamic", file)]
    segments = [row[0] for row in readelf("--segments", file) if row]
    imported = {
        row[7].split("@")[0]
        for row in readelf("--dyn-syms", file)
        if len(row) >= 8 and row[6] == "UND"
    }
    guards = {
        "tables that are read-only from the start (-z relro -z now)": "GNU_RELRO" in segments
        and any("BIND_NOW" in row or "Flags: NOW" in row for row in dynamic),
        "canaries on the stack (-fstack-protector-strong)": "__stack_chk_fail" in imported,
        # The text of a precondition of std::vector.
        "checks of the C++ library (_GLIBCXX_ASSERTIONS)": b"__n < this->size()"
        in file.read_bytes(),
    }
    if is_optimised:
        checked = {name for name in imported if name.startswith("__") and name.endswith("_chk")}
        guards["checks of sizes by glibc (_FORTIFY_SOURCE)"] = bool(checked)
    return [f"{file.name} is built without {guard}" for guard, has in guards.items() if not has]


def check_files(site: pathlib.Path, program: pathlib.Path) -> list[str]:
    faults = []
    modules = sorted(site.glob("sluice/**/*.so"))
    if len(modules) < 2:
        faults.append(f"{site} has only {len(modules)} modules")
    for file in [*modules, program]:
        print(f"{file.name} needs {', '.join(sorted(needed(file)))}")
        if foreign := needed(file) - set(SYSTEM) - set(TORCH):
            faults.append(f"{file.name} needs {', '.join(sorted(foreign))}")
        faults += [
            f"{file.name} needs {symbol}, which older systems lack" for symbol in too_new(file)
        ]
        faults += unguarded(file)
        if str(ROOT).encode() in file.read_bytes():
            faults.append(f"{file.name} names {ROOT}, the folder that it was built in")
    for file in modules:
        entry = f"PyInit_{file.name.split('.')[0]}"
        print(f"{file.name} exports {', '.join(sorted(exported(file))[:5])}")
        if exported(file) != {entry}:
            faults.append(f"{file.name} exports {len(exported(file))} symbols, not only {entry}")
    return faults


def loaded() -> set[str]:
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in maps if ".so" in line}


def check_process() -> list[str]:
    """Everything that sluice loads besides Torch and Python's own modules comes with it."""
    import ssl  # noqa: F401 - Python's own OpenSSL

    import torch.distributed  # noqa: F401

    before = loaded()
    import sluice
    from sluice import _c10d  # noqa: F401

    own = str(pathlib.Path(sluice.__file__).parent)
    new = {path for path in loaded() - before if not path.startswith(own)}
    foreign = [
        path
        for path in sorted(new)
        if pathlib.Path(path).name.split(".so")[0] not in SYSTEM
        and not path.startswith((sys.base_prefix, str(pathlib.Path(torch_folder()))))
    ]
    print(f"sluice has loaded {len(foreign)} libraries of the system")
    many = sorted(path for path in loaded() if pathlib.Path(path).name.startswith("libssl"))
    faults = [f"the process has loaded {path}" for path in foreign]
    if len(many) > 1:
        faults.append(f"the process has several OpenSSLs: {', '.join(many)}")
    return faults


def check_papers() -> list[str]:
    """sluice-papers needs torch-sluice of its own version, and torch-sluice has no file of the
    papers."""
    engine, papers = map(importlib.metadata.distribution, DISTRIBUTIONS)
    wanted = f"torch-sluice=={papers.version}"
    faults = (
        [] if wanted in (papers.requires or []) else [f"sluice-papers does not ask for {wanted}"]
    )
    if engine.version != papers.version:
        faults.append(f"torch-sluice {engine.version} is beside sluice-papers {papers.version}")
    files = [{str(file) for file in one.files or []} for one in (engine, papers)]
    print(f"torch-sluice has {len(files[0])} files, sluice-papers {len(files[1])}")
    strangers = [name for name in files[0] if "papers" in name]
    return faults + [f"torch-sluice has {name}" for name in strangers]


def check_same(one: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Compares a wheel with the one of the same name in a folder."""
    other = folder / one.name
    if one.read_bytes() == other.read_bytes():
        print(f"{one.name} has the same bytes in both builds")
        return []
    faults = []
    with zipfile.ZipFile(one) as left, zipfile.ZipFile(other) as right:
        parts = [{entry.filename: entry for entry in wheel.infolist()} for wheel in (left, right)]
        for name in sorted(set(parts[0]) | set(parts[1])):
            if name not in parts[0] or name not in parts[1]:
                faults.append(f"only one build has {name}")
            elif left.read(name) != right.read(name):
                faults.append(f"{name} differs between two builds")
            elif parts[0][name].date_time != parts[1][name].date_time:
                faults.append(f"{name} has another time in each build")
    return faults or [f"{one.name} differs, but none of its files does"]


def torch_folder() -> str:
    import torch

    return str(pathlib.Path(torch.__file__).parent)


def main() -> int:
    match sys.argv[1:]:
        case ["files", site, program]:
            faults = check_files(pathlib.Path(site), pathlib.Path(program))
        case ["hardened", _, *_]:
            faults = [fault for file in sys.argv[2:] for fault in unguarded(pathlib.Path(file))]
        case ["papers"]:
            faults = check_papers()
        case ["process"]:
            faults = check_process()
        case ["same", wheel, folder]:
            faults = check_same(pathlib.Path(wheel), pathlib.Path(folder))
        case _:
            print(__doc__)
            return 2
    for fault in faults:
        print(f"wheel_check: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
