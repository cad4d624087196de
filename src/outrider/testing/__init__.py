"""For tests of programs that use Outrider: a simulated agent, a scripted model for the real one, cassettes,
faults, and checks for what you write yourself.

No network and no key are needed. Nothing here is for production. Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.testing._api.messages_api import MessagesApi, SideKind
    from outrider.testing._api.real_agent import KIT_VARIABLE, RealAgent, clean_environment
    from outrider.testing._api.requests import Request, RequestKind
    from outrider.testing._contracts.contract import ContractBroken
    from outrider.testing._contracts.store import check_store
    from outrider.testing._contracts.transport import check_transport
    from outrider.testing._faults.faults import Fault, Faults, Faulty
    from outrider.testing._replay.cassette import Replay, conversation, record, replay
    from outrider.testing._replay.replay import ReplayMismatch
    from outrider.testing._script.script import (
        Expectation,
        ExpectationFailed,
        Item,
        Script,
        Scripted,
        ScriptSource,
        When,
        ask_question,
        background_task,
        exit_plan_mode,
        expect,
        structured,
        subagent,
        when,
    )
    from outrider.testing._script.steps import (
        CREDIT_TOO_LOW,
        PROMPT_TOO_LONG,
        Answer,
        Block,
        Drop,
        Failure,
        Gate,
        Hang,
        Step,
        Text,
        Thinking,
        ToolUse,
        answer,
        drop,
        fail,
        hang,
        refuse,
        say,
        think,
        use_tool,
    )
    from outrider.testing._simulator.transport import SIMULATED_VERSION, Simulator

_HOMES = {
    "_api.messages_api": (
        "MessagesApi",
        "SideKind",
    ),
    "_api.real_agent": (
        "KIT_VARIABLE",
        "RealAgent",
        "clean_environment",
    ),
    "_api.requests": (
        "Request",
        "RequestKind",
    ),
    "_contracts.contract": ("ContractBroken",),
    "_contracts.store": ("check_store",),
    "_contracts.transport": ("check_transport",),
    "_faults.faults": (
        "Fault",
        "Faults",
        "Faulty",
    ),
    "_replay.cassette": (
        "Replay",
        "conversation",
        "record",
        "replay",
    ),
    "_replay.replay": ("ReplayMismatch",),
    "_script.script": (
        "Expectation",
        "ExpectationFailed",
        "Item",
        "Script",
        "ScriptSource",
        "Scripted",
        "When",
        "ask_question",
        "background_task",
        "exit_plan_mode",
        "expect",
        "structured",
        "subagent",
        "when",
    ),
    "_script.steps": (
        "Answer",
        "Block",
        "CREDIT_TOO_LOW",
        "Drop",
        "Failure",
        "Gate",
        "Hang",
        "PROMPT_TOO_LONG",
        "Step",
        "Text",
        "Thinking",
        "ToolUse",
        "answer",
        "drop",
        "fail",
        "hang",
        "refuse",
        "say",
        "think",
        "use_tool",
    ),
    "_simulator.transport": (
        "SIMULATED_VERSION",
        "Simulator",
    ),
}
"""Where the names are."""

__getattr__, __dir__ = lazily(__name__, _HOMES)

__all__ = [
    # What a test starts.
    "Simulator",
    "MessagesApi",
    "RealAgent",
    "SIMULATED_VERSION",
    "KIT_VARIABLE",
    "clean_environment",
    # The words of a script.
    "answer",
    "ask_question",
    "background_task",
    "drop",
    "exit_plan_mode",
    "expect",
    "fail",
    "hang",
    "refuse",
    "say",
    "structured",
    "subagent",
    "think",
    "use_tool",
    "when",
    "CREDIT_TOO_LOW",
    "PROMPT_TOO_LONG",
    "Gate",
    "Script",
    # What they make.
    "Answer",
    "Block",
    "Drop",
    "Expectation",
    "ExpectationFailed",
    "Failure",
    "Hang",
    "Item",
    "ScriptSource",
    "Scripted",
    "Step",
    "Text",
    "Thinking",
    "ToolUse",
    "When",
    # What is kept.
    "Request",
    "RequestKind",
    "SideKind",
    # Cassettes.
    "Replay",
    "ReplayMismatch",
    "conversation",
    "record",
    "replay",
    # Faults, and checks of what users write.
    "ContractBroken",
    "Fault",
    "Faults",
    "Faulty",
    "check_store",
    "check_transport",
]
