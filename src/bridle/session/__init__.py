"""Conversations with an agent: `run`, `stream`, `Session`, `Turn` and what they come to.

The only place where transports meet what answers the agent. How the agent is started is decided below.
"""

from bridle.session._background import Background, background
from bridle.session._following import Following
from bridle.session._info import SessionInfo
from bridle.session._observing import Observed, Observer, observe
from bridle.session._prompts import Prompt, document, image
from bridle.session._requests import UNSET, Requests, Timeout, Unset
from bridle.session._result import Result, UnfinishedTask
from bridle.session._run import TurnContext, run, stream
from bridle.session._session import Session, SessionState
from bridle.session._stream import Reader
from bridle.session._turn import CancelReceipt, Queued, TextReader, Turn
from bridle.session._usage import Usage

__all__ = [
    "UNSET",
    "Background",
    "CancelReceipt",
    "Following",
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
