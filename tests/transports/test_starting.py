"""A child that is started but can have no supervisor is killed."""

from __future__ import annotations

import errno
import os

import pytest

from outrider.errors import LaunchError
from outrider.transports._process import supervisor as _supervisor
from tests.transports.conftest import impatient, own_processes

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", ["EventFd", "WakeupFd", "Output"])
async def test_when_no_file_can_be_opened_for_the_keeper_the_child_is_killed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(_supervisor, name, refuse)
    transport = impatient("ignores_everything")
    with pytest.raises(LaunchError, match="no more files can be opened"):
        await transport.connect()
    assert own_processes() == []
