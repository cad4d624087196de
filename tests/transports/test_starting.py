"""A child that is started but cannot be supervised is killed."""

from __future__ import annotations

import errno
import os

import pytest

from outrider.errors import LaunchError
from outrider.transports._process import child as _child
from tests.transports.conftest import impatient, own_processes

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", ["Leader", "Output", "_open_pidfd"])
async def test_when_no_file_can_be_opened_to_supervise_it_the_child_is_killed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(_child, name, refuse)
    transport = impatient("ignores_everything")
    with pytest.raises(LaunchError, match="no more files can be opened"):
        await transport.connect()
    assert own_processes() == []
