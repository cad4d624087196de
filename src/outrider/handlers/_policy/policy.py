"""Defines `Policy`: ordered rules for what the agent may do. The first rule that applies decides.

`calls` decides whether a rule applies. Does not answer the agent: `_permissions` and `_hooks` do.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from outrider.errors import OptionsError
from outrider.handlers._answers import Answer, allow, ask, deny
from outrider.handlers._calls import call, name_of
from outrider.handlers._policy.calls import Call, judge
from outrider.handlers._policy.patterns import Match, Where, fits, is_special
from outrider.handlers._policy.rule import VERDICTS, Rule, Verdict
from outrider.handlers._tool_names import check_names
from outrider.options._checks import level_of_caller
from outrider.options._tool_names import ToolNames, names_in, tool_name
from outrider.options._validators import did_you_mean, invalid_value, is_list, is_mapping
from outrider.redaction import preview_value
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from typing import Self

    from outrider.handlers._hooks.hook import Hook, HookContext
    from outrider.handlers._permissions.requests import PermissionRequest
    from outrider.session import Session
    from outrider.wire.hooks import PreToolUseInput

NOBODY: Final = "Nobody can be asked about this here, so it is not allowed."


class UnreachableRuleWarning(UserWarning):
    """A rule of a policy never decides anything: an earlier one always does."""


class Considered(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that was looked at."""

    index: int
    """Its place in the policy, from 0."""
    rule: Rule
    matched: bool
    why: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy decides about a tool call, and why. As text: with every rule that was looked at."""

    tool: str
    input: JsonObject
    decision: Verdict
    rule: Rule | None
    """The one that decided; None if none did, so that it is the default."""
    index: int | None
    """The place of that rule in the policy, from 0."""
    why: str
    considered: tuple[Considered, ...]
    """The rules that were looked at, in their order."""

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
    """What an agent may do: rules that are gone through in their order, of which the first that is about a
    tool call decides. It is a permission callback: `Session(permission=Policy.of(…))`.

        Policy.of(
            {"deny": "Bash", "command": ["rm *", "sudo *"]},
            {"allow": "Bash(git *)"},
            {"allow": ["Read", "Grep"], "path": "src/**"},
            {"allow": "mcp__github__*"},
            otherwise=ask_me,
        )

    What is to be asked goes to `otherwise`, a permission callback; without one it is denied. In doubt a rule
    does not allow, and does deny: to allow, it has to be about all of a command or path, to deny, about any
    part, and what cannot be analysed counts as one. A rule that asks has the doubts of one that denies, but
    never keeps a later one from denying. Rules judge the text of a call: they are not a sandbox.

    The agent asks only where its own rules and its mode do not decide; `guard` is for all other calls.

    Raises `OptionsError` for rules that could not work, and warns of those that are never reached.
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
    """Decides what is to be asked."""
    default: Verdict = "ask"
    """What is decided where no rule is about it."""

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
        """A policy from what `to_data` gives, or from a list of rules alone.

        Raises `OptionsError` for what means nothing.
        """
        if not is_mapping(data):
            return cls(cast("Sequence[Rule]", data), otherwise=otherwise)
        for key in data:
            if key not in ("rules", "default"):
                hint = did_you_mean(key, ("rules", "default")) or "It may have `rules` and `default`."
                raise OptionsError(f"the policy has a key that means nothing: {key!r}", hint=hint)
        rules = cast("Sequence[Rule]", data.get("rules", ()))
        return cls(rules, otherwise=otherwise, default=cast("Verdict", data.get("default", "ask")))

    def to_data(self) -> JsonObject:
        """The policy as plain data, for JSON or YAML; `otherwise` cannot be a part of that."""
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
        """What the policy decides about a tool call, and why. Asks nobody.

        `tool` may be a tool of yours, or its name; one that is named `mcp__SERVER__TOOL` counts as yours.
        `cwd` is the agent's working folder, that of this process if left out; `agent` the id of a subagent;
        `server` the MCP server of the tool, which else is taken from its name.
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
                return _explained(call, _stricter(doubtful, found), considered)
            if is_meant:
                # To ask, in doubt: but if what follows denies it, it is denied.
                doubtful = doubtful or found
        if doubtful is not None and self.default != "deny":
            return _explained(call, doubtful, considered)
        why = "no rule is about it"
        return _explained(call, None, considered, self.default, why)

    async def __call__(self, request: PermissionRequest) -> object:
        """Decide about a request, as a permission callback does."""
        explained = self.decide(_call_of(request), request.names_of_tools())
        if explained.decision == "ask" and self.otherwise is not None:
            value = await call(self.otherwise, request, context=request)
            return _told_who(value, f"{name_of(self.otherwise)} was asked {explained.by}")
        return _answer(explained)

    def guard(self, *, strict: bool = False) -> Hook[..., Awaitable[Answer | None]]:
        """A hook that applies the policy to every tool call, also where the agent would not ask:
        `Session(permission=policy, hooks=[policy.guard()])`.

        It denies what the policy denies. With `strict` the agent also has to ask for what is to be asked, so
        that only what the policy allows goes without a question where the agent's own rules allow it.
        """
        from outrider.handlers._hooks.hook import Hook

        return Hook(_Guard(self, strict), "PreToolUse", fails="closed")

    # Names.

    def with_full_names(self, names: ToolNames) -> Self:
        """The policy with the full names of tools in its rules. Raises `OptionsError` for a name that no tool
        of the session has."""
        rules = tuple(rule.with_full_names(names) for rule in self.rules)
        return self if rules == self.rules else msgspec.structs.replace(self, rules=rules)

    def check_names(self, names: ToolNames) -> None:
        """Raise `OptionsError` for a name that no tool of the session has; sessions call it when they are
        made."""
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

    async def __call__(self, told: PreToolUseInput, context: HookContext) -> Answer | None:
        explained = self._policy.decide(_call_of_hook(told, context), context.names_of_tools())
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
    return all(any(_includes(pattern, tool) for pattern in earlier.tools) for tool in later.tools)


def _conditions(rule: Rule) -> object:
    return msgspec.structs.replace(rule, decision="allow", tools=("*",), reason=None)


def _includes(pattern: str, tool: str) -> bool:
    return pattern in ("*", tool) or (not is_special(tool) and fits(pattern, tool))


def _stricter(doubtful: Considered | None, found: Considered) -> Considered:
    return found if doubtful is None or found.rule.decision == "deny" else doubtful


def _explained(
    call: Call,
    by: Considered | None,
    considered: Sequence[Considered],
    default: Verdict = "deny",
    why: str = "",
) -> Explanation:
    return Explanation(
        tool=call.tool,
        input=call.input,
        decision=default if by is None else by.rule.decision,
        rule=None if by is None else by.rule,
        index=None if by is None else by.index,
        why=why if by is None else by.why,
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


def _told_who(value: object, who: str) -> object:
    """What a callback that was asked said, with a note of that for those who watch."""
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


def _call_of_hook(told: PreToolUseInput, context: HookContext) -> Call:
    names = tuple(name for name in (told.agent_id, told.agent_type) if name)
    where = _where(context.session)
    return Call(
        tool=told.tool_name,
        input=told.tool_input,
        where=msgspec.structs.replace(where, cwd=told.cwd or where.cwd),
        agents=names if told.agent_id else ("main",),
        server=None if told.mcp_server is None else told.mcp_server.name,
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
