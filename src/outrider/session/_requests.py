"""Owns `Requests`: all that a session can ask the agent, each question a method with a typed answer.

Does not know how a request travels, nor what a turn is.
"""

from __future__ import annotations

from outrider.session._requests_asking import UNSET, Asking, Timeout, Unset
from outrider.session._requests_conversation import ConversationRequests
from outrider.session._requests_files import FileRequests
from outrider.session._requests_mcp import McpRequests
from outrider.session._requests_settings import SettingsRequests

__all__ = ["UNSET", "Asking", "Requests", "Timeout", "Unset"]


class Requests(ConversationRequests, SettingsRequests, FileRequests, McpRequests):
    """The questions that a session can ask the agent, beside the prompts.

    They can be asked at any time, also during a turn. Every one takes `timeout`, in seconds: if it is left
    out, the session's `timeouts.control` counts; None waits for ever. Each may raise

    - `RequestFailed` if the agent refuses: its words are the message, its `code` tells why where it has one;
    - `Unsupported`, which is one of these, if the program that runs does not know the request;
    - `RequestTimedOut`, another, if no answer comes in time;
    - `ConnectionLost` if none can come any more;
    - `OptionsError` for an argument that cannot be meant; then nothing was sent.

    Cancelling a call takes the request back. What has no method here can be asked with `request`.
    """
