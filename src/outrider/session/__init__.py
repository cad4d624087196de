"""Conversations with an agent: `run`, `stream`, `Session`, `Turn` and what they come to.

The only place where transports meet what answers the agent. How the agent is started is decided below.
"""

from outrider.session._connection.observers import EventReader, Observed, Observer, observe
from outrider.session._connection.tasks import Background, background
from outrider.session._info import SessionInfo
from outrider.session._prompts import Prompt, document, image
from outrider.session._requests import UNSET, Requests, Timeout, Unset
from outrider.session._result import Result, UnfinishedTask
from outrider.session._run import TurnContext, run, stream
from outrider.session._session import Session, SessionState
from outrider.session._streams.stream import Reader
from outrider.session._turn import CancelReceipt, Queued, TextReader, Turn
from outrider.session._usage import Usage

__all__ = [
    "UNSET",
    "Background",
    "CancelReceipt",
    "EventReader",
    "Observed",
    "Observer",
    "Prompt",
    "Queued",
    "Reader",
    "Requests",
    "Result",
    "Session",
    "SessionInfo",
    "SessionState",
    "TextReader",
    "Timeout",
    "Turn",
    "TurnContext",
    "UnfinishedTask",
    "Unset",
    "Usage",
    "background",
    "document",
    "image",
    "observe",
    "run",
    "stream",
]
