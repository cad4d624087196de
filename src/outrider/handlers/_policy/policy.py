"""Defines `Policy`: ordered rules for what the agent may do. The first rule that applies decides."""

from __future__ import annotations

import os
import posixpath
import re
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec

from outrider.errors import OptionsError
from outrider.handlers._answers import Answer, allow, ask, deny
from outrider.handlers._calls import call, name_of
from outrider.handlers._policy.commands import (
    SEPARATORS,
    addresses_among,
    addresses_of,
    command_match,
    paths_among,
    paths_of,
)
from outrider.handlers._policy.patterns import (
    LONGEST,
    Match,
    Where,
    domain_match,
    fits,
    host_match,
    is_meant_within,
    is_special,
    literal_prefix,
    path_match,
    url_match,
    wildcard_match,
)
from outrider.handlers._policy.rule import (
    OPTIONAL_PATHS,
    PATHS,
    SEARCHES,
    SHELLS,
    VERDICTS,
    Rule,
    Verdict,
    todays_name,
)
from outrider.handlers._policy.shell import MARKERS
from outrider.handlers._tool_names import check_names
from outrider.options._checks import level_of_caller
from outrider.options._tool_names import ToolNames, names_in, tool_name
from outrider.options._validators import did_you_mean, invalid_value, is_list, is_mapping
from outrider.redaction import preview_value
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from outrider.handlers._hooks.hook import Hook, HookContext
    from outrider.handlers._permissions.requests import PermissionRequest
    from outrider.session import Session
    from outrider.wire.hooks import PreToolUseInput


Judged: TypeAlias = tuple[Match, str]
"""Whether it matches, and why or why not."""

_UNSANDBOXED: Final = "dangerouslyDisableSandbox"
_NOT_IN_TOOLS: Final = re.compile(r"[^\w*?\[\]!-]")
"""Characters of a server's name that the names of its tools have `_` for."""
_SEVERAL_PLACES: Final = re.compile(r"[{(][^)}]*(/|\.\.)")
"""Alternatives in a pattern that may lead anywhere."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call, as a policy sees it."""

    tool: str
    input: JsonObject
    where: Where
    agents: tuple[str, ...] = ("main",)
    """The names of the caller."""
    server: str | None = None
    """The MCP server of the tool, if known by other means than the tool's name."""
    blocked_path: str | None = None
    """The path that the agent names in its request."""


def judge(rule: Rule, call: Call) -> Judged:
    """Whether a rule applies to a call: YES certainly, MAYBE in part or perhaps, otherwise NO."""
    if not any(_is_tool(pattern, call.tool) for pattern in rule.tools):
        return Match.NO, f"it is for {', '.join(rule.tools)}"
    judged = [check(given, call) for name, check in _CONDITIONS.items() if (given := getattr(rule, name))]
    judged += [_argument(name, patterns, call) for name, patterns in rule.arguments]
    if not judged:
        return Match.YES, f"it is for {'every tool' if '*' in rule.tools else call.tool}"
    if call.tool == "Monitor" and None not in (call.input.get("command"), call.input.get("ws")):
        judged.append((Match.MAYBE, "it has both a command and an address"))
    leaves_sandbox = rule.command and call.input.get(_UNSANDBOXED) not in (None, False)
    if leaves_sandbox and _UNSANDBOXED not in dict(rule.arguments):
        why = f"it asks to leave the sandbox, and the rule has no argument `{_UNSANDBOXED}`"
        judged.append((Match.MAYBE, why))
    least = min(match for match, _ in judged)
    # The reader wants to know what keeps it from a full match.
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
    """The servers that may offer a tool: its name does not say where the server's name ends."""
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


def _command(patterns: Sequence[str], call: Call) -> Judged:
    name = todays_name(call.tool)
    command: object = call.input.get("command")
    if name not in SHELLS or (name == "Monitor" and command is None):
        return Match.NO, f"{call.tool} has no command"
    if not isinstance(command, str):
        return Match.MAYBE, "its command is not a text"
    is_powershell = name == "PowerShell"
    matches = [command_match(pattern, command, is_powershell=is_powershell) for pattern in patterns]
    return max(matches, key=itemgetter(0))


def _path(patterns: Sequence[str], call: Call) -> Judged:
    name = todays_name(call.tool)
    judged: list[Judged] = []
    if name in PATHS:
        judged = [_one_path(patterns, each, call, reaches_in=name in SEARCHES) for each in _paths(name, call)]
    elif name in SHELLS or name.startswith("mcp__"):
        judged = [_path_in_text(patterns, call)]
    elif call.blocked_path is None:
        return Match.NO, f"{call.tool} has no path"
    if call.blocked_path is not None:
        match, why = _one_path(patterns, call.blocked_path, call)
        judged.append((match if name in PATHS else min(match, Match.MAYBE), why))
    least, most = min(judged), max(judged)
    return most if least[0] is most[0] else (Match.MAYBE, most[1])


