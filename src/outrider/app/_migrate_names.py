"""Owns what the names in a file of Python mean: which are the other SDK's, and what was made with them.

Does not judge, and changes nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

__all__ = [
    "NEW",
    "OLD",
    "Counterpart",
    "Names",
    "dotted",
    "is_old",
    "new_dotted",
    "new_module",
    "strings_of_modules",
    "submodule",
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
