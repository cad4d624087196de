"""What hostile text is made of, for the tests of this folder.

Does not check anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

FORGED = "FORGED"
"""Stands at the beginning of a line where the text of somebody else has made one."""

POISON = (
    "evil\x1b[38;5;123;7m\x1b]0;owned\x07\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\\x9b2J\x85\x90\x7f\x08"
    "\u2028\u2029\u202e\u2066\u200b\u2060\u00ad\ufeff\u3164\U000e0041"
    f"\r\n{FORGED}\tx\n{FORGED}: a line\r{FORGED}\u2028{FORGED}\x85{FORGED}\x0b{FORGED}"
)
"""Escape codes, C1 controls, a title, a link, what turns text around, what cannot be seen, and lines."""

HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""What may be in nothing that is shown, written down once more: the test must not ask the code."""

OWN_CODES = re.compile(
    r"\x1b\[(?:\d{1,2}(?:;\d{1,3})*)?m|\x1b\[\?(?:7|25|2004)[hl]|\x1b\[\d*[A-HJK]|\x1b\[2K|\r"
)
"""What the command itself writes to a terminal: colours, the cursor, lines taken back or not wrapped."""

DISPATCHING = (
    *(
        "type",
        "subtype",
        "uuid",
        "parentUuid",
        "leafUuid",
        "timestamp",
        "sessionId",
        "session_id",
        "request_id",
    ),
    *(
        "id",
        "tool_use_id",
        "parent_tool_use_id",
        "role",
        "status",
        "behavior",
        "isSidechain",
        "agentId",
        "cwd",
    ),
    *("hook_event_name", "toolUseId", "parent_uuid", "callback_id", "method", "direction", "dir", "event"),
    *("media_type", "stop_reason", "permissionMode", "permission_mode", "priority", "base64"),
    *("state", "command_uuid", "user_message_uuid", "user_message_uuids"),
)
"""Names of fields by which a reader chooses what to do: each is poisoned alone, or nothing else is seen."""


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from keys_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from keys_of(each)


def groups_of(value: Any, count: int = 3) -> list[frozenset[str]]:
    """The names of all fields in a value: in groups, all of them together, and some alone."""
    names = sorted(set(keys_of(value)))
    others = [name for name in names if name not in DISPATCHING]
    alone = [frozenset((name,)) for name in names if name in DISPATCHING]
    return [frozenset(others), *(frozenset(others[start::count]) for start in range(count)), *alone]


def poisoned(value: Any, names: Collection[str], poison: str = POISON, *, is_named: bool = False) -> Any:
    """A copy in which every text of a field that is called so has the poison at its end."""
    if isinstance(value, dict):
        return {key: poisoned(each, names, poison, is_named=key in names) for key, each in value.items()}
    if isinstance(value, list):
        return [poisoned(each, names, poison, is_named=is_named) for each in value]
    return value + poison if is_named and isinstance(value, str) else value
