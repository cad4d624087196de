"""Reads what a hook is to be called for, and refuses matchers with which it would never be called.

The agent does the matching. One that it cannot read matches nothing, and it does not say so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias, cast

from bridle.errors import OptionsError
from bridle.handlers._hooks_events import facts_of
from bridle.wire.tools import BUILTIN_TOOL_NAMES, TOOL_ALIASES

Matcher: TypeAlias = str | re.Pattern[str] | Sequence[str] | None
"""A name, a pattern, or a list of names: of tools, or of what else an event tells apart. None: all."""

_EVERYTHING: Final = ("", "*")
_NAMES: Final = re.compile(r"[\w ,|-]*\Z", re.ASCII)
"""The agent takes these for a list of whole names, and all else for a pattern that it searches for."""
_RULE: Final = re.compile(r"\w+\(.*\)\Z", re.DOTALL)
_SPECIAL: Final = re.compile(r"[\\^$.*+?()\[\]{}|/]")
_ONLY_PYTHON: Final = re.compile(r"\(\?(?:P[<=>]|#|[aiLmsux]+[:)-])|\\[AZ]|[*+?}]\+")
_KNOWN: Final = (*BUILTIN_TOOL_NAMES, *TOOL_ALIASES)


def read_matcher(matcher: object, event: str) -> str | None:
    """A matcher as sent; None for all. Raises `OptionsError` for one that cannot match as it is meant."""
    if matcher is None or (isinstance(matcher, str) and matcher.strip() in _EVERYTHING):
        return None
    facts = facts_of(event)
    if not facts.matcher:
        raise OptionsError(
            f"A {event} hook has nothing that a matcher could look at",
            hint="Leave `matcher` out, and look at the input in the function.",
        )
    found = _text_of(matcher)
    if _NAMES.match(found):
        if facts.tool:
            for name in re.split("[|,]", found):
                _check_spelling(name.strip())
    else:
        _check_pattern(found)
    return found


def _text_of(matcher: object) -> str:
    kind = type(matcher).__name__
    if isinstance(matcher, str):
        return matcher
    if isinstance(matcher, re.Pattern):
        pattern = cast("re.Pattern[str] | re.Pattern[bytes]", matcher)
        text = pattern.pattern
        if isinstance(text, bytes) or pattern.flags & ~re.UNICODE:
            raise OptionsError(
                f"The agent takes no pattern with flags, or of bytes: {matcher!r}",
                hint="Spell it without, such as '[Bb]ash' in place of re.IGNORECASE.",
            )
        # What has no special character would be taken for whole names.
        return f"(?:{text})" if _NAMES.match(text) else text
    if isinstance(matcher, list | tuple):
        names = cast("Sequence[object]", matcher)
        if names and all(isinstance(name, str) and name.strip() for name in names):
            return _any_of(cast("Sequence[str]", names))
    raise OptionsError(
        f"`matcher` must be a text, a pattern or a list of names, not {kind}",
        hint="Write matcher='Bash', matcher='mcp__github__.*' or matcher=['Write', 'Edit'].",
    )


def _any_of(names: Sequence[str]) -> str:
    if all(_NAMES.match(name) for name in names):
        return "|".join(names)
    return f"^(?:{'|'.join(_SPECIAL.sub(_escaped, name) for name in names)})$"


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def _check_spelling(name: str) -> None:
    if name in _KNOWN:
        return
    if meant := next((known for known in _KNOWN if known.lower() == name.lower()), None):
        raise OptionsError(f"No tool is called {name!r}", hint=f"Did you mean {meant!r}?")


def _check_pattern(pattern: str) -> None:
    if _RULE.match(pattern) and pattern.partition("(")[0] in _KNOWN:
        raise OptionsError(
            f"A matcher names tools, and {pattern!r} is a permission rule",
            hint="Give the name of the tool, and look at the input in the function.",
        )
    try:
        # JavaScript has names of groups without the P.
        re.compile(re.sub(r"\(\?<(?=\w)", "(?P<", pattern))
    except (re.error, RecursionError, OverflowError) as error:
        raise OptionsError(f"`matcher` is no pattern: {pattern!r} ({error})") from error
    if found := _ONLY_PYTHON.search(pattern):
        raise OptionsError(
            f"`matcher` has {found[0]!r}, which only Python understands: {pattern!r}",
            hint="The agent reads patterns as JavaScript does.",
        )
