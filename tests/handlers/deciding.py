"""Permission callbacks without a session, for the tests of this folder.

Does not check anything.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from outrider.handlers import PermissionRequest
from outrider.handlers._permissions.elicitation import Dialogs, Elicitations
from outrider.handlers._permissions.requests import Permissions
from outrider.options._tool_names import ANY_TOOL
from outrider.wire import JsonObject
from outrider.wire.control import CanUseTool, Elicitation, RequestUserDialog
from tests.handlers.hooking import Unlimited

ID = "toolu_1"
LS: JsonObject = {"command": "ls", "description": "Look"}

QUESTIONS: list[JsonObject] = [
    {
        "question": "Which library?",
        "header": "Library",
        "options": [
            {"label": "httpx", "description": "Modern", "preview": "import httpx"},
            {"label": "aiohttp", "description": "Old"},
        ],
        "multiSelect": False,
    },
    {
        "question": "Which checks?",
        "header": "Checks",
        "options": [{"label": "types", "description": "T"}, {"label": "lint", "description": "L"}],
        "multiSelect": True,
    },
]
PLAN: JsonObject = {"plan": "# Plan\n1. Write\n", "planFilePath": "/plans/a.md"}


class Asker(Unlimited):
    """A session and a turn, as far as permissions and policies look at them."""

    tool_names = ANY_TOOL

    def __init__(self, cwd: str = "/project", runner: Any = None, began: str | None = None) -> None:
        init = None if began is None else SimpleNamespace(original_cwd=began)
        self.session: Any = SimpleNamespace(
            info=SimpleNamespace(cwd=cwd, init=init), options=SimpleNamespace(cwd=None, runner=runner)
        )
        self.turn: Any = "the turn"


def can_use(tool: str = "Bash", input: JsonObject | None = None, **fields: object) -> CanUseTool:
    """What the agent asks."""
    data = {"tool_name": tool, "input": LS if input is None else input, "tool_use_id": ID} | fields
    return CanUseTool.from_wire(data)


def request(
    tool: str = "Bash", input: JsonObject | None = None, *, cwd: str = "/project", **fields: object
) -> PermissionRequest:
    return PermissionRequest(can_use(tool, input, **fields), Asker(cwd))


class Decider:
    """Permissions, and what they reported."""

    def __init__(
        self,
        permission: Callable[..., object] | None = None,
        *,
        on_question: Callable[..., object] | None = None,
        on_plan: Callable[..., object] | None = None,
        timeout: float | None = None,
    ) -> None:
        self.reports: list[Any] = []
        """Of `PermissionHandled`."""
        self.permissions = Permissions(
            permission, on_question, on_plan, self.reports.append, lambda: ANY_TOOL, timeout
        )

    async def answer(
        self, tool: str = "Bash", input: JsonObject | None = None, **fields: object
    ) -> JsonObject:
        return await self.permissions.answer(can_use(tool, input, **fields), Asker())

    @property
    def report(self) -> Any:
        """The only one."""
        (only,) = self.reports
        return only


class Elicited:
    """What is answered to servers, and what was reported of it."""

    def __init__(self, callback: Callable[..., object] | None, timeout: float | None = None) -> None:
        self.reports: list[Any] = []
        self.elicitations = Elicitations(callback, self.reports.append, timeout)

    async def answer(self, **fields: object) -> JsonObject:
        data = {"mcp_server_name": "good", "message": "Who are you?", "mode": "form"} | fields
        return await self.elicitations.answer(Elicitation.from_wire(data), Asker())

    @property
    def report(self) -> Any:
        (only,) = self.reports
        return only


class Dialog:
    """What is answered to dialogs, and what was reported of it."""

    def __init__(self, callback: Callable[..., object], timeout: float | None = None) -> None:
        self.reports: list[Any] = []
        self.dialogs = Dialogs(callback, self.reports.append, timeout)

    async def answer(self, **fields: object) -> JsonObject:
        data = {"dialog_kind": "refusal_fallback_prompt", "payload": {"a": 1}, "tool_use_id": ID} | fields
        return await self.dialogs.answer(RequestUserDialog.from_wire(data), Asker())

    @property
    def report(self) -> Any:
        (only,) = self.reports
        return only
