"""Owns the rules of `outrider migrate`: what to look at in a program for the other SDK, and what to do then.

Does not search: a rule says which nodes of the tree it is about, and what it finds in one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "Counterpart",
    "Finding",
    "NEW",
    "Names",
    "OLD",
    "RULES",
    "Rule",
    "SENTENCES",
    "Weight",
    "dotted",
    "is_old",
    "new_dotted",
    "new_module",
    "strings_of_modules",
    "submodule",
    "weight_of",
]


OLD: Final = "claude_agent_sdk"
NEW: Final = "outrider.compat"

Counterpart: TypeAlias = Mapping[str, frozenset[str]]
"""What there is in `outrider.compat`: the names in it, by module; the package itself is `""`."""

_TAKES_MODULES: Final = frozenset(
    (
        *("import_module", "__import__", "find_spec", "resolve_name", "run_module", "ModuleType"),
        *("importorskip", "setattr", "delattr", "setitem", "delitem", "patch", "dict", "multiple"),
    )
)
"""The last parts of the names of functions that are given modules, or what is in them, as strings."""
_FROMLIST: Final = 3
"""Which argument of `__import__` it is."""


def dotted(node: ast.AST | None) -> str:
    """`a.b.c` if that is what is written there, else nothing."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name) if before := dotted(value):
            return f"{before}.{name}"
        case _:
            return ""


def is_old(module: str | None) -> bool:
    """Whether it is the other SDK, or a part of it."""
    return module is not None and re.match(rf"{OLD}(?:\.|$)", module) is not None


def new_module(module: str, names: list[str], there: Counterpart) -> str | None:
    """Where to import these names from instead; None if there is no such place.

    What is public is there, too, if a module without a counterpart had it.
    """
    nearest = rest = module.removeprefix(OLD).removeprefix(".")
    while nearest not in there:
        nearest = nearest.rpartition(".")[0]
    # Of `_internal` itself, a `query` is a module.
    has_all = bool(names) and rest != "_internal" and there[nearest].issuperset(names)
    return ".".join(filter(None, (NEW, nearest))) if nearest == rest or has_all else None


def new_dotted(text: str, there: Counterpart) -> str | None:
    """What `claude_agent_sdk.types.X` in a string becomes; None if there is no such thing."""
    parts = text.split(".")[1:]
    if parts[:1] in (["client"], ["query"]) and there[""].issuperset(parts[1:2]):
        parts = parts[1:] or parts
    size = max(size for size in range(len(parts) + 1) if ".".join(parts[:size]) in there)
    is_there = size == len(parts) or parts[size] in there[".".join(parts[:size])]
    return ".".join((NEW, *parts)) if is_there else None


def strings_of_modules(tree: ast.AST) -> Iterator[ast.Constant]:
    """The strings that name the other SDK, or something in it, for somebody who imports or replaces it."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=called, args=given, keywords=named):
                name = dotted(called)
                last = name.rpartition(".")[2]
                if last == "__import__" and not _has_names(given, named):
                    continue
                if last in _TAKES_MODULES or name.startswith("sys.modules."):
                    yield from _strings([*given, *(each.value for each in named)])
            case ast.Subscript(value=value, slice=index) if dotted(value) == "sys.modules":
                yield from _strings([index])
            case ast.Compare(left=left, comparators=[right]) if dotted(right) == "sys.modules":
                yield from _strings([left])
            case _:
                pass


def _has_names(given: list[ast.expr], named: list[ast.keyword]) -> bool:
    """Whether `__import__` is told which names are wanted; else it gives the first module: `outrider`."""
    wanted = [*given[_FROMLIST:], *(each.value for each in named if each.arg == "fromlist")]
    return bool(wanted) and isinstance(wanted[0], ast.List | ast.Tuple) and bool(wanted[0].elts)


def _strings(nodes: list[ast.expr]) -> Iterator[ast.Constant]:
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if re.fullmatch(rf"{OLD}(\.\w+)*", text):
                yield node
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                yield from _strings(parts)
            case ast.Dict(keys=keys):
                yield from _strings([key for key in keys if key is not None])
            case _:
                pass


class Names:
    """What the names in a file mean, whichever of the two packages it imports."""

    def __init__(self, tree: ast.AST, there: Counterpart) -> None:
        self.there = there
        self.modules: dict[str, str] = {}
        """What stands for a module, and for which: `sdk` for `""`, `t` for `types`."""
        self.values: dict[str, str] = {}
        """What stands for a class or a function, and for which."""
        self.made: dict[str, str] = {}
        """What holds something that a class or function gave: `self.client`, by `ClaudeSDKClient`."""
        self.strings = {id(node) for node in strings_of_modules(tree)}
        self.annotations: set[int] = set()
        """The nodes that stand in annotations, where strings name what is imported."""
        nodes = list(ast.walk(tree))
        for node in nodes:
            self._imported(node)
        for node in nodes:
            self._bound(node)

    def __bool__(self) -> bool:
        return bool(self.modules or self.values)

    def of(self, node: ast.AST | None) -> str | None:
        """The name in the SDK of what is written there; None if it is not the SDK's."""
        text = dotted(node)
        if text in self.values:
            return self.values[text]
        parts = text.split(".")
        for size in range(1, len(parts)):
            module = self.modules.get(".".join(parts[:size]))
            if module is None:
                continue
            rest = parts[size:]
            if not module and len(rest) > 1 and rest[0] in self.there:
                rest = rest[1:]
            return rest[0] if len(rest) == 1 else None
        return None

    def maker(self, node: ast.AST | None) -> str | None:
        """What of the SDK gave the value that is written there."""
        match node:
            case ast.Await(value=value):
                return self.maker(value)
            case ast.Call(func=called):
                return self.of(called)
            case _:
                return self.made.get(dotted(node))

    def _imported(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                for each in names:
                    if (module := submodule(each.name)) is not None:
                        if each.asname is None and is_old(each.name):
                            self.modules[OLD] = ""
                        elif each.asname is None:
                            self.modules[NEW] = ""
                        else:
                            self.modules[each.asname] = module
            case ast.ImportFrom(module=str(name), level=0, names=names):
                if (module := submodule(name)) is not None:
                    for each in names:
                        known = self.modules if not module and each.name in self.there else self.values
                        known[each.asname or each.name] = each.name
            case _:
                pass

    def _bound(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._make(target, self.maker(value))
            case ast.AnnAssign(target=target, annotation=kind, value=value):
                self._make(target, self.of(kind) or self.maker(value))
                self._annotation(kind)
            case ast.NamedExpr(target=target, value=value):
                self._make(target, self.maker(value))
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                self._make(target, self.maker(value))
            case ast.arg(arg=name, annotation=ast.expr() as kind):
                self._make(ast.Name(name), self.of(kind))
                self._annotation(kind)
            case (
                ast.FunctionDef(returns=ast.expr() as kind) | ast.AsyncFunctionDef(returns=ast.expr() as kind)
            ):
                self._annotation(kind)
            case _:
                pass

    def _make(self, target: ast.expr, name: str | None) -> None:
        if name is not None and (text := dotted(target)):
            self.made[text] = name

    def _annotation(self, node: ast.expr) -> None:
        self.annotations.update(map(id, ast.walk(node)))


def submodule(module: str) -> str | None:
    """`types` of either package; None for what is neither."""
    for package in (OLD, NEW):
        if module == package or module.startswith(f"{package}."):
            return module.removeprefix(package).removeprefix(".")
    return None


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
