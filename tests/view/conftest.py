"""Set-up for the tests of the viewer."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider import Sessions
from outrider.view import View, app
from tests.view import sample


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration folder with the sample in it."""
    folder = tmp_path / "config"
    sample.write(folder)
    return folder


@pytest.fixture
def view(config: Path) -> View:
    return app(Sessions(config=config))
