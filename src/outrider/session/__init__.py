"""Conversations with an agent: `run`, `stream`, `Session`, `Turn` and what they come to.

The only place where transports meet what answers the agent. How the agent is started is decided below.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.session._connection.observers import EventReader as EventReader
    from outrider.session._connection.observers import Observed as Observed
    from outrider.session._connection.observers import Observer as Observer
    from outrider.session._connection.observers import observe as observe
    from outrider.session._connection.tasks import Background as Background
    from outrider.session._connection.tasks import background as background
    from outrider.session._info import SessionInfo as SessionInfo
    from outrider.session._prompts import Prompt as Prompt
    from outrider.session._prompts import document as document
    from outrider.session._prompts import image as image
    from outrider.session._requests import UNSET as UNSET
    from outrider.session._requests import Requests as Requests
    from outrider.session._requests import Timeout as Timeout
    from outrider.session._requests import Unset as Unset
    from outrider.session._result import Result as Result
    from outrider.session._result import ToolRun as ToolRun
    from outrider.session._result import UnfinishedTask as UnfinishedTask
    from outrider.session._session import Session as Session
    from outrider.session._session import SessionState as SessionState
    from outrider.session._session import TurnContext as TurnContext
    from outrider.session._session import go_on as go_on
    from outrider.session._session import resolve_settings as resolve_settings
    from outrider.session._session import run as run
    from outrider.session._session import stream as stream
    from outrider.session._streams.stream import Reader as Reader
    from outrider.session._turn import CancelReceipt as CancelReceipt
    from outrider.session._turn import Queued as Queued
    from outrider.session._turn import TextReader as TextReader
    from outrider.session._turn import Turn as Turn
    from outrider.session._usage import Usage as Usage
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
