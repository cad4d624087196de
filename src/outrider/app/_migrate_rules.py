"""Owns the rules of `outrider migrate`: what to look at in a program for the other SDK, and what to do then.

Does not search: a rule says which nodes of the tree it is about, and what it finds in one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from outrider.app._migrate_names import OLD, Names, dotted, is_old, new_dotted, new_module, submodule

__all__ = ["RULES", "SENTENCES", "Finding", "Rule", "Weight", "weight_of"]

Weight: TypeAlias = Literal["look", "hint"]
"""Something to look at, or something that is simpler now."""


class Finding(NamedTuple):
    """Where a rule has found something, and what."""

    line: int
    rule: str
    found: str
    cell: int = 0
    """The number of the cell, in notebooks; the line is one of that cell then."""

    @property
    def text(self) -> str:
        """The sentence about it."""
        instead = _INSTEAD.get(self.found.rpartition(".")[2], _OTHERWISE)
        return SENTENCES[self.rule].format(found=self.found, instead=instead)


class Rule(NamedTuple):
    """What is looked for: a name, the nodes it is about, what is found in one, and the sentence about it."""

    name: str
    on: tuple[type[ast.AST], ...]
    finds: Callable[[ast.AST, Names], str | None]
    text: str
    weight: Weight = "look"


_PROGRAM: Final = (
    "`ClaudeAgentOptions(cli_path=…)` says which program runs, and a subclass of `Transport` replaces it."
)
_INSTEAD: Final[Mapping[str, str]] = {
    "SubprocessCLITransport": _PROGRAM,
    "subprocess_cli": _PROGRAM,
    "parse_message": "`outrider.wire.frame_from_wire` makes a message of a dict.",
    "InternalClient": "`query` does what it does.",
    "Query": "`ClaudeSDKClient` does what it does.",
    "_sanitize_path": "`project_key_for_directory` gives the name of a project's folder.",
    "_get_claude_config_home_dir": "`outrider.transcripts.config_folder` tells where it is.",
    "__cli_version__": "`outrider doctor` tells the program's version.",
}
_OTHERWISE: Final = "Use a public name of `outrider.compat`, or the native API."

_PRIVATE: Final = frozenset({"_transport", "_query", "_materialized"})
_KILLERS: Final = frozenset(
    {"os.kill", "os.killpg", "psutil.Process", "psutil.process_iter", "psutil.wait_procs"}
)
_LIMITS: Final = frozenset({"timeout", "timeout_at", "fail_after", "move_on_after"})
_OTHER_TEXTS: Final = (
    "JSON message exceeded",
    "Check stderr output for details",
    "Argument list too long",
)
_VALUES = re.compile(
    r"(?!SessionMessage)\w*(?:Message|Block)|StreamEvent|RateLimit(?:Event|Info)|DeferredToolUse"
    r"|Permission(?:Update|RuleValue|ResultAllow|ResultDeny)"
)
"""The names of the classes that are Outrider's own."""
_CODE = re.compile(rf"^\s*(?:>>> |\.\.\. )?(?:from|import)\s+{OLD}\b", re.MULTILINE)


# What each of them finds.


def _internal(node: ast.AST, names: Names) -> str | None:
    match node:
        case ast.Import(names=imported):
            gone = [each.name for each in imported if _is_gone(each.name, [], names)]
            return ", ".join(gone)
        case ast.ImportFrom(module=str(module), level=0, names=imported):
            given = [each.name for each in imported]
            return ", ".join(given) if _is_gone(module, given, names) else None
        case ast.Attribute(attr="_internal", value=value) if dotted(value) in names.modules:
            return dotted(node)
        case ast.Constant(value=str(text)) if id(node) in names.strings:
            return text if new_dotted(text, names.there) is None else None
        case _:
            return None


def _is_gone(module: str, given: list[str], names: Names) -> bool:
    return is_old(module) and new_module(module, given, names.there) is None


def _unknown(node: ast.AST, names: Names) -> str | None:
    match node:
        case ast.ImportFrom(module=str(module), level=0, names=imported):
            if (where := submodule(module)) is None or where not in names.there:
                return None
            known = names.there[where] | {"*"}
            return ", ".join(each.name for each in imported if each.name not in known)
        case ast.Attribute(attr=name, value=value) if dotted(value) in names.modules:
            known = names.there.get(names.modules[dotted(value)], frozenset())
            return None if name in known or name.startswith("__") or name == "_internal" else name
        case _:
            return None


