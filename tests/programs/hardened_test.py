"""Tests that the program, the library and the modules have the guards of cmake/SluiceOptions.cmake:

hardened_test.py CONFIGURATION FILE...
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import wheel_check

configuration, *files = sys.argv[1:]
faults = []
for file in files:
    faults += wheel_check.unguarded(Path(file), is_optimised=configuration == "Release")
if faults:
    sys.exit("\n".join(faults))
with tempfile.TemporaryDirectory() as folder:
    # The check sees a file without guards.
    source, bare = Path(folder, "bare.c"), Path(folder, "bare")
    source.write_text("int main(void) { return 0; }\n")
    compiler = ["cc", "-fno-stack-protector", "-Wl,-z,norelro,-z,lazy", "-o", bare, source]
    wheel_check.subprocess.run(compiler, check=True)
    found = wheel_check.unguarded(bare)
    assert len(found) == 4, found
print(f"{len(files)} files have all guards")
