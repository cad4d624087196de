"""Reads what a hook is to be called for, and refuses matchers with which it would never be called.

The agent does the matching. One that it cannot read matches nothing, and it does not say so. What an event
tells apart is known when the hook is made; which tools there are, when the session is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from outrider.errors import OptionsError
from outrider.handlers._hooks_events import facts_of
from outrider.options._readers import did_you_mean
from outrider.options._tool_names import ambiguous, is_pattern, known_tools, tool_name

if TYPE_CHECKING:
    from outrider.options._tool_names import ToolNames

Matcher: TypeAlias = (
    str | re.Pattern[str] | Callable[..., object] | Sequence[str | Callable[..., object]] | None
)
"""A name, a pattern, a tool of yours, or a list of names: of tools, or of what else an event tells apart.
None: all."""

_EVERYTHING: Final = ("", "*")
_NAMES: Final = re.compile(r"[\w ,|-]*\Z", re.ASCII)
"""The agent takes these for a list of whole names, and all else for a pattern that it searches for."""
_RULE: Final = re.compile(r"\w+\(.*\)\Z", re.DOTALL)
_SPECIAL: Final = re.compile(r"[\\^$.*+?()\[\]{}|/]")
_GROUPED: Final = re.compile(r"(\^?)\((?:\?:)?(?!\?)([^()]*)\)(\$?)\Z")
_PIECE: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_BEGINNING: Final = re.compile(r"\^?((?:[\w-](?![*?{]))*)", re.ASCII)
_ONLY_PYTHON: Final = re.compile(r"\(\?(?:P[<=>]|#|[aiLmsux]+[:)-])|\\[AZ]|[*+?}]\+")


def read_matcher(
    matcher: object, event: str, *, allow_unknown: bool = False, as_it_is: bool = False
) -> str | None:
    """A matcher as the agent reads it, with the names that it was given; None for all. With `as_it_is` a text
    is not looked at.

    Raises `OptionsError` for one that cannot match as it is meant, as far as that is known without a session.
    """
    if matcher is None or (isinstance(matcher, str) and matcher.strip() in _EVERYTHING):
        return None
    if as_it_is and isinstance(matcher, str):
        return matcher
    facts = facts_of(event)
    if not facts.matcher:
        raise OptionsError(
            f"A {event} hook has nothing that a matcher could look at",
            hint="Leave `matcher` out, and look at the input in the function.",
        )
    found = _text_of(matcher, facts.tool)
    if not _NAMES.match(found):
        _check_pattern(found)
    if facts.words and not allow_unknown:
        _check_words(found, event, facts.words)
    return found


def resolve_matcher(place: str, matcher: str, names: ToolNames, *, allow_unknown: bool = False) -> str:
    """The matcher of an event that is about tools, as sent: with the full names of tools.

    Raises `OptionsError` for one that is not about the tool that it seems to be about and, unless
    `allow_unknown`, for one of which a part fits no tool that the session can have.
    """
    if names.takes_any:
        return matcher
    if not _NAMES.match(matcher):
        for pattern in _alternatives(matcher):
            _check_finds(place, pattern, names, allow_unknown=allow_unknown)
        return matcher
    given = _names_in(matcher)
    found: list[str] = []
    for name in given:
        try:
            tools = names.resolve(place, name, permits=False)
        except OptionsError:
            if not allow_unknown:
                raise
            tools = (name,)
        if len(tools) > 1 and {*tools} - {*given, names.aliases.get(name)}:
            # What a hook says of one tool, it would say of the other: it may allow, and it may deny.
            raise ambiguous(place, name, tools)
        # All tools of a server, which the agent would take for the name of one tool.
        found += [f"{tool}__*" if names.is_server(tool) else tool for tool in tools]
    if not any(is_pattern(tool) for tool in found):
        return matcher if found == given else "|".join(dict.fromkeys(found))
    spelled = (".*".join(_SPECIAL.sub(_escaped, part) for part in tool.split("*")) for tool in found)
    return f"^(?:{'|'.join(dict.fromkeys(spelled))})$"


def _check_finds(place: str, pattern: str, names: ToolNames, *, allow_unknown: bool) -> None:
    regex = _compiled(pattern)
    # One that speaks of full names is about these: `^(?!mcp__)` means the built-in tools.
    for full, short in () if "mcp" in pattern else names.own.items():
        if any(regex.search(each) for each in short) and not regex.search(full):
            raise OptionsError(
                f"{place}: the matcher {pattern!r} finds {full!r} only by its short name, which the agent "
                "does not know",
                hint=f"Write a pattern that fits {full!r}, or the name alone.",
            )
    known = (*names.all_known(), *names.extra)
    if not (allow_unknown or any(regex.search(each) for each in known) or _may_find_unknown(pattern, names)):
        meant = did_you_mean(_beginning_of(pattern), known)
        hint = (
            f"{meant} It is searched for in the names of tools, in which upper and lower case differ. Name a "
            "tool that is not known here in `extra_tools`."
        )
        what = f"the matcher {pattern!r} finds no tool that the session can have"
        raise OptionsError(f"{place}: {what}", hint=hint.lstrip())


def _may_find_unknown(pattern: str, names: ToolNames) -> bool:
    """Whether a pattern may find a tool that nobody here knows, going by what its name has to begin with."""
    beginning = _beginning_of(pattern)
    if beginning == "mcp__":
        # Whatever servers there are: that misspells none.
        return True
    is_bound = pattern.startswith("^") or beginning.startswith("mcp__")
    return names.may_be_unknown((is_bound and beginning) or "mcp__")


def _beginning_of(pattern: str) -> str:
    found = _BEGINNING.match(pattern)
    return "" if found is None else found[1]


def _alternatives(pattern: str) -> list[str]:
    """The parts of a pattern of which each has to find something: `^(Bash|Write)$` has two."""
    found: list[str] = []
    for part in _split(pattern):
        grouped = _GROUPED.match(part)
        found += [f"{grouped[1]}{each}{grouped[3]}" for each in _split(grouped[2])] if grouped else [part]
    return found


def _split(pattern: str) -> list[str]:
    parts, depth = [""], 0
    for piece in _PIECE.findall(pattern):
        depth += (piece == "(") - (piece == ")")
        if piece == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def _check_words(matcher: str, event: str, words: Sequence[str]) -> None:
    if not _NAMES.match(matcher):
        if any(_compiled(matcher).search(word) for word in words):
            return
        unknown = matcher
    else:
        unknown = next((name for name in _names_in(matcher) if name not in words), "")
        if not unknown:
            return
    hint = did_you_mean(unknown, words) or f"There are {', '.join(map(repr, words))}."
    raise OptionsError(
        f"A {event} hook is never called for {unknown!r}",
        hint=f"{hint} One that is not known here needs `allow_unknown=True`.",
    )


def _names_in(matcher: str) -> list[str]:
    return [name for name in (part.strip() for part in re.split("[|,]", matcher)) if name]


def _text_of(matcher: object, is_tool: bool) -> str:
    kind = type(matcher).__name__
    matcher = tool_name("`matcher`", matcher)
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
        names = [tool_name("`matcher`", name) for name in cast("Sequence[object]", matcher)]
        if names and all(isinstance(name, str) and name.strip() for name in names):
            return _any_of(cast("Sequence[str]", names), is_tool)
    raise OptionsError(
        f"`matcher` must be a text, a pattern or a list of names, not {kind}",
        hint="Write matcher='Bash', matcher='mcp__github__.*' or matcher=['Write', 'Edit'].",
    )


def _any_of(names: Sequence[str], is_tool: bool) -> str:
    special = [name for name in names if not _NAMES.match(name)]
    if not special:
        return "|".join(names)
    if is_tool:
        raise OptionsError(
            f"`matcher` lists {special[0]!r}, and no tool has such a name",
            hint="In a list are whole names. Write a pattern as one text: matcher='Bash|mcp__github__.*'.",
        )
    return f"^(?:{'|'.join(_SPECIAL.sub(_escaped, name) for name in names)})$"


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def _check_pattern(pattern: str) -> None:
    if _RULE.match(pattern) and pattern.partition("(")[0] in known_tools():
        raise OptionsError(
            f"A matcher names tools, and {pattern!r} is a permission rule",
            hint="Give the name of the tool, and look at the input in the function.",
        )
    try:
        _compiled(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise OptionsError(f"`matcher` is no pattern: {pattern!r} ({error})") from error
    if found := _ONLY_PYTHON.search(pattern):
        raise OptionsError(
            f"`matcher` has {found[0]!r}, which only Python understands: {pattern!r}",
            hint="The agent reads patterns as JavaScript does.",
        )


def _compiled(pattern: str) -> re.Pattern[str]:
    # JavaScript has names of groups without the P.
    return re.compile(re.sub(r"\(\?<(?=\w)", "(?P<", pattern))
