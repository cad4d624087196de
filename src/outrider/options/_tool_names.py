"""Resolves the names of tools.

A tool of this process has two: its own, and the full one that the agent knows. A short name that is passed on
would match nothing, so that a rule denying it would deny nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

import msgspec

from outrider.errors import OptionsError
from outrider.options._validators import invalid_value, near

_SPECIAL: Final = re.compile(r"[*?\[]")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
SERVER: Final = re.compile(r"mcp__(?:(?!__).)+\Z")
RULE: Final = re.compile(r"(?P<name>[^()]+)\((?P<content>.*)\)\Z", re.DOTALL)
ALL_USES: Final = re.compile(r"\**\Z")
_NEARLY: Final = 0.9
_ESCAPE: Final = "If the session can have such a tool anyway, name it in `extra_tools`."


@cache
def known_tools() -> frozenset[str]:
    """The names of the agent's own tools, older ones among them."""
    # Here, because most sessions name none.
    from outrider.wire.tools import BUILTIN_TOOL_NAMES, FORMER_TOOL_NAMES, TOOL_ALIASES

    return BUILTIN_TOOL_NAMES | FORMER_TOOL_NAMES | frozenset(TOOL_ALIASES)


def is_pattern(name: str) -> bool:
    return _SPECIAL.search(name) is not None


def all_uses_of(rule: str) -> str:
    """A rule without a content that says no more than its tool does: `Bash` for `Bash(*)`."""
    noted = RULE.match(rule)
    return noted["name"] if noted and ALL_USES.match(noted["content"]) else rule


def full_name(server: str, tool: str) -> str:
    """The name by which the agent knows a tool of an MCP server."""
    return f"{server_name(server)}__{_NOT_IN_NAMES.sub('_', tool)}"


def server_name(server: str) -> str:
    """What the names of all tools of an MCP server begin with; in rules, the name of all of them."""
    return f"mcp__{_NOT_IN_NAMES.sub('_', server)}"


def short_names(full: str) -> tuple[str, ...]:
    """All that may be the short name of a tool: where its server's name ends, the full name does not tell."""
    if not full.startswith("mcp__"):
        return ()
    parts = full.removeprefix("mcp__").split("__")
    return tuple("__".join(parts[start:]) for start in range(len(parts)))


def tools_named(name: str, tools: Collection[str]) -> list[str]:
    """The tools, by their full names, that a name stands for: the one that has it as its full name, else all
    that may have it as a short one."""
    return [name] if name in tools else [full for full in tools if name in short_names(full)]


def tool_name(place: str, value: object) -> object:
    """The name of a tool that is given as an object: what `@tool` makes, or a function. Others are left as
    they are. Raises `OptionsError` for a tool that has the name of a built-in one, which that would mean."""
    if isinstance(value, str) or not callable(value):
        return value
    name: object = getattr(value, "name", None) or getattr(value, "__name__", None)
    if isinstance(value, type) or not isinstance(name, str):
        raise invalid_value(place, "the name of a tool, or a tool of yours", value)
    if name in known_tools():
        raise OptionsError(
            f"{place}: your tool {name!r} has the name of a built-in one",
            hint=f"Write which is meant: 'mcp__SERVER__{name}' for yours, which is in the server 'tools' if "
            "it was given as `tools`.",
        )
    return name


class ToolNames(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that a session can have, as far as that is known before it starts."""

    own: Mapping[str, Collection[str]] = {}
    """Tools of this process by their full names, with the short names that they answer to."""
    servers: Mapping[str, bool] = {}
    """MCP servers by name, and whether all of their tools are known."""
    has_other_servers: bool = False
    """Whether settings, plugins or files may bring more servers."""
    aliases: Mapping[str, str] = {}
    """Tools by the other names that the session gives them."""
    extra: tuple[str, ...] = ()
    """Names and patterns that the user says are tools."""

    @property
    def takes_any(self) -> bool:
        """Whether every name stands for itself, so that there is nothing to resolve or to check."""
        return "*" in self.extra and not self.aliases and not any(self.own.values())

    def resolve(self, place: str, name: str, *, permits: bool) -> tuple[str, ...]:
        """The full names, or patterns for them, of the tools that a name or a pattern stands for.

        With `permits` it is about what may be done: then a name is that of the tool that is called exactly
        so, and a short one only if there is none and it can be no other. Else it is all of them, so that what
        keeps a tool from being used never misses one.

        Raises `OptionsError` for a name that stands for no tool that the session can have.
        """
        found, short = self._exact(name), self._short(name)
        if not permits:
            found += short
        elif not found and short:
            if len({_server_of(full, self.own[full], name) for full in short}) > 1:
                raise ambiguous(place, name, short)
            found = short
        target = self.aliases.get(name)
        if target is not None and not (permits and found):
            found += ToolNames.resolve(
                msgspec.structs.replace(self, aliases={}), place, target, permits=permits
            )
        if (not found or not permits) and name not in found and self._is_extra(name):
            found.append(name)
        if not found:
            raise self._unknown(place, name)
        return tuple(dict.fromkeys(found))

    def resolve_rule(self, place: str, rule: str, *, permits: bool) -> tuple[str, ...]:
        """The same for a rule in the agent's notation: `Bash(git *)`. Raises `OptionsError` also for one that
        the agent takes, and then never applies."""
        if self.takes_any:
            return (rule,)
        noted = RULE.match(rule)
        name, content = (rule, "") if noted is None else (noted["name"], noted["content"])
        if re.search(r"[?\[]", name):
            hint = "Write `*`, or name each tool."
            raise OptionsError(f"{place}: the agent knows no pattern but `*`: {rule!r}", hint=hint)
        if ALL_USES.match(content):
            whole = "" if noted is None else f"({content})"
            found = self.resolve(place, name, permits=permits)
            return tuple(f"{each}{whole if each == name else ''}" for each in found)
        if not is_pattern(name) and name in known_tools():
            return (rule,)
        found = self.resolve(place, name, permits=permits)
        if any(each.startswith("mcp__") for each in found):
            raise OptionsError(
                f"{place}: the agent has no rules about some uses of {name!r} only, and would pass over "
                f"{rule!r}",
                hint="Name the tool alone, or decide by its `arguments` in a `Policy`.",
            )
        return (rule,)

    def check_server(self, place: str, pattern: str) -> None:
        """Raise `OptionsError` if the session can have no MCP server of this name or pattern."""
        if self.has_other_servers or any(each.startswith(("*", "mcp__")) for each in self.extra):
            return
        names = [*self.servers, *(server_name(each).removeprefix("mcp__") for each in self.servers)]
        if not any(_fits(pattern, each) for each in names):
            hint = _did_you_mean(pattern, names) or "Servers are those of `mcp_servers`; 'tools' has `tools`."
            raise OptionsError(f"{place}: there is no MCP server {pattern!r}", hint=f"{hint} {_ESCAPE}")

    def is_server(self, name: str) -> bool:
        """Whether a name stands for all tools of an MCP server."""
        return SERVER.match(name) is not None or any(name == server_name(each) for each in self.servers)

    def all_known(self) -> list[str]:
        """Every name that is known: of built-in tools, of those of this process, and other names of them."""
        return [*sorted(known_tools()), *self.own, *self.aliases]

    def may_be_unknown(self, beginning: str) -> bool:
        """Whether there may be tools that no one here knows whose names begin so, or begin that."""
        return self._may_be_served(beginning) or any(
            _overlap(beginning, _beginning_of(each)) for each in self.extra if is_pattern(each)
        )

    def _may_be_served(self, beginning: str) -> bool:
        open_servers = [f"{server_name(each)}__" for each, is_known in self.servers.items() if not is_known]
        served = [*open_servers, *(["mcp__"] if self.has_other_servers else [])]
        return any(_overlap(beginning, each) for each in served)

    # How a name is looked up.

    def _exact(self, name: str) -> list[str]:
        if is_pattern(name):
            return [name] if self._fits_some(name) else []
        if name in known_tools() or name in self.own:
            return [name]
        if any(name == server_name(each) for each in self.servers):
            # The agent would take one that has two lines in its name for the name of a tool.
            return [name if SERVER.match(name) else f"{name}__*"]
        if not name.startswith("mcp__"):
            return []
        servers = [each for each in self.servers if name.startswith(f"{server_name(each)}__")]
        if servers:
            is_known = self.servers[max(servers, key=len)]
            return [] if is_known else [name]
        is_misspelled = near(name, list(self.own), cutoff=_NEARLY) is not None
        return [name] if self.has_other_servers and not is_misspelled else []

    def _fits_some(self, pattern: str) -> bool:
        if any(_fits(pattern, each) for each in self.all_known()):
            return True
        if any(pattern == f"{server_name(each)}__*" for each in self.servers):
            return True
        return self._may_be_served(_beginning_of(pattern))

    def _short(self, name: str) -> list[str]:
        return [
            full
            for full, short in self.own.items()
            if not _fits(name, full) and any(_fits(name, each) for each in short)
        ]

    def _is_extra(self, name: str) -> bool:
        return any(_fits(each, name) or (is_pattern(name) and _fits(name, each)) for each in self.extra)

    def _unknown(self, place: str, name: str) -> OptionsError:
        what = f"no tool fits {name!r}" if is_pattern(name) else f"there is no tool {name!r}"
        short = [each for names in self.own.values() for each in names]
        known = [*short, *self.all_known(), *(server_name(each) for each in self.servers)]
        hint = _did_you_mean(name, known) or (
            "Tools of other MCP servers have full names: 'mcp__SERVER__TOOL'."
            if not name.startswith("mcp__")
            else "Servers are those of `mcp_servers`."
        )
        return OptionsError(f"{place}: {what}", hint=f"{hint} {_ESCAPE}")


ANY_TOOL: Final = ToolNames(extra=("*",))
"""For where it is not known which tools there are."""


def names_in(tools: Iterable[str]) -> ToolNames:
    """The names of tools of which nothing is known but their full names."""
    return ToolNames(own={full: short_names(full) for full in tools}, extra=("*",))


def ambiguous(place: str, name: str, candidates: Sequence[str]) -> OptionsError:
    """The error for a name that may mean several tools, where it matters which."""
    return OptionsError(
        f"{place}: several tools are called {name!r}",
        hint=f"Write which is meant: {', '.join(map(repr, candidates))}.",
    )


def _server_of(full: str, short: Collection[str], name: str) -> str:
    return next(full.removesuffix(each) for each in short if _fits(name, each))


def _beginning_of(pattern: str) -> str:
    return _SPECIAL.split(pattern, maxsplit=1)[0]


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _fits(pattern: str, name: str) -> bool:
    return pattern == name or (is_pattern(pattern) and fnmatchcase(name, pattern))


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    meant = near(name, known)
    return f"Did you mean {meant!r}?" if meant else ""