def _paths(name: str, call: Call) -> list[str | None]:
    """The paths among a tool's arguments; None for one that is not a text."""
    value: object = call.input.get(PATHS[name])
    found: list[str | None] = [value if isinstance(value, str) and value else None]
    if value is None and name in OPTIONAL_PATHS:
        found = ["."]
    if name == "Glob":
        found += _paths_in_pattern(call.input.get("pattern"), found[0] or ".")
    return found


def _paths_in_pattern(pattern: object, folder: str) -> list[str | None]:
    """The folders that a search by pattern may leave its own folder for."""
    if not isinstance(pattern, str) or len(pattern) > LONGEST or _SEVERAL_PLACES.search(pattern):
        return [None]
    beginning, slash, _ = literal_prefix(pattern.replace("{", "*")).rpartition("/")
    if slash:
        return [posixpath.join(folder, f"{beginning}/"), *([None] if _climbs(pattern, beginning) else [])]
    return [None] if _climbs(pattern, "") else []


def _climbs(pattern: str, beginning: str) -> bool:
    """Whether a pattern has `..` behind its fixed beginning."""
    return ".." in pattern[len(beginning) :].split("/")


def _one_path(patterns: Sequence[str], path: str | None, call: Call, *, reaches_in: bool = False) -> Judged:
    if path is None:
        return Match.MAYBE, "its path is not a text"
    where = call.where
    matches = [(path_match(each, path, where, reaches_in=reaches_in), each) for each in patterns]
    return _best(f"path {path!r}", matches)


def _path_in_text(patterns: Sequence[str], call: Call) -> Judged:
    """Whether a command, or the input of an MCP tool, may use a path that a pattern matches."""
    command: object = call.input.get("command")
    name = todays_name(call.tool)
    is_bash = name in SHELLS and name != "PowerShell"
    if name in SHELLS and not isinstance(command, str):
        return Match.NO, "it has no command"
    if is_bash:
        paths, doubt = paths_of(str(command))
    else:
        paths, doubt = paths_among(SEPARATORS.split(str(command)) if name in SHELLS else _texts(call.input))
    for path in paths:
        where = _from_folder(call.where, path.folder)
        match = wildcard_match if is_bash and MARKERS.search(path.text) else path_match
        for pattern in patterns:
            if len(path.text) <= LONGEST and match(pattern, path.text, where, reaches_in=path.reaches_in):
                shown = preview_value(MARKERS.sub("*", path.text))
                return Match.MAYBE, f"{shown} is in it, and fits {pattern!r}"
    return _unless_certain(doubt, "path")


def _unless_certain(doubt: str, what: str) -> Judged:
    if doubt:
        return Match.MAYBE, f"it is not certain: {doubt}"
    return Match.NO, f"no {what} in it matches"


def _from_folder(where: Where, folder: str) -> Where:
    """The same with another working folder; patterns stay relative to the root."""
    expanded = os.path.expanduser(folder) if where.is_local else folder  # noqa: PTH111
    return Where(posixpath.join(where.cwd, expanded), where.is_local, where.root or where.cwd)


def _domain(patterns: Sequence[str], call: Call) -> Judged:
    if call.tool == "WebSearch":
        domains: object = call.input.get("allowed_domains")
        if not is_list(domains) or not domains:
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
        addresses, doubt = addresses_of(command)
    elif call.tool.startswith("mcp__"):
        addresses, doubt = addresses_among(_texts(call.input))
    else:
        return Match.NO, f"{call.tool} has no address"
    for address in addresses:
        for pattern in patterns:
            if is_meant_within(pattern, address):
                return Match.MAYBE, f"{preview_value(address)} is in its input, and fits {pattern!r}"
    return _unless_certain(doubt, "address")


def _address(call: Call) -> str | None:
    if call.tool == "WebFetch":
        # An address that is not a text is never allowed.
        return str(call.input.get("url"))
    socket: object = call.input.get("ws") if call.tool == "Monitor" else None
    if socket is None:
        return None
    return str(cast("JsonObject", socket).get("url") if isinstance(socket, dict) else socket)


_CONDITIONS: Final[Mapping[str, Callable[[Sequence[str], Call], Judged]]] = {
    "server": _server,
    "agent": _agent,
    "command": _command,
    "path": _path,
    "domain": _domain,
    "url": lambda patterns, call: _by_address(patterns, call, url_match),
}


