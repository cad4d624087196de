"""What a hook or a permission callback can answer: `allow()`, `deny("…")`, `modify(…)` and the others.

`allow` and `deny` are also at the top.
"""

from outrider.handlers import (
    Answer,
    add_context,
    allow,
    ask,
    block,
    defer,
    deny,
    later,
    modify,
    notify,
    stop,
)

__all__ = [
    "Answer",
    "add_context",
    "allow",
    "ask",
    "block",
    "defer",
    "deny",
    "later",
    "modify",
    "notify",
    "stop",
]
