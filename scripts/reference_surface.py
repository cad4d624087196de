"""Describes the public names of the reference SDK or of `outrider.compat`, and compares the two.

    python scripts/reference_surface.py --package claude_agent_sdk    # in the reference's environment
    python scripts/reference_surface.py --package outrider.compat \\
        --compare tests/compat/reference/surface.json

The first prints a description as JSON: facts only, no texts. The second prints the differences, and exits
with 1 if one is not among those of `reference_differences.toml`, or if one of those is not there any more.
"""

from __future__ import annotations

import argparse
import collections.abc
import dataclasses
import importlib
import inspect
import json
import pathlib
import re
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, Union, get_args

DIFFERENCES = Path(__file__).with_name("reference_differences.toml")
MODULES = ("", "types", "testing", "_errors")
"""Of a package, those that people import from. The last for the one error that is nowhere else."""
PACKAGE = "(package)"
SPECIAL = ("__init__", "__aenter__", "__aexit__")
"""Methods that count, besides those whose names have no underscore."""
UNIONS = (Union, types.UnionType)

Description = dict[str, Any]
Anything: TypeAlias = Any
"""A value, a type or an annotation of a package that is not known here."""


class Surface:
    """The public names of a package."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.top = package.partition(".")[0]
        self.public = {module: self._names(module) for module in MODULES}
        every = {name: value for names in self.public.values() for name, value in names.items()}
        self.aliases = {name: value for name, value in every.items() if is_alias(value)}
        # What annotations that are still texts may mention.
        self.scope: dict[str, Any] = {**vars(typing), **vars(collections.abc), **vars(pathlib), **every}

    def _names(self, module: str) -> dict[str, Any]:
        try:
            found = importlib.import_module(f"{self.package}.{module}" if module else self.package)
        except ModuleNotFoundError:
            return {}
        names: list[str] = list(getattr(found, "__all__", ())) or [
            name for name, value in vars(found).items() if name[0] != "_" and self._is_own(name, value)
        ]
        return {name: getattr(found, name) for name in sorted(names) if _has(found, name)}

    def _is_own(self, name: str, value: Anything) -> bool:
        """Whether a module without a list of its names has one of its own, not one that it imports."""
        if value is not Any and isinstance(value, type | types.FunctionType):
            return value.__module__.partition(".")[0] == self.top
        is_general = hasattr(typing, name) or hasattr(collections.abc, name)
        return not is_general and not isinstance(value, types.ModuleType)

    def describe(self) -> dict[str, dict[str, Description]]:
        """What there is, by module and name."""
        return {
            module or PACKAGE: {name: self._describe(module, name, value) for name, value in names.items()}
            for module, names in self.public.items()
        }

    def _describe(self, module: str, name: str, value: Anything) -> Description:
        if module and self.public[""].get(name) is value:
            return {"kind": "that of the package"}
        if typing.is_typeddict(value):
            hints = typing.get_type_hints(value, localns=self.scope)
            required = sorted(value.__required_keys__)
            return {"kind": "TypedDict", "keys": self._spelled(hints), "required": required}
        if isinstance(value, type):
            return self._describe_class(value)
        if inspect.isroutine(value):
            return {"kind": "function", **self._describe_function(value)}
        if origin_of(value) is typing.Literal:
            return {"kind": "Literal", "values": list(get_args(value))}
        if origin_of(value) in UNIONS:
            return {"kind": "union", "members": [self.spell(each, name) for each in get_args(value)]}
        if isinstance(value, frozenset):
            return {"kind": "frozenset", "values": sorted(value)}
        if is_alias(value) or value is Any:
            return {"kind": "alias", "of": self.spell(value, name)}
        return {"kind": type(value).__name__}

    def _describe_class(self, value: type) -> Description:
        every = {id(each): name for names in self.public.values() for name, each in names.items()}
        bases = [
            every.get(id(each), each.__name__) for each in value.__mro__[1:] if self._is_named(each, every)
        ]
        found: Description = {"bases": bases, "methods": self._methods(value)}
        if dataclasses.is_dataclass(value):
            hints = self._hints(value)
            fields = {
                each.name: {"type": self.spell(self._type_of(each, hints)), **default_of(each)}
                for each in dataclasses.fields(value)
            }
            found["methods"].pop("__init__", None)
            return {"kind": "dataclass", "fields": fields, **found}
        if "__init__" not in found["methods"] and not issubclass(value, BaseException):
            found["signature"] = self._signature(value)
        return {"kind": "exception" if issubclass(value, BaseException) else "class", **found}

    @staticmethod
    def _type_of(field: dataclasses.Field[Any], hints: Mapping[str, Any]) -> Anything:
        return hints.get(field.name, field.type) if isinstance(field.type, str) else field.type

    @staticmethod
    def _is_named(base: type, every: Mapping[int, str]) -> bool:
        """Whether a base is one that people know: public here, or of Python."""
        return id(base) in every or (base.__module__ == "builtins" and base is not object)

    def _methods(self, value: type) -> dict[str, Description]:
        found: dict[str, Description] = {}
        for base in reversed(value.__mro__):
            if base.__module__.partition(".")[0] != self.top:
                continue
            for name, method in vars(base).items():
                inner = getattr(method, "__func__", method)
                if name[0] == "_" and (name not in SPECIAL or getattr(base, "_is_protocol", False)):
                    continue
                if isinstance(method, property):
                    found[name] = {"is": "property"}
                elif inspect.isfunction(inner):
                    found[name] = self._describe_function(inner)
        return dict(sorted(found.items()))

    def _describe_function(self, function: Callable[..., Any]) -> Description:
        is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        return {"is": "async" if is_async else "plain", "signature": self._signature(function)}

    def _signature(self, function: Callable[..., Any]) -> str:
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return "?"
        hints = self._hints(function)
        parts: list[str] = []
        kinds = [each.kind for each in signature.parameters.values()]
        for index, each in enumerate(signature.parameters.values()):
            if each.kind is each.KEYWORD_ONLY and (index == 0 or kinds[index - 1] < each.kind):
                parts += ["*"] if each.VAR_POSITIONAL not in kinds else []
            mark = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
            text = f"{mark}{each.name}"
            if each.annotation is not each.empty:
                text += f": {self.spell(hints.get(each.name, each.annotation))}"
            if each.default is not each.empty:
                text += f" = {each.default!r}"
            parts.append(text)
        result = ""
        is_maker = getattr(function, "__name__", "") == "__init__"
        if signature.return_annotation is not signature.empty and not is_maker:
            result = f" -> {self.spell(hints.get('return', signature.return_annotation))}"
        return f"({', '.join(parts)}){result}"

    def _hints(self, thing: Anything) -> dict[str, Any]:
        try:
            return typing.get_type_hints(thing, localns=self.scope)
        except Exception:  # noqa: BLE001 - whatever evaluating an annotation raises
            return dict(self._readable_hints(thing))

    def _readable_hints(self, thing: Anything) -> Iterator[tuple[str, Any]]:
        """Each that can be read by itself. The others stay texts."""
        for name, hint in getattr(thing, "__annotations__", {}).items():
            try:
                yield name, eval(hint, getattr(thing, "__globals__", {}), self.scope)
            except Exception:  # noqa: BLE001 - the same
                continue

    def _spelled(self, hints: Mapping[str, Any]) -> dict[str, str]:
        return {name: self.spell(hint) for name, hint in hints.items()}

    # Types as texts, the same for all versions of Python, with no modules, and with the aliases they had.

    def spell(self, hint: Anything, but: str = "") -> str:
        for name, alias in self.aliases.items():
            if name != but and alias is not Any and alias == hint:
                return name
        if isinstance(hint, str):
            return re.sub(r"\b(?:\w+\.)+(?=\w)", "", hint)
        if isinstance(hint, typing.ForwardRef):
            return self.spell(hint.__forward_arg__, but)
        if hint is None or hint is type(None):
            return "None"
        if hint is Ellipsis:
            return "..."
        origin, arguments = origin_of(hint), get_args(hint)
        if origin in UNIONS:
            return self._spell_union(list(arguments), but)
        if origin is typing.Literal:
            return f"Literal[{', '.join(map(repr, arguments))}]"
        if origin is collections.abc.Callable:
            taken, given = arguments
            inner = "..." if taken is Ellipsis else f"[{', '.join(map(self.spell, taken))}]"
            return f"Callable[{inner}, {self.spell(given)}]"
        if origin is not None:
            return f"{self.spell(origin)}[{', '.join(map(self.spell, arguments))}]"
        if isinstance(hint, type):
            return hint.__name__
        return re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(hint).lstrip("~+-"))

    def _spell_union(self, members: list[Any], but: str) -> str:
        spelled: list[str] = []
        for name, alias in self.aliases.items():
            inside = get_args(alias) if origin_of(alias) in UNIONS else ()
            if (
                name != but
                and inside
                and len(inside) < len(members)
                and all(each in members for each in inside)
            ):
                spelled.append(name)
                members = [each for each in members if each not in inside]
        texts = {*spelled, *(self.spell(each) for each in members)}
        return " | ".join(sorted(texts, key=lambda text: (text == "None", text)))


def _has(module: types.ModuleType, name: str) -> bool:
    try:
        return hasattr(module, name)
    except ModuleNotFoundError:
        # Promised, and not there.
        return False


def origin_of(hint: Anything) -> Anything:
    """What a written type is made of."""
    return typing.get_origin(hint)


def is_alias(value: Anything) -> bool:
    """Whether it is a type that was written, and no class."""
    return origin_of(value) is not None and not isinstance(value, type)


def default_of(field: dataclasses.Field[Any]) -> Description:
    """The default of a field; those of factories as what they make."""
    if field.default_factory is not dataclasses.MISSING:
        return {"default": repr(field.default_factory())}
    if field.default is dataclasses.MISSING:
        return {}
    streams = {id(sys.stderr): "sys.stderr", id(sys.__stderr__): "sys.stderr"}
    return {"default": streams.get(id(field.default)) or repr(field.default)}


# What differs.


def differences(reference: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    """One line for each thing that is not the same."""
    for module, names in reference.items():
        here: Mapping[str, Any] = ours.get(module, {})
        place = "" if module == PACKAGE else f"{module}."
        for name, was in names.items():
            if name in here:
                yield from _of_name(f"{place}{name}", was, here[name])
            else:
                yield f"{place}{name}: missing"
        for name in here:
            if name not in names:
                yield f"{place}{name}: not in the reference"


def _of_name(place: str, was: Anything, now: Anything) -> Iterator[str]:
    if not isinstance(was, dict) or not isinstance(now, dict):
        if was != now:
            yield f"{place}: {_short(was)}, here {_short(now)}"
        return
    for key, value in was.items():
        label = place if key in ("fields", "methods", "keys") else f"{place}.{key}"
        if key in now:
            yield from _of_name(label, value, now[key])
        else:
            yield f"{label}: missing"
    for key in now:
        if key not in was:
            yield f"{place}.{key}: not in the reference"
    fields = list(was.get("fields", ()))
    if fields != list(now.get("fields", ()))[: len(fields)]:
        yield f"{place}: another order of fields"


def _short(value: Anything) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def unexplained(lines: list[str], reasons: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The differences that no pattern is for, and the patterns that no difference is for."""
    patterns = {each: re.compile(".*".join(map(re.escape, each.split("*")))) for each in reasons}
    used: set[str] = set()
    left: list[str] = []
    for line in lines:
        found = [each for each, pattern in patterns.items() if pattern.fullmatch(line)]
        used.update(found)
        if not found:
            left.append(line)
    return left, [each for each in reasons if each not in used]