def _argument(name: str, patterns: Sequence[str], call: Call) -> Judged:
    if name not in call.input:
        return Match.NO, f"it has no argument {name!r}"
    texts = list(_texts(call.input[name]))
    return _best(f"argument {name!r}", [(_of_all(pattern, texts), pattern) for pattern in patterns])


def _texts(value: object) -> Iterable[str]:
    """A value as text; for a list or an object, everything inside, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in cast("JsonObject", value).items():
            yield name
            yield from _texts(each)
    elif is_list(value):
        for each in value:
            yield from _texts(each)
    else:
        yield msgspec.json.encode(value).decode()


def _best(what: str, matches: Sequence[tuple[Match, str]]) -> Judged:
    """The result of the pattern that matches best."""
    found, best = max(matches, key=itemgetter(0))
    said = {Match.NO: "does not fit", Match.MAYBE: "fits in part", Match.YES: "fits"}[found]
    shown = " or ".join(repr(pattern) for _, pattern in matches) if found is Match.NO else repr(best)
    return found, f"its {what} {said} {shown}"


def _of_all(pattern: str, texts: Sequence[str]) -> Match:
    return _combined([Match.YES if fits(pattern, each) else Match.NO for each in texts])


def _combined(matches: Sequence[Match]) -> Match:
    """One result for several: all match, none does, or some do."""
    if not matches:
        return Match.NO
    least, most = min(matches), max(matches)
    return most if least is most else Match.MAYBE


NOBODY: Final = "Nobody can be asked about this here, so it is not allowed."


class UnreachableRuleWarning(UserWarning):
    """A rule of a policy never decides anything: an earlier one always does."""


class Considered(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that was considered."""

    index: int
    """Its index in the policy."""
    rule: Rule
    matched: bool
    why: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy decides about a tool call, and why. Its `str()` lists every rule considered."""

    tool: str
    input: JsonObject
    decision: Verdict
    rule: Rule | None
    """The rule that decided; None: the default did."""
    index: int | None
    """The index of that rule."""
    why: str
    considered: tuple[Considered, ...]
    """The rules considered, in order."""

    def __str__(self) -> str:
        lines = [f"{self.decision}: {self.tool} {preview_value(self.input)}"]
        lines += [
            f"  {each.index + 1}. {each.rule}: {'yes' if each.matched else 'no'}, {each.why}"
            for each in self.considered
        ]
        return "\n".join([*lines, f"  {self.by}: {self.why}"])

    @property
    def by(self) -> str:
        """Which rule decided, in words."""
        return "by default" if self.index is None else f"by rule {self.index + 1} ({self.rule})"


class Policy(msgspec.Struct, frozen=True):
    """Ordered rules for what an agent may do. The first rule that applies to a tool call decides. A policy is
    a permission callback: `Session(permission=Policy.of(…))`.

        Policy.of(
            {"deny": "Bash", "command": ["rm *", "sudo *"]},
            {"allow": "Bash(git *)"},
            {"allow": ["Read", "Grep"], "path": "src/**"},
            {"allow": "mcp__github__*"},
            otherwise=ask_me,
        )

    Calls that are to be asked about go to `otherwise`, a permission callback; without one they are denied. If
    in doubt, a rule denies and does not allow: to allow, it must match all of a command or path; to deny, any
    part is enough, and what cannot be analysed counts as a match. A rule that asks matches like one that
    denies, but a later rule can still deny. Rules judge the text of a call: they are not a sandbox.

    Claude Code asks only if its own rules and mode do not decide; `guard` covers all other calls.

    Raises `OptionsError` for rules that cannot work, and warns about unreachable ones.
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            rules: Sequence[Rule | Mapping[str, object]],
            *,
            otherwise: Callable[..., object] | None = None,
            default: Verdict = "ask",
        ) -> None: ...

    rules: tuple[Rule, ...]
    otherwise: Callable[..., object] | None = None
    """The permission callback for calls that are to be asked about."""
    default: Verdict = "ask"
    """The decision if no rule applies."""

    def __post_init__(self) -> None:
        rules = tuple(_rules("the policy", self.rules))
        msgspec.structs.force_setattr(self, "rules", rules)
        if self.default not in VERDICTS:
            raise invalid_value("`default`", "one of 'allow', 'ask', 'deny'", self.default)
        if self.otherwise is not None and not callable(self.otherwise):
            raise invalid_value("`otherwise`", "a function", self.otherwise)
        _warn_of_unreachable(rules)

    @classmethod
    def of(
        cls,
        *rules: Rule | Mapping[str, object],
        otherwise: Callable[..., object] | None = None,
        default: Verdict = "ask",
    ) -> Self:
        """A policy of these rules."""
        return cls(rules, otherwise=otherwise, default=default)

    # As plain data.

    @classmethod
    def from_data(cls, data: object, *, otherwise: Callable[..., object] | None = None) -> Self:
        """A policy from the data of `to_data`, or from a list of rules. Raises `OptionsError` for invalid
        data."""
        if not is_mapping(data):
            return cls(cast("Sequence[Rule]", data), otherwise=otherwise)
        for key in data:
            if key not in ("rules", "default"):
                hint = did_you_mean(key, ("rules", "default")) or "It may have `rules` and `default`."
                raise OptionsError(f"the policy has an unknown key: {key!r}", hint=hint)
        rules = cast("Sequence[Rule]", data.get("rules", ()))
        return cls(rules, otherwise=otherwise, default=cast("Verdict", data.get("default", "ask")))

    def to_data(self) -> JsonObject:
        """The policy as plain data, for JSON or YAML, without `otherwise`."""
        return {"rules": [rule.to_data() for rule in self.rules], "default": self.default}

    # Deciding.

    def explain(
        self,
        tool: str | Callable[..., object],
        input: Mapping[str, object] | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        agent: str | None = None,
        server: str | None = None,
    ) -> Explanation:
        """What the policy decides about a tool call, and why. No one is asked.

        `tool` is a tool of yours, or a name; the name `mcp__SERVER__TOOL` counts as yours. `cwd` is the
        agent's working folder, by default that of this process; `agent` the id of a subagent; `server` the
        MCP server of the tool, by default taken from its name.
        """
        where = Where(os.path.abspath(os.getcwd() if cwd is None else cwd))  # noqa: PTH100, PTH109
        agents = ("main",) if agent is None else (agent,)
        name = cast("str", tool_name("`tool`", tool))
        call = Call(tool=name, input=dict(input or {}), where=where, agents=agents, server=server)
        return self.decide(call, names_in([name]))

    def decide(self, call: Call, names: ToolNames) -> Explanation:
        """The same for a call in a session that has these tools."""
        considered: list[Considered] = []
        doubtful: Considered | None = None
        for index, rule in enumerate(self.rules):
            match, why = judge(rule.with_full_names(names), call)
            is_meant = match is Match.YES or (match is Match.MAYBE and rule.decision != "allow")
            found = Considered(index=index, rule=rule, matched=is_meant, why=why)
            considered.append(found)
            if is_meant and (match is Match.YES or rule.decision == "deny"):
                return _explained(call, found if rule.decision == "deny" else doubtful or found, considered)
            if is_meant:
                # In doubt it asks, but a later rule may still deny.
                doubtful = doubtful or found
        if doubtful is not None and self.default != "deny":
            return _explained(call, doubtful, considered)
        return _explained(call, None, considered, self.default)

    async def __call__(self, request: PermissionRequest) -> object:
        """Decide about a request, as a permission callback does."""
        explained = self.decide(_call_of(request), request.names_of_tools())
        if explained.decision == "ask" and self.otherwise is not None:
            value = await call(self.otherwise, request, context=request)
            return _with_asker(value, f"{name_of(self.otherwise)} was asked {explained.by}")
        return _answer(explained)

    def guard(self, *, strict: bool = False) -> Hook[..., Awaitable[Answer | None]]:
        """A hook that applies the policy to every tool call, even if Claude Code would not ask:
        `Session(permission=policy, hooks=[policy.guard()])`.

        It denies what the policy denies. With `strict`, calls that the policy asks about are asked about even
        if Claude Code's own rules allow them.
        """
        from outrider.handlers._hooks.hook import Hook

        return Hook(_Guard(self, strict), "PreToolUse", fails="closed")

    # Names.

    def with_full_names(self, names: ToolNames) -> Self:
        """The policy with full tool names in its rules. Raises `OptionsError` for an unknown name."""
        rules = tuple(rule.with_full_names(names) for rule in self.rules)
        return self if rules == self.rules else msgspec.structs.replace(self, rules=rules)

    def check_names(self, names: ToolNames) -> None:
        """Raise `OptionsError` for a name that no tool of the session has. New sessions call it."""
        self.with_full_names(names)
        check_names(self.otherwise, names)

    def __repr__(self) -> str:
        rules = [repr(rule.to_data()) for rule in self.rules]
        default = [] if self.default == "ask" else [f"default={self.default!r}"]
        otherwise = [] if self.otherwise is None else ["otherwise=…"]
        return f"Policy.of({', '.join(rules + otherwise + default)})"


