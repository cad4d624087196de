"""Defines `Rule`, one line of a policy, as a value, as plain data, and in Claude Code's own notation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from outrider.errors import OptionsError
from outrider.handlers._policy.patterns import (
    check_domain_pattern,
    check_path_pattern,
    check_pattern,
    check_url_pattern,
    is_special,
)
from outrider.options._tool_names import ALL_USES, RULE, SERVER, known_tools, tool_name
from outrider.options._validators import did_you_mean, invalid_value, is_list, is_mapping, near, text, within
from outrider.wire.tools import TOOL_ALIASES

if TYPE_CHECKING:
    from typing import Self

    from outrider.options._tool_names import ToolNames
    from outrider.wire import JsonObject

    OneOrMore: TypeAlias = str | Sequence[str]
    Tools: TypeAlias = str | Callable[..., object] | Sequence[str | Callable[..., object]]


# Claude Code's notation.

SHELLS: Final = frozenset(("Bash", "PowerShell", "Monitor"))
"""Tools that run a shell command, which is their `command`."""

PATHS: Final[Mapping[str, str]] = {
    "Edit": "file_path",
    "EnterWorktree": "path",
    "Glob": "path",
    "Grep": "path",
    "LS": "path",
    "LSP": "filePath",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
    "NotebookRead": "notebook_path",
    "Read": "file_path",
    "Workflow": "scriptPath",
    "Write": "file_path",
}
"""The argument of each tool that is a path."""

SEARCHES: Final = frozenset(("Glob", "Grep", "LS"))
"""Tools that search a folder, by default the working folder."""

OPTIONAL_PATHS: Final = SEARCHES | {"EnterWorktree", "Workflow"}
"""Tools whose path may be left out."""

ADDRESSES: Final = frozenset(("Monitor", "WebFetch", "WebSearch"))
"""Tools that use an address on the web."""

# For the agent, a rule for one of these is a rule for all that read, or all that write.
_READING: Final = ("Read", "Grep", "Glob", "LS", "NotebookRead")
_WRITING: Final = ("Edit", "Write", "NotebookEdit", "MultiEdit")
_ONE_ARGUMENT: Final[Mapping[str, str]] = {"Agent": "subagent_type", "Skill": "skill"}


class Noted(NamedTuple):
    """A tool's name in a rule, parsed."""

    text: str
    tools: tuple[str, ...]
    conditions: Mapping[str, object]


def todays_name(tool: str) -> str:
    """A tool's current name, for an older one that the agent still accepts."""
    return TOOL_ALIASES.get(tool, tool)


def read_tool(place: str, text: str) -> Noted:
    """Parse a tool's name, or a rule in Claude Code's notation. Raises `OptionsError` if it is neither."""
    if "(" not in text and ")" not in text:
        return Noted(text, (f"{text}__*",) if SERVER.match(text) else (text,), {})
    found = RULE.match(text)
    if found is None:
        hint = "Write a tool's name, or `Tool(what)`."
        raise OptionsError(f"{place} is not a rule: {text!r}", hint=hint)
    tool, content = found["name"], found["content"]
    if ALL_USES.match(content):
        return read_tool(place, tool)
    return _with_content(place, text, tool, content)


def _with_content(place: str, text: str, tool: str, content: str) -> Noted:
    name = todays_name(tool)
    if name in SHELLS:
        # `git:*` is the older way to write `git *`.
        command = f"{content[:-2]} *" if content.endswith(":*") else content
        return Noted(text, (tool,), {"command": command})
    if name in PATHS:
        tools = _READING if name in _READING else _WRITING if name in _WRITING else (tool,)
        return Noted(text, tools, {"path": _path(content)})
    if name == "WebFetch" and content.startswith("domain:"):
        return Noted(text, (tool,), {"domain": content.removeprefix("domain:")})
    if name in _ONE_ARGUMENT:
        return Noted(text, (tool,), {"arguments": {_ONE_ARGUMENT[name]: content}})
    meant = None if name in known_tools() else near(tool, sorted(known_tools()))
    raise OptionsError(
        f"{place}: {content!r} has no meaning for {tool}",
        hint=f"Did you mean {meant!r}?"
        if meant
        else f"Name the tool alone, and say what is meant as `arguments`: {{'argument': {content!r}}}.",
    )


def _path(content: str) -> str:
    """Two slashes mean the root; one means the folder that the agent's settings are for."""
    if content.startswith("//"):
        return content[1:]
    return content.lstrip("/") if content.startswith("/") else content.removeprefix("./")


def pathless(tool: str, condition: str, decision: Verdict) -> tuple[str, str] | None:
    """Why a condition can never match a tool, and a hint; None if it can."""
    name = todays_name(tool)
    if name not in known_tools() and not name.startswith("mcp__"):
        return None
    if condition == "path" and decision == "allow" and name in SHELLS:
        return (
            "the text of a shell command does not show which files it uses",
            "Allow it by `command`, or leave it to a sandbox.",
        )
    if condition in ("domain", "url") and decision == "allow" and name in SHELLS - {"Monitor"}:
        return (
            "the text of a shell command does not show which addresses it uses",
            "Allow it by `command`, or leave it to a sandbox.",
        )
    known: frozenset[str] = {
        "command": SHELLS,
        "path": SHELLS.union(PATHS),
        "domain": SHELLS | ADDRESSES,
        "url": SHELLS | ADDRESSES - {"WebSearch"},
    }[condition]
    if name in known:
        return None
    hint = "Say which of its `arguments` is meant." if name.startswith("mcp__") else "Leave one of them out."
    return f"it has none; {', '.join(sorted(known))} have", hint


# Rules.

Verdict: TypeAlias = Literal["allow", "ask", "deny"]
"""What a rule decides."""
VERDICTS: Final = ("allow", "ask", "deny")

_CHECKS: Final[Mapping[str, Callable[[str, str], None]]] = {
    "path": check_path_pattern,
    "command": check_pattern,
    "domain": check_domain_pattern,
    "url": check_url_pattern,
    "server": check_pattern,
    "agent": check_pattern,
}
CONDITIONS: Final = tuple(_CHECKS)
_KEYS: Final = (*VERDICTS, *CONDITIONS, "arguments", "reason")

if TYPE_CHECKING:
    _Meta = msgspec.StructMeta
else:

    class _Meta(msgspec.StructMeta):
        """Checks the arguments first: a struct gives no hint for an unknown name, and cannot distinguish an
        empty list from the default."""

        def __call__(self, *args, **fields):
            for name, value in fields.items():
                if name not in self.__struct_fields__:
                    _refuse_key("a rule", name, (*CONDITIONS, "arguments", "reason"))
                if (is_list(value) or is_mapping(value)) and not value:
                    # Otherwise an empty list of what is allowed would allow everything.
                    hint = "Leave it out to mean every use of the tool, or leave the rule out."
                    raise OptionsError(f"`{name}` is empty, so the rule would match nothing", hint=hint)
            return super().__call__(*args, **fields)


class Rule(msgspec.Struct, frozen=True, omit_defaults=True, metaclass=_Meta):
    """Decides about the calls of a tool that match all conditions: `Rule("deny", "Bash", command="rm *")`.

    A condition is a pattern, or several of which one must match. A tool may be given in Claude Code's own
    notation: `Rule("deny", "Bash(rm *)")` is the same rule. A tool of yours may be given itself in place of
    its name. Raises `OptionsError` for rules that cannot work; the session checks the names of tools.
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            decision: Verdict,
            tools: Tools = "*",
            *,
            path: OneOrMore = (),
            command: OneOrMore = (),
            domain: OneOrMore = (),
            url: OneOrMore = (),
            server: OneOrMore = (),
            agent: OneOrMore = (),
            arguments: Mapping[str, OneOrMore] | Sequence[tuple[str, Sequence[str]]] = (),
            reason: str | None = None,
        ) -> None: ...

    decision: Verdict
    tools: tuple[str, ...] = ("*",)
    """Names of tools, or patterns: `Read`, `mcp__github__*`, the name of a tool of yours."""
    path: tuple[str, ...] = ()
    """Files and folders: `src/**`, `~/.ssh/**`, `/etc/**`. Relative to the working folder."""
    command: tuple[str, ...] = ()
    """Shell commands: `git *` is `git` with any arguments or none."""
    domain: tuple[str, ...] = ()
    """Hosts on the web: `example.com`, `*.example.com`."""
    url: tuple[str, ...] = ()
    """Addresses on the web: `https://example.com/docs/*`."""
    server: tuple[str, ...] = ()
    """Names of the MCP servers that offer the tool."""
    agent: tuple[str, ...] = ()
    """Ids of subagents; `main` is the main one, `*` any other."""
    arguments: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Arguments of the tool by name, compared as text."""
    reason: str | None = None
    """Shown to the model with a denial."""

    def __post_init__(self) -> None:
        if self.decision not in VERDICTS:
            raise invalid_value("the decision of a rule", "one of 'allow', 'ask', 'deny'", self.decision)
        self._read_tools()
        for name, check in _CHECKS.items():
            self._set(name, _patterns(f"`{name}`", getattr(self, name), check))
        self._set("arguments", _arguments(self.arguments))
        if self.reason is not None:
            self._set("reason", text("`reason`", self.reason))
        self._refuse_idle(self.tools)

    def _read_tools(self) -> None:
        place = f"`{self.decision}`"
        given = _patterns(place, _named(place, self.tools), check_pattern, least=1)
        tools: list[str] = []
        for noted in [read_tool(place, each) for each in given]:
            if noted.conditions and len(given) > 1:
                hint = "Give each its own rule, or name the tools alone."
                raise OptionsError(f"{place} lists {noted.text!r} beside other tools", hint=hint)
            for name, condition in noted.conditions.items():
                if getattr(self, name):
                    raise OptionsError(
                        f"{place} states its condition twice: in {noted.text!r}, and as `{name}`",
                        hint="Say it once.",
                    )
                self._set(name, condition)
            tools += noted.tools
        self._set("tools", tuple(dict.fromkeys(tools)))

    def with_full_names(self, names: ToolNames) -> Self:
        """The rule with full tool names: to allow, only tools that are certainly meant, otherwise all that
        may be. Raises `OptionsError` for a name that no tool of the session has."""
        if names.takes_any:
            return self
        place, permits = f"the rule {str(self)!r}", self.decision == "allow"
        for server in self.server:
            names.check_server(place, server)
        found: list[str] = []
        for tool in self.tools:
            resolved = names.resolve(place, tool, permits=permits)
            if tool not in resolved:
                self._refuse_idle(resolved)
            found += resolved
        tools = tuple(dict.fromkeys(found))
        if tools == self.tools:
            return self
        # Not validated again: of two tools with one name, one may lack the argument of a condition.
        named = copy(self)
        named._set("tools", tools)
        return named

    def _set(self, name: str, value: object) -> None:
        msgspec.structs.force_setattr(self, name, value)

    def _refuse_idle(self, tools: Sequence[str]) -> None:
        """Raise if a condition can never hold for a tool that is named."""
        for tool in tools:
            if is_special(tool):
                continue
            for name in ("command", "path", "domain", "url"):
                if getattr(self, name) and (why := pathless(tool, name, self.decision)):
                    raise OptionsError(f"a rule for {tool} cannot go by `{name}`: {why[0]}", hint=why[1])

    # As plain data.

    @classmethod
    def from_data(cls, data: object, place: str = "the rule") -> list[Self]:
        """The rules in a mapping: more than one only if it lists tools in Claude Code's own notation.

        Raises `OptionsError` for invalid keys and values.
        """
        if not is_mapping(data):
            raise invalid_value(place, "a mapping, such as {'deny': 'Bash', 'command': 'rm *'}", data)
        for key in data:
            if key not in _KEYS:
                _refuse_key(place, key, _KEYS)
        decisions = [verdict for verdict in VERDICTS if verdict in data]
        if len(decisions) != 1:
            said = "decides nothing" if not decisions else f"has {' and '.join(map(repr, decisions))}"
            hint = "Give it one of `allow`, `ask` and `deny`, with a tool."
            raise OptionsError(f"{place} {said}", hint=hint)
        decision = cast("Verdict", decisions[0])
        conditions = cast("dict[str, Any]", {key: data[key] for key in data if key != decision})
        groups = _groups(within(place, decision), data[decision])
        try:
            return [cls(decision, tools, **conditions) for tools in groups]
        except OptionsError as error:
            raise OptionsError(f"{place}: {error.message}", hint=error.hint) from None

    def to_data(self) -> JsonObject:
        """The rule as a mapping, for JSON or YAML."""
        data: JsonObject = {self.decision: _shortest(self.tools)}
        data |= {name: _shortest(getattr(self, name)) for name in CONDITIONS if getattr(self, name)}
        if self.arguments:
            data["arguments"] = {name: _shortest(patterns) for name, patterns in self.arguments}
        return data if self.reason is None else data | {"reason": self.reason}

    @property
    def has_conditions(self) -> bool:
        """Whether it applies to some calls of a tool only."""
        return bool(self.arguments) or any(getattr(self, name) for name in CONDITIONS)

    def __str__(self) -> str:
        data = self.to_data()
        data.pop("reason", None)
        arguments = data.pop("arguments", {})
        named = [
            f"{name} {', '.join(map(repr, [given] if isinstance(given, str) else given))}"
            for name, given in (*data.items(), *arguments.items())
        ]
        return " ".join([named[0].replace("'", ""), *named[1:]])

    def __repr__(self) -> str:
        data = self.to_data()
        tools = data.pop(self.decision)
        conditions = "".join(f", {name}={value!r}" for name, value in data.items())
        return f"Rule({self.decision!r}, {tools!r}{conditions})"


def _named(place: str, tools: object) -> object:
    if is_list(tools):
        return [tool_name(within(place, number), each) for number, each in enumerate(tools)]
    return tool_name(place, tools)


def _groups(place: str, tools: object) -> list[list[str]]:
    """Plain names together; each name in Claude Code's notation by itself."""
    named = _named(place, tools)
    if isinstance(named, str):
        return [[named]]
    if not is_list(named) or not named:
        raise invalid_value(place, "the name of a tool, or a list of names", named)
    names = [text(within(place, number), each) for number, each in enumerate(named)]
    plain = [name for name in names if "(" not in name]
    return ([plain] if plain else []) + [[name] for name in names if "(" in name]


def _patterns(
    place: str, value: object, check: Callable[[str, str], None], least: int = 0
) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not is_list(given) or len(given) < least:
        raise invalid_value(place, "a pattern, or a list of patterns", value)
    found: list[str] = []
    for each in given:
        if not isinstance(each, str):
            raise invalid_value(place, "a pattern, or a list of patterns", each)
        check(place, each)
        found.append(each)
    return tuple(dict.fromkeys(found))


def _arguments(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    items: Sequence[object] = (
        list(value.items()) if is_mapping(value) else value if is_list(value) else [None]
    )
    found: dict[str, tuple[str, ...]] = {}
    for item in items:
        if not is_list(item) or len(item) != 2 or not isinstance(name := item[0], str) or not name:
            raise invalid_value("`arguments`", "a mapping of names to patterns", value, hidden=True)
        patterns = _shown_as_json(item[1])
        found[name] = _patterns(within("`arguments`", name), patterns, check_pattern, least=1)
    return tuple(found.items())


def _shown_as_json(value: object) -> object:
    """Numbers and switches as text: arguments are compared as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return msgspec.json.encode(value).decode()
    return [_shown_as_json(each) for each in value] if is_list(value) else value


def _refuse_key(place: str, key: object, known: Sequence[str]) -> None:
    hint = did_you_mean(key, known) or f"It may have {', '.join(known)}."
    raise OptionsError(f"{place} has an unknown key: {key!r}", hint=hint)


def _shortest(patterns: tuple[str, ...]) -> str | list[str]:
    return patterns[0] if len(patterns) == 1 else list(patterns)