def _older(node: ast.AST, _: Names) -> str | None:
    match node:
        case ast.Import(names=imported):
            modules = [each.name for each in imported]
        case ast.ImportFrom(module=str() as module, level=0):
            modules = [module]
        case _:
            return None
    return next((name for name in modules if name.partition(".")[0] == "claude_code_sdk"), None)


def _private(node: ast.AST, names: Names) -> str | None:
    match node:
        case ast.Attribute(value=value, attr=name) if name in _PRIVATE:
            return name if names.maker(value) == "ClaudeSDKClient" else None
        case _:
            return None


def _instance(node: ast.AST, names: Names) -> str | None:
    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value="instance")):
            return "instance" if names.maker(value) == "create_sdk_mcp_server" else None
        case _:
            return None


def _derived(node: ast.AST, names: Names) -> str | None:
    match node:
        case ast.ClassDef(bases=bases, decorator_list=decorators, body=body):
            values = (name for name in map(names.of, bases) if name and _VALUES.fullmatch(name))
            makers = (each for each in body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
            is_plain = not decorators and len(bases) == 1 and not any(makers)
            return None if is_plain else next(values, None)
        case _:
            return None


def _buffer_size(node: ast.AST, names: Names) -> str | None:
    match node:
        case (
            ast.keyword(arg="max_buffer_size" as name)
            | ast.Attribute(attr="max_buffer_size" as name, ctx=ast.Store())
        ) if names:
            return name
        case _:
            return None


def _bundled(node: ast.AST, names: Names) -> str | None:
    match node:
        case ast.Constant(value="_bundled" as name) if names or names.strings:
            return name
        case ast.Attribute(value=value, attr="__file__" as name) if dotted(value) in names.modules:
            return name
        case _:
            return None


def _error_text(node: ast.AST, names: Names) -> str | None:
    match node:
        case ast.Constant(value=str(text)) if names:
            return next((known for known in _OTHER_TEXTS if known in text), None)
        case _:
            return None


def _in_code(node: ast.AST, _: Names) -> str | None:
    match node:
        case ast.Constant(value=str(text)) if _CODE.search(text):
            return OLD
        case _:
            return None


def _in_string(node: ast.AST, names: Names) -> str | None:
    match node:
        case ast.Constant(value=str(text)) if re.fullmatch(rf"{OLD}(\.\w*)*", text):
            return None if id(node) in names.strings or id(node) in names.annotations else text
        case _:
            return None


def _distribution(node: ast.AST, _: Names) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            named = re.search(r"(?:^|install\b.*)(claude-agent-sdk)(?![\w-])", text)
            return named and named[1]
        case _:
            return None


def _unlikely(node: ast.AST, names: Names) -> str | None:
    match node:
        case ast.ExceptHandler(type=ast.expr() as kind):
            caught = (names.of(each) for each in (kind.elts if isinstance(kind, ast.Tuple) else [kind]))
            return next(
                (name for name in caught if name in ("CLIJSONDecodeError", "MessageParseError")), None
            )
        case _:
            return None


def _killing(node: ast.AST, names: Names) -> str | None:
    match node:
        case ast.Call(func=called) if names and dotted(called) in _KILLERS:
            return dotted(called)
        case ast.Constant(value=str(text)) if names and (found := re.match(r"(pkill|killall)\b", text)):
            return found[1]
        case _:
            return None


def _limit(node: ast.AST, names: Names) -> str | None:
    match node:
        case ast.Call(func=called, args=[given, *_]) if dotted(called).rpartition(".")[2] == "wait_for":
            return dotted(called) if _is_used(given, names) else None
        case ast.AsyncWith(items=items, body=body) | ast.With(items=items, body=body):
            calls = (
                dotted(each.context_expr.func) for each in items if isinstance(each.context_expr, ast.Call)
            )
            limits = (call for call in calls if call.rpartition(".")[2] in _LIMITS)
            name = next(limits, None)
            return name if name and any(_is_used(each, names) for each in body) else None
        case _:
            return None


def _is_used(node: ast.AST, names: Names) -> bool:
    """Whether an agent is talked to in there."""
    used = (each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute))
    return any(names.of(each) == "query" or names.maker(each) == "ClaudeSDKClient" for each in used)


def _early_break(node: ast.AST, names: Names) -> str | None:
    match node:
        case ast.AsyncFor(iter=source, body=body) if names.maker(source) == "query":
            return "break" if any(_breaks(each) for each in body) else None
        case _:
            return None


def _breaks(node: ast.AST) -> bool:
    if isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    # Not into expressions, which may be deeper than Python can follow.
    blocks = (each for each in ast.iter_child_nodes(node) if isinstance(each, _BLOCKS))
    return isinstance(node, ast.Break | ast.Return) or any(map(_breaks, blocks))


