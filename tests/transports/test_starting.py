"""A child that is started but cannot be kept is not left to itself."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from outrider.errors import LaunchError
from outrider.transports._process import polling, supervisor
from tests.transports.conftest import impatient, own_processes

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("module, name", [(supervisor, "Flag"), (polling, "Bell"), (polling, "Output")])
async def test_when_no_file_can_be_opened_for_the_keeper_the_child_is_killed(
    module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(module, name, refuse)
    transport = impatient("ignores_everything")
    with pytest.raises(LaunchError, match="no more files can be opened"):
        await transport.connect()
    assert own_processes() == []
