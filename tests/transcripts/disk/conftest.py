"""Set-up for the tests of sessions on disk."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.transcripts.disk.shelf import Shelf

NOBODY = 65534


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "config")


@pytest.fixture
def users_shelf() -> Iterator[Shelf]:
    """The shelf of a user who may not read everything, as whom the test runs: root may."""
    if sys.platform == "win32":
        pytest.skip("everything may be read by this user")
    # Not below the folder of pytest, which is root's alone.
    folder = Path(mkdtemp())
    before = os.geteuid()
    if not before:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield Shelf(folder / "config")
    finally:
        os.seteuid(before)
        shutil.rmtree(folder)