_IMPORTS: Final = (ast.Import, ast.ImportFrom)
_WITHS: Final = (ast.With, ast.AsyncWith)
_BLOCKS: Final = (ast.stmt, ast.excepthandler, ast.match_case)

RULES: Final = (
    Rule(
        "internal",
        (*_IMPORTS, ast.Attribute, ast.Constant),
        _internal,
        "`{found}` is private to claude_agent_sdk, has no counterpart, and is left as it is. {instead}",
    ),
    Rule(
        "unknown-name",
        (ast.ImportFrom, ast.Attribute),
        _unknown,
        "`outrider.compat` has no `{found}`: it is not among the public names of claude_agent_sdk. {instead}",
    ),
    Rule(
        "older-package",
        _IMPORTS,
        _older,
        "`claude_code_sdk` is what claude_agent_sdk was called before. It is left as it is: import from "
        "`outrider.compat`, where `ClaudeCodeOptions` is `ClaudeAgentOptions`.",
    ),
    Rule(
        "private-attribute",
        (ast.Attribute,),
        _private,
        "`{found}` is private to the client, and another thing here. Use the client's methods, or give it a "
        "`Transport` of your own.",
    ),
    Rule(
        "server-instance",
        (ast.Subscript,),
        _instance,
        "`{found}` holds a server of Outrider's, not one of the package mcp. An mcp server of your own goes "
        "into `mcp_servers` as before.",
    ),
    Rule(
        "subclass",
        (ast.ClassDef,),
        _derived,
        "`{found}` can be derived from, with fields and methods, but without `@dataclass`, an `__init__` and "
        "other bases: it only looks like a dataclass.",
    ),
    Rule(
        "bundled",
        (ast.Constant, ast.Attribute),
        _bundled,
        "`{found}` leads to no program here: Outrider brings none. It finds the one that is installed, or "
        "takes `cli_path`.",
    ),
    Rule(
        "string",
        (ast.Constant,),
        _in_string,
        "A string names `{found}` and stays. The module is `outrider.compat`, its logger `outrider`.",
    ),
    Rule(
        "code-in-string",
        (ast.Constant,),
        _in_code,
        "Code in a string imports `{found}` and is left as it is. Import `outrider.compat` there too.",
    ),
    Rule(
        "distribution",
        (ast.Constant,),
        _distribution,
        "A string names the distribution `{found}` and is left as it is. Outrider's is `outrider`.",
    ),
    Rule(
        "error-text",
        (ast.Constant,),
        _error_text,
        "The text “{found}” hardly comes any more: what it stood for is not an error, or is said exactly. "
        "Catch the class instead.",
    ),
    Rule(
        "buffer-size",
        (ast.keyword, ast.Attribute),
        _buffer_size,
        "There is no limit of 1 MiB any more. `{found}` can go, unless you want a smaller one.",
        "hint",
    ),
    Rule(
        "unlikely-error",
        (ast.ExceptHandler,),
        _unlikely,
        "A damaged line or an unknown message no longer ends a run: `{found}` is hardly ever raised.",
        "hint",
    ),
    Rule(
        "own-limit",
        (ast.Call, *_WITHS),
        _limit,
        "`{found}` may stay: whatever it cuts off leaves no process behind. The native API has `timeouts=`.",
        "hint",
    ),
    Rule(
        "own-reaper",
        (ast.Call, ast.Constant),
        _killing,
        "`{found}` is not needed for agents: a session ends what it started, and what that has started.",
        "hint",
    ),
    Rule(
        "early-break",
        (ast.AsyncFor,),
        _early_break,
        "Leaving the loop early is fine: the process ends with it, and needs nothing of yours for that.",
        "hint",
    ),
)

SENTENCES: Final[Mapping[str, str]] = {
    **{rule.name: rule.text for rule in RULES},
    "spelling": "`{found}` is written in an unusual way, and is left as it is.",
    # Of files as a whole, and of those that are not Python.
    "syntax": "Python cannot read it ({found}), and it is left as it is.",
    "encoding": "Its characters cannot be read ({found}), and it is left as it is.",
    "notebook": "It is not a notebook ({found}), and is left as it is.",
    "size": "It is too large to be read ({found}).",
    "requirement": "It names `{found}`. Put `outrider` there once nothing imports the other any more.",
    "documentation": "Code on this page imports `{found}`. Import `outrider.compat` there too.",
}

_WEIGHTS: Final[Mapping[str, Weight]] = {rule.name: rule.weight for rule in RULES}


def weight_of(rule: str) -> Weight:
    """Whether what a rule finds has to be looked at."""
    return _WEIGHTS.get(rule, "look")