class _Guard:
    """A policy as the function of a hook."""

    def __init__(self, policy: Policy, strict: bool) -> None:
        self._policy = policy
        self._strict = strict
        self.check_names = policy.check_names
        self.__name__ = self.__qualname__ = "Policy.guard"

    async def __call__(self, hook_input: PreToolUseInput, context: HookContext) -> Answer | None:
        explained = self._policy.decide(call_of_hook(hook_input, context), context.names_of_tools())
        if explained.decision == "deny":
            return _answer(explained)
        return ask(explained.why) if self._strict and explained.decision == "ask" else None


def _rules(place: str, given: object) -> list[Rule]:
    if isinstance(given, str | Rule) or is_mapping(given) or not is_list(given):
        raise invalid_value(place, "a list of rules", given, "Write `Policy.of({'allow': 'Read'}, …)`.")
    if not given:
        hint = "Leave it out, or say what it is for: {'ask': '*'} asks about everything."
        raise OptionsError(f"{place} has no rules", hint=hint)
    rules: list[Rule] = []
    for number, each in enumerate(given):
        rules += [each] if isinstance(each, Rule) else Rule.from_data(each, f"rule {number + 1}")
    return rules


def _warn_of_unreachable(rules: Sequence[Rule]) -> None:
    for number, rule in enumerate(rules):
        for earlier in rules[:number]:
            if _covers(earlier, rule):
                warnings.warn(
                    f"the rule {str(rule)!r} is never reached: {str(earlier)!r} comes before it. "
                    "Put it first, or leave it out.",
                    UnreachableRuleWarning,
                    stacklevel=level_of_caller(),
                )
                break


