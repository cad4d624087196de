"""Loads the programs of `scripts/` that compare with the reference, and runs them where it is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import reference

FOLDER = Path(__file__).parents[2] / "scripts"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


def run_reference(*arguments: str, cwd: Path) -> str:
    """What a program prints in the reference's environment. Skips the test where there is none: the tests do
    not install it."""
    stamp = reference.FOLDER / "installed"
    wanted = reference.PIN.read_text(encoding="utf-8")
    if not stamp.exists() or not stamp.read_text(encoding="utf-8").startswith(wanted):
        pytest.skip("the reference is not installed: `make parity` does")
    command = [str(reference.FOLDER / "bin" / "python"), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout
