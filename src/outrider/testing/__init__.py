"""For tests of programs that use Outrider: a simulated agent, a scripted model for the real one, cassettes,
faults, and checks for what you write yourself.

No network and no key are needed. Nothing here is for production. Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.testing._api.messages_api import MessagesApi as MessagesApi
    from outrider.testing._api.messages_api import RealAgent as RealAgent
    from outrider.testing._api.messages_api import SideKind as SideKind
    from outrider.testing._api.messages_api import clean_environment as clean_environment
    from outrider.testing._api.requests import KIT_VARIABLE as KIT_VARIABLE
    from outrider.testing._api.requests import Request as Request
    from outrider.testing._api.requests import RequestKind as RequestKind
    from outrider.testing._contracts.contract import ContractBroken as ContractBroken
    from outrider.testing._contracts.store import check_store as check_store
    from outrider.testing._contracts.transport import check_transport as check_transport
    from outrider.testing._faults import Fault as Fault
    from outrider.testing._faults import Faults as Faults
    from outrider.testing._faults import Faulty as Faulty
    from outrider.testing._replay.cassette import Replay as Replay
    from outrider.testing._replay.cassette import conversation as conversation
    from outrider.testing._replay.cassette import record as record
    from outrider.testing._replay.cassette import replay as replay
    from outrider.testing._replay.replay import ReplayMismatch as ReplayMismatch
    from outrider.testing._script.script import Expectation as Expectation
    from outrider.testing._script.script import ExpectationFailed as ExpectationFailed
    from outrider.testing._script.script import Item as Item
    from outrider.testing._script.script import Script as Script
    from outrider.testing._script.script import Scripted as Scripted
    from outrider.testing._script.script import ScriptSource as ScriptSource
    from outrider.testing._script.script import When as When
    from outrider.testing._script.script import ask_question as ask_question
    from outrider.testing._script.script import background_task as background_task
    from outrider.testing._script.script import exit_plan_mode as exit_plan_mode
    from outrider.testing._script.script import expect as expect
    from outrider.testing._script.script import structured as structured
    from outrider.testing._script.script import subagent as subagent
    from outrider.testing._script.script import when as when
    from outrider.testing._script.steps import CREDIT_TOO_LOW as CREDIT_TOO_LOW
    from outrider.testing._script.steps import PROMPT_TOO_LONG as PROMPT_TOO_LONG
    from outrider.testing._script.steps import Answer as Answer
    from outrider.testing._script.steps import Block as Block
    from outrider.testing._script.steps import Drop as Drop
    from outrider.testing._script.steps import Failure as Failure
    from outrider.testing._script.steps import Gate as Gate
    from outrider.testing._script.steps import Hang as Hang
    from outrider.testing._script.steps import Step as Step
    from outrider.testing._script.steps import Text as Text
    from outrider.testing._script.steps import Thinking as Thinking
    from outrider.testing._script.steps import ToolUse as ToolUse
    from outrider.testing._script.steps import answer as answer
    from outrider.testing._script.steps import drop as drop
    from outrider.testing._script.steps import fail as fail
    from outrider.testing._script.steps import hang as hang
    from outrider.testing._script.steps import refuse as refuse
    from outrider.testing._script.steps import say as say
    from outrider.testing._script.steps import think as think
    from outrider.testing._script.steps import use_tool as use_tool
    from outrider.testing._simulator.transport import SIMULATED_VERSION as SIMULATED_VERSION
    from outrider.testing._simulator.transport import Simulator as Simulator
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
