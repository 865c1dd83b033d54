"""Runs the tests of this folder with the module of the build for the address sanitizer:

under_asan.py BUILD [FILE_test.py...]    default: all files but those below

The interpreter has no sanitizer in it, so the shared runtime of clang is loaded before it. Findings
go to files, as tests throw away what many a rank prints, and any file is a failure.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
COMPILER = "clang++-19"
RUNTIME = "libclang_rt.asan-x86_64.so"
# The build for the sanitizer has no modules for a Torch (_c10d), which these are about.
WITHOUT_BACKEND = ("autoload_test.py", "backend_sharded_test.py", "backend_test.py",
                   "group_churn_test.py", "plugs_test.py")  # fmt: skip
# These measure time or memory, which the sanitizer changes.
MEASURING = ("dashboard_test.py", "overlap_test.py", "parts_and_memory_test.py")
OPTIONS = {
    # Python and Torch leave memory behind at their end.
    "detect_leaks": 0,
    # Torch's libraries are built without the sanitizer, and have several copies of some tables.
    "detect_odr_violation": 0,
    "strict_string_checks": 1,
    "abort_on_error": 0,
    "exitcode": 99,
    "allocator_may_return_null": 1,
}


def runtime() -> str:
    asked = [COMPILER, f"-print-file-name={RUNTIME}"]
    found = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(found).is_file():
        sys.exit(f"under_asan: {COMPILER} has no {RUNTIME}; run scripts/install_deps.sh")
    return found


def main() -> int:
    build = Path(sys.argv[1]).resolve()
    if not list((build / "python" / "sluice").glob("_core*.so")):
        sys.exit(f"under_asan: {build} has no module; run: cmake --build {build} -t sluice_core")
    left_out = (*WITHOUT_BACKEND, *MEASURING)
    all_files = sorted(HERE.glob("*_test.py"))
    files = sys.argv[2:] or [str(f) for f in all_files if f.name not in left_out]
    with tempfile.TemporaryDirectory(prefix="sluice-asan-") as folder:
        options = ":".join(f"{name}={value}" for name, value in OPTIONS.items())
        variables = {
            "LD_PRELOAD": runtime(),
            "ASAN_OPTIONS": f"{options}:log_path={folder}/finding",
            "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={folder}/finding",
            # Objects of Python are blocks of the sanitizer, too.
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": str(build / "python"),
        }
        failed = []
        for file in files:
            print(f"{Path(file).name}", flush=True)
            command = [sys.executable, str(HERE / "run.py"), file]
            if subprocess.run(command, env={**os.environ, **variables}).returncode not in (0, 5):
                failed.append(Path(file).name)
        findings = sorted(Path(folder).iterdir())
        for finding in findings:
            print(finding.read_text(errors="replace"))
        if failed or findings:
            print(f"{len(findings)} findings; failed: {', '.join(failed) or 'none'}")
            return 1
    print(f"no finding in {len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
