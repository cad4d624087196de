"""For tests of programs that use Bridle: a scripted Messages API, and the real agent in front of it.

No network and no key are needed. Nothing here is for production.
"""

from bridle.testing._agent import RealAgent, clean_environment
from bridle.testing._api import MessagesApi, Scripted, SideKind
from bridle.testing._gate import Gate
from bridle.testing._requests import Request, RequestKind
from bridle.testing._steps import (
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

__all__ = [
    # What a test starts.
    "MessagesApi",
    "RealAgent",
    "clean_environment",
    # The words of a script.
    "answer",
    "drop",
    "fail",
    "hang",
    "refuse",
    "say",
    "think",
    "use_tool",
    "CREDIT_TOO_LOW",
    "PROMPT_TOO_LONG",
    "Gate",
    # What they make.
    "Answer",
    "Block",
    "Drop",
    "Failure",
    "Hang",
    "Scripted",
    "Step",
    "Text",
    "Thinking",
    "ToolUse",
    # What is kept.
    "Request",
    "RequestKind",
    "SideKind",
]