def explained() -> dict[str, str]:
    """The differences that are meant, with the reason for each; `*` stands for anything."""
    groups = tomllib.loads(DIFFERENCES.read_text(encoding="utf-8"))["difference"]
    return {pattern: group["reason"] for group in groups for pattern in group["lines"]}


def written(described: Mapping[str, Mapping[str, Description]]) -> str:
    """As JSON, with a line for each name."""
    modules = [
        f'"{module}": {{\n'
        + ",\n".join(f'"{name}": {json.dumps(each)}' for name, each in names.items())
        + "\n}"
        for module, names in described.items()
    ]
    return "{\n" + ",\n".join(modules) + "\n}\n"


def main() -> int:
    """Print a description, or the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--package", required=True)
    parser.add_argument("--compare", type=Path, metavar="OTHER.json")
    given = parser.parse_args()
    described = Surface(given.package).describe()
    if given.compare is None:
        print(written(described), end="")
        return 0
    lines = list(differences(json.loads(given.compare.read_text(encoding="utf-8")), described))
    left, unused = unexplained(lines, explained())
    for line in lines:
        print(("! " if line in left else "  ") + line)
    for pattern in unused:
        print(f"? no difference any more: {pattern}")
    return 1 if left or unused else 0


if __name__ == "__main__":
    raise SystemExit(main())
