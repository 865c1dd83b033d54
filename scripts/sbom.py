"""Prints the bill of materials of a wheel as CycloneDX JSON: the C and C++ libraries linked in, and
the Python packages that it asks for. Tools that read an environment do not see the former.

scripts/sbom.py build/static/libraries.txt > torch-sluice.cdx.json
"""

import json
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).parent.parent


def own_version() -> str:
    text = (ROOT / "CMakeLists.txt").read_text()
    found = re.search(r"project\(sluice VERSION ([0-9.]+)", text)
    assert found, "CMakeLists.txt has no version"
    return found[1]


def library(line: str) -> dict:
    """A line is: name, version, licence. Debian's versions have a revision after a dash."""
    name, version, licence = line.split()
    kind = "deb/debian" if "-" in version else "generic"
    purl = f"pkg:{kind}/{name}@{version.replace(':', '%3A').replace('+', '%2B')}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{"license": {"id": licence}}],
        "scope": "required",
    }


def requirement(text: str) -> dict:
    """`torch>=2.6`: the version is chosen by the user."""
    name = re.match(r"[\w.-]+", text)[0]
    purl = f"pkg:pypi/{name}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "description": f"asked for as {text}, not in the wheel",
        "purl": purl,
        "scope": "required",
    }


def bill(lines: list[str]) -> dict:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = own_version()
    own = f"pkg:pypi/{project['name']}@{version}"
    parts = [library(line) for line in lines] + [requirement(r) for r in project["dependencies"]]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": project["name"],
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": [part["bom-ref"] for part in parts]}],
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
    print(json.dumps(bill(lines), indent=2))
