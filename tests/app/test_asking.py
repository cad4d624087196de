"""What the agent asks, without an agent."""

from __future__ import annotations

import anyio
import pytest

from bridle.app._asking import Asker
from bridle.app._stream import Stream
from bridle.app._terminal import Terminal
from bridle.handlers import ElicitationRequest
from bridle.wire.control import Elicitation
from tests.handlers.deciding import Asker as Origin


def test_a_form_of_an_mcp_server_is_declined_with_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    asker = Asker(terminal, Stream(terminal), cwd=None)
    wire = {"subtype": "elicitation", "mcp_server_name": "deploy", "message": "Which\n\x1b[31mregion?"}
    request = ElicitationRequest(Elicitation.from_wire(wire), Origin())
    assert anyio.run(asker.decline, request).action == "decline"
    assert asker.fields().get("on_elicitation") == asker.decline
    assert capsys.readouterr().err == (
        "declined: the MCP server deploy asks: Which \ufffd[31mregion? (bridle answers no forms)\n"
    )
