"""For tests of programs that use Outrider: a simulated agent, a scripted model for the real one, cassettes,
faults, and checks for what you write yourself.

No network and no key are needed. Nothing here is for production. Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.testing._agent import KIT_VARIABLE, RealAgent, clean_environment
    from outrider.testing._api import MessagesApi, SideKind
    from outrider.testing._cassettes import Replay, record, replay
    from outrider.testing._check_store import check_store
    from outrider.testing._check_transport import check_transport
    from outrider.testing._contract import ContractBroken
    from outrider.testing._conversation import conversation
    from outrider.testing._faults import Fault, Faults
    from outrider.testing._faulty import Faulty
    from outrider.testing._gate import Gate
    from outrider.testing._matching import Expectation, ExpectationFailed, When, expect, when
    from outrider.testing._replay_matching import ReplayMismatch
    from outrider.testing._requests import Request, RequestKind
    from outrider.testing._script import Item, Script, Scripted, ScriptSource
    from outrider.testing._simulator._transport import SIMULATED_VERSION, Simulator
    from outrider.testing._steps import (
        CREDIT_TOO_LOW,
        PROMPT_TOO_LONG,
        Answer,
        Block,
        Drop,
        Failure,
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
    from outrider.testing._words import ask_question, background_task, exit_plan_mode, structured, subagent

_HOMES = {
    "_agent": (
        "KIT_VARIABLE",
        "RealAgent",
        "clean_environment",
    ),
    "_api": (
        "MessagesApi",
        "SideKind",
    ),
    "_cassettes": (
        "Replay",
        "record",
        "replay",
    ),
    "_check_store": ("check_store",),
    "_check_transport": ("check_transport",),
    "_contract": ("ContractBroken",),
    "_conversation": ("conversation",),
    "_faults": (
        "Fault",
        "Faults",
    ),
    "_faulty": ("Faulty",),
    "_gate": ("Gate",),
    "_matching": (
        "Expectation",
        "ExpectationFailed",
        "When",
        "expect",
        "when",
    ),
    "_replay_matching": ("ReplayMismatch",),
    "_requests": (
        "Request",
        "RequestKind",
    ),
    "_script": (
        "Item",
        "Script",
        "ScriptSource",
        "Scripted",
    ),
    "_simulator._transport": (
        "SIMULATED_VERSION",
        "Simulator",
    ),
    "_steps": (
        "CREDIT_TOO_LOW",
        "PROMPT_TOO_LONG",
        "Answer",
        "Block",
        "Drop",
        "Failure",
        "Hang",
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
    "_words": (
        "ask_question",
        "background_task",
        "exit_plan_mode",
        "structured",
        "subagent",
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
