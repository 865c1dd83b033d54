"""The rights that tests of a lab need: those of root, or of a user who may make namespaces."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77  # the SKIP_RETURN_CODE of the tests in CTest
USER = 61234  # an ordinary user without an account
# The PATH of root may lead to where users cannot go.
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def can_make_a_lab():
    tried = ["unshare", "--user", "--mount", "--map-current-user", "true"]
    return os.geteuid() == 0 or subprocess.run(tried, capture_output=True).returncode == 0


def skip_without_lab():
    if not can_make_a_lab():
        print("skipped: a lab needs root, or a user who may make namespaces")
        sys.exit(SKIPPED)


def as_ordinary_user(*command):
    """Returns the words of a command that root runs as a user without any rights."""
    user = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    return ["setpriv", *user, "env", "-i", f"PATH={PATH}", *map(str, command)]


def run_again_as_ordinary_user(program, *arguments):
    """Runs this test as an ordinary user, from a folder that the user may read, and ends."""
    with tempfile.TemporaryDirectory(prefix="sluice-user-") as folder:
        place = Path(folder)
        shutil.copy(program, place)
        test = Path(sys.argv[0]).resolve()
        for room in (test.parent, Path(__file__).resolve().parent):
            (place / room.name).mkdir()
            for file in room.glob("*.py"):
                shutil.copy(file, place / room.name)
        for path in (place, *place.rglob("*")):
            path.chmod(0o755)
        home = place / "home"
        home.mkdir()
        os.chown(home, USER, USER)
        copy = place / test.parent.name / test.name
        words = as_ordinary_user(f"HOME={home}", "python3", copy, place / "sluice", *arguments)
        ended = subprocess.run(words, cwd=home)
        left = Path(f"/tmp/sluice-{USER}")
        files = [f.name for f in left.rglob("*") if f.is_file() and f.name != "lock"]
        shutil.rmtree(left, ignore_errors=True)
        if files:
            sys.exit(f"left behind in {left}: {files}")
    sys.exit(ended.returncode)
