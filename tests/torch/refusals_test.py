"""What must not be called is refused in one line: a module for another Torch, a table of another
version. And the maker of stand-ins for CUDA's libraries, on a library of ten lines."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cuda_import
from sluice import _c10d, _core

MODULE = next(Path(_c10d.__file__).parent.glob(f"torch_{_c10d.torch_release.replace('.', '_')}.*"))


def said_with_another_torch(code: str) -> str:
    """Returns what a program prints in which Torch says that it is another release."""
    program = f"import torch\ntorch.__version__ = '2.99.1'\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return done.stdout.strip()


def test_a_module_refuses_another_torch() -> None:
    said = said_with_another_torch(
        "import importlib.util as util\n"
        f"spec = util.spec_from_file_location('{MODULE.name.split('.')[0]}', '{MODULE}')\n"
        "try:\n    spec.loader.exec_module(util.module_from_spec(spec))\n"
        "except ImportError as error:\n    print(error)"
    )
    release = _c10d.torch_release
    assert said == f"this module is for Torch {release}, and this is Torch 2.99.1"


def test_the_chooser_names_what_there_is() -> None:
    said = said_with_another_torch(
        "try:\n    import sluice._c10d\nexcept ImportError as error:\n    print(error)"
    )
    assert said.startswith("this is Torch 2.99, and the backend was built for Torch: ")
    assert _c10d.torch_release in said


@pytest.mark.parametrize("change", ["version", "size"])
def test_a_table_of_another_version_is_refused(change: str) -> None:
    size = ctypes.c_uint32.from_address(_core.table + 4).value
    table = ctypes.create_string_buffer(ctypes.string_at(_core.table, size), size)
    ctypes.c_uint32.from_buffer(table, 0 if change == "version" else 4).value += (
        1 if change == "version" else -8
    )
    with pytest.raises(ImportError) as refused:
        _c10d._module.attach(ctypes.addressof(table))
    assert "pip install --force-reinstall --no-deps torch-sluice" in str(refused.value)


def test_stand_ins_are_loaded_and_return_1(tmp_path: Path) -> None:
    source, libraries = tmp_path / "user.c", tmp_path / "torch"
    libraries.mkdir()
    source.write_text("int cublasMadeUp(void);\nint answer(void) { return cublasMadeUp(); }\n")
    (tmp_path / "made.c").write_text("int cublasMadeUp(void) { return 7; }\n")
    (tmp_path / "made.map").write_text("libcublas.so.99 { global: cublasMadeUp; };\n")
    real = tmp_path / "libcublas.so.99"
    compile_it = ["cc", "-shared", "-fPIC"]
    subprocess.run(
        [*compile_it, tmp_path / "made.c", "-o", real, "-Wl,-soname,libcublas.so.99",
         f"-Wl,--version-script={tmp_path / 'made.map'}"], check=True,
    )  # fmt: skip
    user = libraries / "libuser.so"
    subprocess.run(
        [*compile_it, source, real, "-o", user, f"-Wl,-rpath,{tmp_path / 'out'}"], check=True
    )
    real.unlink()
    assert cuda_import.stand_ins(libraries, tmp_path / "out", []) == ["libcublas.so.99"]
    assert ctypes.CDLL(str(user)).answer() == 1
