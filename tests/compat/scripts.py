"""Loads the programs of `scripts/` that compare with the reference, and runs them where it is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "scripts"

_VARIABLE = "OUTRIDER_REFERENCE"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


def reference_python() -> str:
    """The interpreter that has the reference. Skips the test unless `make parity` has given it, so that a run
    of the tests is the same wherever the reference is installed and where it is not."""
    if _VARIABLE not in os.environ:
        pytest.skip("`make parity` asks the reference")
    return os.environ[_VARIABLE]


def run_reference(*arguments: str, cwd: Path) -> str:
    """What a program prints in the reference's environment."""
    command = [reference_python(), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout
