"""Shim: what `query` goes through in the reference SDK, for tests that put something else in its place."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING, Any

from outrider.compat._internal.transport.subprocess_cli import SubprocessCLITransport
from outrider.compat.query import MessageStream

if TYPE_CHECKING:
    from outrider import transports
    from outrider.compat._transport import Transport
    from outrider.compat._types.options import ClaudeAgentOptions
    from outrider.wire import Message

__all__ = ["InternalClient", "SubprocessCLITransport"]


class InternalClient:
    """Runs prompts for `query`."""

    def process_query(
        self,
        prompt: str | AsyncIterable[dict[str, Any]],
        options: ClaudeAgentOptions,
        transport: Transport | transports.Transport | None = None,
    ) -> AsyncIterator[Message]:
        """The messages of a run."""
        return MessageStream(prompt, options, transport, SubprocessCLITransport)
