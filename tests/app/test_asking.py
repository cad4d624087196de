"""What the agent asks, without an agent."""

from __future__ import annotations

import anyio
import pytest

from outrider.app._ask import Asker
from outrider.app._render import Stream
from outrider.app._terminal import Terminal
from outrider.handlers import ElicitationRequest
from outrider.wire.control import Elicitation
from tests.handlers.deciding import Asker as Origin


def test_a_form_of_an_mcp_server_is_declined_with_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    asker = Asker(terminal, Stream(terminal), cwd=None)
    wire = {"subtype": "elicitation", "mcp_server_name": "deploy", "message": "Which\n\x1b[31mregion?"}
    request = ElicitationRequest(Elicitation.from_wire(wire), Origin())
    assert anyio.run(asker.decline, request).action == "decline"
    assert asker.fields().get("on_elicitation") == asker.decline
    assert capsys.readouterr().err == (
        "declined: the MCP server deploy asks: Which \ufffd[31mregion? (outrider does not fill in forms)\n"
    )
