"""Write the generated modules of `outrider.sync`, from the async ones that they wrap.

Each class becomes one of the same name that waits for what the other gives, and each function likewise. What
waits is in `outrider.sync._portal`: here are only names, signatures and docstrings.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "outrider"
TARGETS = ROOT / "src" / "outrider" / "sync"

LAYOUT: dict[str, dict[str, tuple[str, ...]]] = {
    "_surface": {
        "session._requests": ("Requests",),
        "session._streams.stream": ("Reader",),
        "session._connection.observers": ("EventReader",),
        "session._turn": ("TextReader", "Queued", "Turn"),
        "session._session": ("Session", "TurnContext", "run", "go_on", "stream", "resolve_settings"),
    },
    "_transcripts": {
        "transcripts._values": ("Hits",),
        "transcripts._sessions": ("Sessions",),
    },
}
"""What each module has, and from which of `outrider`: a class before those that derive from it."""

ATTRIBUTES = {"Session": {"options": "Options"}, "Queued": {"turn": "Turn"}}
"""What objects have beside methods and properties, and of which type."""

MADE_BY_USERS = ("Session", "Sessions")

HEADS = {
    "_surface": "Sessions, turns, and `run` and its like, without `await`.",
    "_transcripts": "Sessions that are kept, without `await`.",
}

WORDS = {
    "async with outrider.": "with outrider.sync.",
    "await outrider.": "outrider.sync.",
    "async with": "with",
    "async for": "for",
    "await ": "",
    " outrider.Sessions": " outrider.sync.Sessions",
    "=outrider.Sessions": "=outrider.sync.Sessions",
    "Cancelling": "Interrupting",
    "StopAsyncIteration": "StopIteration",
    "several tasks": "several threads",
    ", on one event loop": "",
}
"""What docstrings say otherwise."""

RENAMED = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__repr__": "__repr__",
}

WRAPPED = {
    name for module in LAYOUT.values() for names in module.values() for name in names if name[0].isupper()
}

TYPING = {"Generic", "cast", "overload"}
INDENT = "    "
WIDTH = 110

Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    """Write all of them."""
    for target in LAYOUT:
        (TARGETS / f"{target}.py").write_text(written(target), encoding="utf-8")


def written(target: str) -> str:
    """The text of a generated module."""
    sources = {name: Source.read(name) for name in LAYOUT[target]}
    body: list[str] = []
    for source, names in LAYOUT[target].items():
        for name in names:
            node = sources[source].definitions[name]
            module = alias_of(source)
            if isinstance(node, ast.ClassDef):
                made = made_class(module, node)
            else:
                made = made_function(module, node, sources[source].overloads.get(name, []))
            body.append("\n".join(made))
    text = "\n\n".join(body)
    head = (
        f'"""{HEADS[target]}\n\nWritten by `scripts/sync_surface.py`: run that instead of changing it.\n"""'
    )
    imports = imported(target, names_in(text), list(sources.values()))
    return formatted("\n".join([head, "from __future__ import annotations", *imports, text]))


class Source(NamedTuple):
    """An async module."""

    name: str
    definitions: dict[str, ast.ClassDef | Function]
    overloads: dict[str, list[Function]]
    """The other forms of functions that have several."""
    places: dict[str, str]
    """Where each name of the module can be imported from."""

    @classmethod
    def read(cls, name: str) -> Source:
        path = SOURCES.joinpath(*name.split(".")).with_suffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        definitions: dict[str, ast.ClassDef | Function] = {}
        overloads: dict[str, list[Function]] = {}
        places: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                places |= {alias.asname or alias.name: node.module or "" for alias in node.names}
        for node in tree.body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() if "overload" in decorators(node):
                    overloads.setdefault(node.name, []).append(node)
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    definitions[node.name] = node
                    places[node.name] = f"outrider.{name}"
                case ast.Assign(targets=[ast.Name(variable)]) | ast.AnnAssign(target=ast.Name(variable)):
                    places[variable] = f"outrider.{name}"
                case _:
                    pass
        return cls(name, definitions, overloads, places)


def imported(target: str, used: set[str], sources: list[Source]) -> Iterator[str]:
    here = {name for names in LAYOUT[target].values() for name in names}
    for name in sorted(used & {"Awaitable", "Callable"}):
        yield f"from collections.abc import {name}"
    for name in sorted(used & TYPING):
        yield f"from typing import {name}"
    for name in LAYOUT[target]:
        package, _, module = name.rpartition(".")
        renamed = "" if module == alias_of(name) else f" as {alias_of(name)}"
        yield f"from outrider.{package} import {module}{renamed}"
    for name in sorted(used & {"Wrapper", "wrap"}):
        yield f"from outrider.sync._portal import {name}"
    if "portal" in used:
        yield "from outrider.sync._portal import portal"
    places = {name: place for source in sources for name, place in source.places.items()}
    for name in sorted(used - here - TYPING - {"Awaitable", "Callable"}):
        if name in WRAPPED:
            yield f"from outrider.sync.{home_of(name)} import {name}"
        elif name in places:
            yield f"from {places[name]} import {name}"


def alias_of(source: str) -> str:
    """What a generated module calls an async one: no name of a function."""
    return f"_{source.rpartition('.')[2].lstrip('_')}"


def home_of(wrapper: str) -> str:
    """The generated module that has a wrapper."""
    return next(
        target for target, module in LAYOUT.items() if any(wrapper in names for names in module.values())
    )


def made_class(source: str, node: ast.ClassDef) -> Iterator[str]:
    bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in WRAPPED]
    generic = next((ast.unparse(base) for base in node.bases if isinstance(base, ast.Subscript)), "")
    kind = f"{source}.{node.name}{generic.removeprefix('Generic')}"
    yield f"class {node.name}({', '.join(filter(None, [*(bases or ['Wrapper']), generic]))}):"
    # Narrower than in the class that it derives from: nobody sets it but the constructor.
    ignored = "  # pyright: ignore[reportIncompatibleVariableOverride]" if bases else ""
    lines = [*docstring(node, depth=1), "", f"_async: {kind}{ignored}"]
    for name, kind in ATTRIBUTES.get(node.name, {}).items():
        lines += ["", "@property", f"def {name}(self) -> {kind}:"]
        lines.append(f"    return {of(kind, f'self._read(lambda: self._async.{name})')}")
    done = {method.name for base in bases for method in all_methods(base)}
    methods = [method for method in all_methods(node.name) if method.name not in done]
    overloaded = {method.name for method in methods if "overload" in decorators(method)}
    for method in methods:
        if method.name == "__init__" and node.name in MADE_BY_USERS:
            lines += ["", *made_constructor(source, node.name, method)]
        elif is_offered(method):
            lines += ["", *made_method(method, is_overloaded=method.name in overloaded)]
    yield from (f"{INDENT}{line}" for line in lines)


def is_offered(node: Function) -> bool:
    """Whether users call it; other ways to make an object are not for them."""
    is_public = node.name in RENAMED or not node.name.startswith("_")
    return is_public and "classmethod" not in decorators(node)


def all_methods(name: str) -> list[Function]:
    """The methods of a class."""
    (source,) = (source for module in LAYOUT.values() for source, names in module.items() if name in names)
    return [item for item in Source.read(source).definitions[name].body if isinstance(item, Function)]


def made_constructor(source: str, name: str, node: Function) -> Iterator[str]:
    if "overload" in decorators(node):
        yield from ("@overload", f"def __init__({ast.unparse(node.args)}) -> None: ...")
        return
    yield f"def __init__({ast.unparse(node.args)}) -> None:"
    yield from (f"{INDENT}{line}" for line in docstring(node))
    called = f'cast("Callable[..., object]", {source}.{name})'
    passed = ", ".join([called, *arguments(node.args)])
    yield f"{INDENT}loop = portal()"
    yield f"{INDENT}super().__init__(loop.read({passed}), loop)"


def made_method(node: Function, *, is_overloaded: bool) -> Iterator[str]:
    assert node.returns is not None
    returns, called = ast.unparse(node.returns), f"self._async.{node.name}"
    kept = [name for name in decorators(node) if name in {"overload", "property"}]
    yield from (f"@{name}" for name in kept)
    yield f"def {RENAMED.get(node.name, node.name)}({ast.unparse(node.args)}) -> {returns}:"
    yield from (f"{INDENT}{line}" for line in docstring(node))
    if "overload" in kept:
        yield f"{INDENT}..."
        return
    if is_overloaded:
        called = f'cast("Callable[..., Awaitable[{returns}]]", {called})'
    passed = ", ".join([called, *arguments(node.args)])
    if "property" in kept:
        value = f"self._read(lambda: {called})"
    elif node.name == "__aenter__":
        value = "self._enter(self._async)"
    elif isinstance(node, ast.AsyncFunctionDef):
        value = f"self._wait({passed})"
    else:
        value = f"self._read({passed})"
    if returns == "Self":
        if node.name == "__aenter__":
            yield f"{INDENT}{value}"
        yield f"{INDENT}return self"
    elif returns == "None":
        yield f"{INDENT}{value}"
    else:
        yield f"{INDENT}return {of(returns, value)}"


def made_function(source: str, node: Function, overloads: list[Function]) -> Iterator[str]:
    assert node.returns is not None
    returns = ast.unparse(node.returns)
    for form in overloads:
        assert form.returns is not None
        yield "@overload"
        yield f"def {form.name}({ast.unparse(form.args)}) -> {ast.unparse(form.returns)}: ..."
    yield f"def {node.name}({ast.unparse(node.args)}) -> {returns}:"
    yield from (f"{INDENT}{line}" for line in docstring(node, depth=1))
    way = "call" if isinstance(node, ast.AsyncFunctionDef) else "read"
    called = f"{source}.{node.name}"
    if overloads or node.args.kwarg:
        given = f"Awaitable[{returns}]" if way == "call" else "object"
        called = f'cast("Callable[..., {given}]", {called})'
    passed = ", ".join([called, *arguments(node.args, skipped=0)])
    yield f"{INDENT}loop = portal()"
    yield f"{INDENT}return {of(returns, f'loop.{way}({passed})', 'loop')}"


def of(kind: str, value: str, loop: str = "") -> str:
    """The wrapper of a value, if it is to have one."""
    assert not re.search("Async|Await|Coroutine", kind), f"{kind} has to be given a form without `await`"
    plain = kind.partition("[")[0]
    if plain not in WRAPPED:
        return value
    wrapped = f"wrap({plain}, {value}, {loop})" if loop else f"self._wrap({plain}, {value})"
    return wrapped if plain == kind else f'cast("{kind}", {wrapped})'


def arguments(args: ast.arguments, *, skipped: int = 1) -> Iterator[str]:
    """How a call passes its own arguments on."""
    for arg in [*args.posonlyargs, *args.args][skipped:]:
        yield passed_on(arg)
    if args.vararg:
        yield f"*{args.vararg.arg}"
    for arg in args.kwonlyargs:
        yield f"{arg.arg}={passed_on(arg)}"
    if args.kwarg:
        yield f"**{args.kwarg.arg}"


def passed_on(arg: ast.arg) -> str:
    """An argument for the async form: what a wrapper wraps."""
    is_wrapper = arg.annotation is not None and ast.unparse(arg.annotation) in WRAPPED
    return f"{arg.arg}._async" if is_wrapper else arg.arg


def decorators(node: Function) -> list[str]:
    return [item.id for item in node.decorator_list if isinstance(item, ast.Name)]


def names_in(text: str) -> set[str]:
    """All names that are used, also in types that are texts."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and re.match(r"\w+\[", str(node.value)):
            found |= set(re.findall(r"\b[A-Za-z_]\w*", str(node.value)))
    return found


def docstring(node: ast.ClassDef | Function, depth: int = 2) -> list[str]:
    text = ast.get_docstring(node) or ""
    for old, new in WORDS.items():
        text = text.replace(old, new)
    if not text:
        return []
    width = WIDTH - depth * len(INDENT)
    lines = "\n\n".join(filled(part, width) for part in f'"""{text}'.split("\n\n")).splitlines()
    if len(lines) == 1 and len(lines[0]) + 3 <= width:
        return [f'{lines[0]}"""']
    return [*lines, '"""']


def filled(paragraph: str, width: int) -> str:
    """A paragraph in full lines; code and lists stay as they are."""
    if paragraph.startswith((" ", "- ")):
        return paragraph
    return textwrap.fill(paragraph, width, break_long_words=False, break_on_hyphens=False)


def formatted(text: str) -> str:
    for command in (["check", "--select=I", "--fix"], ["format"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--quiet", f"--stdin-filename={TARGETS / 'x.py'}", "-"],
            input=text,
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        text = done.stdout
    return text


if __name__ == "__main__":
    main()