def _covers(earlier: Rule, later: Rule) -> bool:
    """Whether an earlier rule always decides what a later one is about."""
    if earlier.has_conditions and _conditions(earlier) != _conditions(later):
        return False
    return all(
        any(
            pattern in ("*", tool) or (not is_special(tool) and fits(pattern, tool))
            for pattern in earlier.tools
        )
        for tool in later.tools
    )


def _conditions(rule: Rule) -> object:
    return msgspec.structs.replace(rule, decision="allow", tools=("*",), reason=None)


def _explained(
    call: Call, by: Considered | None, considered: Sequence[Considered], default: Verdict = "deny"
) -> Explanation:
    return Explanation(
        tool=call.tool,
        input=call.input,
        decision=default if by is None else by.rule.decision,
        rule=None if by is None else by.rule,
        index=None if by is None else by.index,
        why="no rule is about it" if by is None else by.why,
        considered=tuple(considered),
    )


def _answer(explained: Explanation) -> Answer:
    by = explained.by
    if explained.decision == "allow":
        return allow(notice=by)
    if explained.decision == "ask":
        return deny(NOBODY, notice=f"{by}, and there is nobody to ask")
    said = None if explained.rule is None else explained.rule.reason
    return deny(said or f"The policy does not allow this use of {explained.tool}.", notice=by)


def _with_asker(value: object, who: str) -> object:
    """The answer of the callback that was asked, with a note for observers."""
    if isinstance(value, bool):
        return allow(notice=who) if value else deny("", notice=who)
    if isinstance(value, Answer) and value.notice is None:
        return value.with_notice(": ".join(filter(None, (who, value.reason))))
    return value


def _call_of(request: PermissionRequest) -> Call:
    return Call(
        tool=request.tool_name,
        input=request.ask.input,
        where=_where(request.session),
        agents=("main",) if request.agent_id is None else (request.agent_id,),
        server=None if request.mcp_server is None else request.mcp_server.name,
        blocked_path=request.blocked_path,
    )


def call_of_hook(hook_input: PreToolUseInput, context: HookContext) -> Call:
    names = tuple(name for name in (hook_input.agent_id, hook_input.agent_type) if name)
    where = _where(context.session)
    return Call(
        tool=hook_input.tool_name,
        input=hook_input.tool_input,
        where=msgspec.structs.replace(where, cwd=hook_input.cwd or where.cwd),
        agents=names if hook_input.agent_id else ("main",),
        server=None if hook_input.mcp_server is None else hook_input.mcp_server.name,
    )


def _where(session: Session) -> Where:
    """The agent's working folder, as far as the session knows it, and the one that it began in."""
    options, init = session.options, session.info.init
    is_local = options.runner is None or options.runner.is_local
    cwd: Any = session.info.cwd or options.cwd
    root: Any = (init.original_cwd if init is not None else None) or options.cwd or cwd
    if not is_local:
        return Where(cwd or "/", is_local, root)
    return Where(os.path.abspath(cwd or "."), is_local, os.path.abspath(root or "."))  # noqa: PTH100
