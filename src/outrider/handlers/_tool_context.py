"""What a tool is told about its call, and can say while it runs.

Does not know how a message gets to the agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outrider.handlers._calling import CallContext

if TYPE_CHECKING:
    from outrider.handlers._origin import Link, Origin
    from outrider.wire import JsonObject


class ToolContext(CallContext):
    """What a tool can know about the call, and say while it runs."""

    def __init__(
        self,
        origin: Origin,
        tool_use_id: str | None = None,
        *,
        tool_name: str = "",
        server_name: str = "",
        link: Link | None = None,
        progress_token: str | int | None = None,
    ) -> None:
        super().__init__(origin, tool_use_id)
        self.tool_name: Final = tool_name
        self.server_name: Final = server_name
        self._link = link
        self._progress_token = progress_token

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the agent how far the call has come. `done` grows with each report, up to `total`, if that is
        known.

        Can be called from async code and from threads. Does nothing if the agent has not asked for it, or the
        call or the session is over.
        """
        link = self._link
        if link is None or self._progress_token is None or self.is_cancelled:
            return
        report: JsonObject = {"progressToken": self._progress_token, "progress": done}
        if total is not None:
            report["total"] = total
        if message is not None:
            report["message"] = message
        link.post({"jsonrpc": "2.0", "method": "notifications/progress", "params": report})

    def end(self) -> None:
        """The call is over: nothing more is reported."""
        self._link = None
