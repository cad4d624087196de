"""Drives Claude Code as a child process, and keeps its promises even if that process does not.

Names are loaded when they are first used, so that `import outrider` costs next to nothing.
"""

import importlib as _importlib
import os as _os
import sys as _sys
from threading import get_ident as _get_ident
from typing import TYPE_CHECKING

from outrider._lazy import lazily
from outrider._version import MINIMUM_AGENT_VERSION as MINIMUM_AGENT_VERSION
from outrider._version import __version__ as __version__

if TYPE_CHECKING:
    from outrider import acp as acp
    from outrider import answers as answers
    from outrider import approvals as approvals
    from outrider import command as command
    from outrider import compat as compat
    from outrider import errors as errors
    from outrider import fleet as fleet
    from outrider import handlers as handlers
    from outrider import launch as launch
    from outrider import messages as messages
    from outrider import options as options
    from outrider import runners as runners
    from outrider import session as session
    from outrider import sync as sync
    from outrider import telemetry as telemetry
    from outrider import testing as testing
    from outrider import transcripts as transcripts
    from outrider import transports as transports
    from outrider import view as view
    from outrider import wire as wire
    from outrider.approvals import Approval as Approval
    from outrider.approvals import Approvals as Approvals
    from outrider.approvals import SessionParked as SessionParked
    from outrider.errors import AgentNotFound as AgentNotFound
    from outrider.errors import ApiFailed as ApiFailed
    from outrider.errors import ConnectionLost as ConnectionLost
    from outrider.errors import Denied as Denied
    from outrider.errors import LaunchError as LaunchError
    from outrider.errors import LimitReached as LimitReached
    from outrider.errors import OptionsError as OptionsError
    from outrider.errors import OutputInvalid as OutputInvalid
    from outrider.errors import OutriderError as OutriderError
    from outrider.errors import ProcessExited as ProcessExited
    from outrider.errors import RequestFailed as RequestFailed
    from outrider.errors import SessionNotFound as SessionNotFound
    from outrider.errors import StoreError as StoreError
    from outrider.errors import ToolFailed as ToolFailed
    from outrider.errors import TurnFailed as TurnFailed
    from outrider.errors import TurnInterrupted as TurnInterrupted
    from outrider.errors import TurnTimedOut as TurnTimedOut
    from outrider.errors import UsageError as UsageError
    from outrider.handlers import Answer as Answer
    from outrider.handlers import HookContext as HookContext
    from outrider.handlers import Image as Image
    from outrider.handlers import PermissionRequest as PermissionRequest
    from outrider.handlers import Plan as Plan
    from outrider.handlers import Policy as Policy
    from outrider.handlers import Question as Question
    from outrider.handlers import Rule as Rule
    from outrider.handlers import Tool as Tool
    from outrider.handlers import ToolContext as ToolContext
    from outrider.handlers import ToolResult as ToolResult
    from outrider.handlers import ToolServer as ToolServer
    from outrider.handlers import allow as allow
    from outrider.handlers import deny as deny
    from outrider.handlers import hook as hook
    from outrider.handlers import tool as tool
    from outrider.options import AgentDefinition as AgentDefinition
    from outrider.options import HttpServer as HttpServer
    from outrider.options import Isolation as Isolation
    from outrider.options import Options as Options
    from outrider.options import Sandbox as Sandbox
    from outrider.options import SseServer as SseServer
    from outrider.options import StdioServer as StdioServer
    from outrider.options import Timeouts as Timeouts
    from outrider.options import Trace as Trace
    from outrider.session import CancelReceipt as CancelReceipt
    from outrider.session import Prompt as Prompt
    from outrider.session import Queued as Queued
    from outrider.session import Result as Result
    from outrider.session import Session as Session
    from outrider.session import SessionInfo as SessionInfo
    from outrider.session import SessionState as SessionState
    from outrider.session import Turn as Turn
    from outrider.session import Usage as Usage
    from outrider.session import document as document
    from outrider.session import go_on as go_on
    from outrider.session import image as image
    from outrider.session import resolve_settings as resolve_settings
    from outrider.session import run as run
    from outrider.session import stream as stream
    from outrider.transcripts import Sessions as Sessions
    from outrider.wire import AssistantMessage as AssistantMessage
    from outrider.wire import ContentBlock as ContentBlock
    from outrider.wire import InitMessage as InitMessage
    from outrider.wire import Message as Message
    from outrider.wire import ResultMessage as ResultMessage
    from outrider.wire import StreamEvent as StreamEvent
    from outrider.wire import SystemMessage as SystemMessage
    from outrider.wire import TextBlock as TextBlock
    from outrider.wire import ThinkingBlock as ThinkingBlock
    from outrider.wire import ToolResultBlock as ToolResultBlock
    from outrider.wire import ToolUseBlock as ToolUseBlock
    from outrider.wire import UnknownMessage as UnknownMessage
    from outrider.wire import UserMessage as UserMessage
else:
    __getattr__, __dir__, __all__ = lazily(__name__)


def _load_anew() -> None:
    """In a forked process: forget the modules that threads of its parent were just loading.

    Nothing here would ever release their locks, and an import of one would hang. None of this is public in
    Python; where it has another name, a fork is what it is without Outrider.
    """
    locks = getattr(vars(_importlib)["_bootstrap"], "_module_locks", {})
    for name, reference in tuple(locks.items()):
        if getattr(reference(), "owner", None) not in (None, _get_ident()):
            locks.pop(name, None)
            spec = getattr(_sys.modules.get(name), "__spec__", None)
            if getattr(spec, "_initializing", False):
                _sys.modules.pop(name, None)


if _sys.platform != "win32":
    _os.register_at_fork(after_in_child=_load_anew)
