"""Decides whether a rule of a policy applies to a tool call, and why: one condition after another.

The order of rules and the decision are in `policy`.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard, cast

import msgspec

from outrider.handlers._policy.commands import addresses_among, addresses_of, command_match, paths_of
from outrider.handlers._policy.patterns import (
    LONGEST,
    Match,
    Where,
    domain_match,
    fits,
    host_match,
    is_meant_within,
    literal_prefix,
    path_match,
    url_match,
    wildcard_match,
)
from outrider.handlers._policy.rule import OPTIONAL_PATHS, PATHS, SEARCHES, SHELLS, todays_name
from outrider.handlers._policy.words import MARKERS
from outrider.redaction import preview_value
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from outrider.handlers._policy.rule import Rule

Judged: TypeAlias = tuple[Match, str]
"""Whether it fits, and why it does or does not."""

_UNSANDBOXED: Final = "dangerouslyDisableSandbox"
_NOT_IN_TOOLS: Final = re.compile(r"[^\w*?\[\]!-]")
"""What the names of tools have `_` for, where their server has it in its name."""
_PIECES: Final = re.compile(r"""[\s;|&<>()`"'${}=,:@]+""")
"""What separates names of files from all else in the text of a command."""
_SEVERAL_PLACES: Final = re.compile(r"[{(][^)}]*(/|\.\.)")
"""Alternatives in a pattern that may begin anywhere."""
_MOST_PIECES: Final = 200


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A use of a tool, as a policy sees it."""

    tool: str
    input: JsonObject
    where: Where
    agents: tuple[str, ...] = ("main",)
    """What the one who calls is known by."""
    server: str | None = None
    """The MCP server that offers the tool, if it is known otherwise than by the tool's name."""
    blocked_path: str | None = None
    """A path that the agent says it is about."""


def judge(rule: Rule, call: Call) -> Judged:
    """Whether a rule is about a call: YES beyond doubt, MAYBE in part or perhaps, NO otherwise."""
    if not any(_is_tool(pattern, call.tool) for pattern in rule.tools):
        return Match.NO, f"it is for {', '.join(rule.tools)}"
    judged: list[Judged] = []
    if rule.server:
        judged.append(_server(rule.server, call))
    if rule.agent:
        judged.append(_agent(rule.agent, call))
    if rule.command:
        judged.append(_command(rule, call))
    if rule.path:
        judged.append(_path(rule.path, call))
    if rule.domain:
        judged.append(_domain(rule.domain, call))
    if rule.url:
        judged.append(_by_address(rule.url, call, url_match))
    judged += [_argument(name, patterns, call) for name, patterns in rule.arguments]
    if not judged:
        return Match.YES, f"it is for {'every tool' if '*' in rule.tools else call.tool}"
    if call.tool == "Monitor" and None not in (call.input.get("command"), call.input.get("ws")):
        judged.append((Match.MAYBE, "it has both a command and an address"))
    least = min(match for match, _ in judged)
    # What keeps it from a full match is what one wants to know.
    return least, "; ".join(dict.fromkeys(why for match, why in judged if match == least))


def _is_tool(pattern: str, tool: str) -> bool:
    names = (tool, todays_name(tool))
    return any(fits(each, name) for each in (pattern, todays_name(pattern)) for name in names)


def _server(patterns: Sequence[str], call: Call) -> Judged:
    names = [call.server] if call.server else _servers_in(call.tool)
    if not names:
        return Match.NO, f"{call.tool} is not of an MCP server"

    def match(pattern: str) -> Match:
        in_tools = _NOT_IN_TOOLS.sub("_", pattern)
        is_named = any(fits(in_tools, each) for each in _servers_in(call.tool))
        return _of_all(pattern, names) or (Match.MAYBE if is_named else Match.NO)

    return _best(f"server {names[0]}", [(match(pattern), pattern) for pattern in patterns])


def _servers_in(tool: str) -> list[str]:
    """The servers that a tool may be of: its name does not tell where that of the server ends."""
    if not tool.startswith("mcp__"):
        return []
    parts = tool.removeprefix("mcp__").split("__")
    return ["__".join(parts[:count]) for count in range(1, len(parts))] or parts


def _agent(patterns: Sequence[str], call: Call) -> Judged:
    is_main = call.agents == ("main",)

    def match(pattern: str) -> Match:
        if is_main and pattern != "main":
            return Match.NO
        return Match.YES if any(fits(pattern, name) for name in call.agents) else Match.NO

    return _best(f"agent {call.agents[0]}", [(match(pattern), pattern) for pattern in patterns])


def _command(rule: Rule, call: Call) -> Judged:
    name = todays_name(call.tool)
    command: object = call.input.get("command")
    if name not in SHELLS or (name == "Monitor" and command is None):
        return Match.NO, f"{call.tool} has no command"
    if not isinstance(command, str):
        return Match.MAYBE, "its command is not a text"
    found = max(
        (command_match(pattern, command, is_powershell=name == "PowerShell") for pattern in rule.command),
        key=lambda judged: judged[0],
    )
    leaves_sandbox = call.input.get(_UNSANDBOXED) not in (None, False)
    if leaves_sandbox and found[0] is Match.YES and _UNSANDBOXED not in dict(rule.arguments):
        return Match.MAYBE, f"it asks to leave the sandbox, and the rule does not speak of `{_UNSANDBOXED}`"
    return found


def _path(patterns: Sequence[str], call: Call) -> Judged:
    name = todays_name(call.tool)
    judged: list[Judged] = []
    if name in PATHS:
        judged = [_one_path(patterns, each, call, reaches_in=name in SEARCHES) for each in _paths(name, call)]
    elif name in SHELLS:
        judged = [_path_in_command(patterns, call)]
    elif name.startswith("mcp__"):
        judged = [_path_among(patterns, _texts(call.input), call)]
    elif call.blocked_path is None:
        return Match.NO, f"{call.tool} has no path"
    if call.blocked_path is not None:
        match, why = _one_path(patterns, call.blocked_path, call)
        judged.append((match if name in PATHS else min(match, Match.MAYBE), why))
    least, most = min(judged), max(judged)
    return most if least[0] is most[0] else (Match.MAYBE, most[1])


def _paths(name: str, call: Call) -> list[str | None]:
    """The paths that a tool is given; None for one that cannot be read."""
    found: list[str | None] = []
    for argument in PATHS[name]:
        value: object = call.input.get(argument)
        if value is None and name in OPTIONAL_PATHS:
            found.append(".")
        else:
            found.append(value if isinstance(value, str) and value else None)
    if name == "Glob":
        found += _paths_in_pattern(call.input.get("pattern"), found[0] or ".")
    return found


def _paths_in_pattern(pattern: object, folder: str) -> list[str | None]:
    """Where a search by pattern leads, if that may be out of the folder that it begins in."""
    if not isinstance(pattern, str) or len(pattern) > LONGEST or _SEVERAL_PLACES.search(pattern):
        return [None]
    beginning, slash, _ = literal_prefix(pattern.replace("{", "*")).rpartition("/")
    if slash:
        return [posixpath.join(folder, f"{beginning}/"), *([None] if _climbs(pattern, beginning) else [])]
    return [None] if _climbs(pattern, "") else []


def _climbs(pattern: str, beginning: str) -> bool:
    """Whether a pattern leads upwards behind its fixed beginning."""
    return ".." in pattern[len(beginning) :].split("/")


def _one_path(patterns: Sequence[str], path: str | None, call: Call, *, reaches_in: bool = False) -> Judged:
    if path is None:
        return Match.MAYBE, "its path is not a text"
    where = call.where
    matches = [(path_match(each, path, where, reaches_in=reaches_in), each) for each in patterns]
    return _best(f"path {path!r}", matches)


def _path_in_command(patterns: Sequence[str], call: Call) -> Judged:
    """A command is taken for what it says: whatever looks like a path in it may be one."""
    command: object = call.input.get("command")
    if not isinstance(command, str):
        return Match.NO, "it has no command"
    if todays_name(call.tool) == "PowerShell":
        return _path_among(patterns, _PIECES.split(command), call)
    reach = paths_of(command)
    for path in reach.paths:
        where = _from_folder(call.where, path.folder)
        found = wildcard_match if MARKERS.search(path.text) else path_match
        for pattern in patterns:
            if len(path.text) <= LONGEST and found(pattern, path.text, where, reaches_in=path.reaches_in):
                shown = preview_value(MARKERS.sub("*", path.text))
                return Match.MAYBE, f"{shown} is in it, and fits {pattern!r}"
    if reach.doubt:
        return Match.MAYBE, f"it cannot be told: {reach.doubt}"
    return Match.NO, "no path in it is meant"


def _from_folder(where: Where, folder: str) -> Where:
    """Where relative paths begin once a command is in a folder; patterns stay where they are."""
    expanded = os.path.expanduser(folder) if where.is_local else folder  # noqa: PTH111
    return Where(posixpath.join(where.cwd, expanded), where.is_local, where.root or where.cwd)


def _path_among(patterns: Sequence[str], texts: Iterable[str], call: Call) -> Judged:
    """Whether one of several texts is a path that is meant, if it is a path."""
    found = dict.fromkeys(text.removeprefix("file://") for text in texts if text)
    for text in list(found)[:_MOST_PIECES]:
        for pattern in patterns:
            if len(text) <= LONGEST and path_match(pattern, text, call.where):
                return Match.MAYBE, f"{preview_value(text)} is in its input, and fits {pattern!r}"
    if len(found) > _MOST_PIECES:
        return Match.MAYBE, "its input is too long to look for paths in it"
    return Match.NO, "no path in its input is meant"


def _domain(patterns: Sequence[str], call: Call) -> Judged:
    if call.tool == "WebSearch":
        domains: object = call.input.get("allowed_domains")
        if not _is_list(domains) or not domains:
            return Match.NO, "it searches all domains"
        hosts = [str(each) for each in domains]
        matches = [(_combined([host_match(each, host) for host in hosts]), each) for each in patterns]
        return _best(f"domains {', '.join(hosts)}", matches)
    return _by_address(patterns, call, domain_match)


def _by_address(patterns: Sequence[str], call: Call, match: Callable[[str, str], Match]) -> Judged:
    url = _address(call)
    if url is not None:
        return _best(f"address {url!r}", [(match(pattern, url), pattern) for pattern in patterns])
    command: object = call.input.get("command")
    if todays_name(call.tool) in SHELLS and isinstance(command, str):
        reach = addresses_of(command)
    elif call.tool.startswith("mcp__"):
        reach = addresses_among(_texts(call.input))
    else:
        return Match.NO, f"{call.tool} has no address"
    for address in reach.addresses:
        for pattern in patterns:
            if is_meant_within(pattern, address):
                return Match.MAYBE, f"{preview_value(address)} is in its input, and fits {pattern!r}"
    if reach.doubt:
        return Match.MAYBE, f"it cannot be told: {reach.doubt}"
    return Match.NO, "no address in its input is meant"


def _address(call: Call) -> str | None:
    if call.tool == "WebFetch":
        # What is not even a text is no address that could be allowed.
        return str(call.input.get("url"))
    socket: object = call.input.get("ws") if call.tool == "Monitor" else None
    if socket is None:
        return None
    return str(cast("JsonObject", socket).get("url") if isinstance(socket, dict) else socket)


def _argument(name: str, patterns: Sequence[str], call: Call) -> Judged:
    if name not in call.input:
        return Match.NO, f"it has no argument {name!r}"
    texts = list(_texts(call.input[name]))
    return _best(f"argument {name!r}", [(_of_all(pattern, texts), pattern) for pattern in patterns])


def _texts(value: object) -> Iterable[str]:
    """A value as text; all that is inside of a list or an object, names too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in cast("JsonObject", value).items():
            yield name
            yield from _texts(each)
    elif _is_list(value):
        for each in value:
            yield from _texts(each)
    else:
        yield msgspec.json.encode(value).decode()


def _best(what: str, matches: Sequence[tuple[Match, str]]) -> Judged:
    """How the pattern fits that fits best."""
    found, best = max(matches, key=lambda each: each[0])
    said = {Match.NO: "does not fit", Match.MAYBE: "fits in part", Match.YES: "fits"}[found]
    shown = " or ".join(repr(pattern) for _, pattern in matches) if found is Match.NO else repr(best)
    return found, f"its {what} {said} {shown}"


def _of_all(pattern: str, texts: Sequence[str]) -> Match:
    return _combined([Match.YES if fits(pattern, each) else Match.NO for each in texts])


def _combined(matches: Sequence[Match]) -> Match:
    """What is said of several things together: all fit, none does, or it depends."""
    if not matches:
        return Match.NO
    least, most = min(matches), max(matches)
    return most if least is most else Match.MAYBE


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)
