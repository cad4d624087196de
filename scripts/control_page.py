"""Write the tables in docs/control.md, from the methods of `outrider.session.Requests` and the requests of
`outrider.wire.control`."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from outrider.session import Requests
from outrider.wire import control

PAGE = Path(__file__).parents[1] / "docs" / "control.md"
START, END = "<!-- tables -->\n", "<!-- end of tables -->\n"

HEADINGS = {
    "_session": "Requests about the session, files and background tasks",
    "_settings": "Requests about settings, plugins, models and usage",
    "_mcp": "Requests about MCP servers",
}
"""Over the requests of each module of `outrider.wire.control`."""

OUR_OWN = {"initialize", "mcp_message"}
"""Requests that the session sends by itself."""


class Row(NamedTuple):
    """A way to ask the agent."""

    heading: str
    call: str
    text: str
    answer: str
    request: str
    """The name of the request on the wire."""


def rows() -> Iterator[Row]:
    (body,) = [
        node.body for node in ast.parse(inspect.getsource(Requests)).body if isinstance(node, ast.ClassDef)
    ]
    methods = [
        method(node) for node in body if isinstance(node, ast.AsyncFunctionDef) and node.name != "request"
    ]
    yield from methods
    asked = {row.request for row in methods}
    for name, kind in control.REQUESTS.items():
        if name not in asked | OUR_OWN:
            yield request(name, kind)


def request(name: str, kind: type[control.Request[Any]]) -> Row:
    """A request that is asked with `request`."""
    fields = msgspec.structs.fields(kind)
    given = [field.name if field.required else f"{field.name}={shown(field)}" for field in fields]
    text = " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split())
    heading = HEADINGS[kind.__module__.rpartition(".")[2]]
    return Row(heading, f"request({kind.__name__}({', '.join(given)}))", text, kind.answer.__name__, name)


def shown(field: msgspec.structs.FieldInfo) -> str:
    default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    return "…" if default is msgspec.UNSET else repr(default)


def method(node: ast.AsyncFunctionDef) -> Row:
    text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    assert text, f"{node.name} has no docstring"
    answer = ast.unparse(node.returns) if node.returns is not None else ""
    return Row("Methods", call(node), text, re.sub(r"\bcontrol\.", "", answer), subtype(node))


def call(node: ast.AsyncFunctionDef) -> str:
    """How it is called: without types, and without `timeout`, which all have."""
    arguments = node.args
    optional = len(arguments.args) - len(arguments.defaults)
    parts = [
        argument.arg
        if number < optional
        else f"{argument.arg}={spelled(arguments.defaults[number - optional])}"
        for number, argument in enumerate(arguments.args)
        if argument.arg != "self"
    ]
    by_name = [
        argument.arg if default is None else f"{argument.arg}={spelled(default)}"
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if argument.arg != "timeout"
    ]
    star = ["*"] if by_name else []
    return f"{node.name}({', '.join([*parts, *star, *by_name])})"


def spelled(default: ast.expr) -> str:
    text = ast.unparse(default)
    return "…" if text == "UNSET" else text


def subtype(node: ast.AsyncFunctionDef) -> str:
    """The request that it sends."""
    made = [
        getattr(control, found.func.attr)
        for found in ast.walk(node)
        if isinstance(found, ast.Call)
        and isinstance(found.func, ast.Attribute)
        and ast.unparse(found.func.value) == "control"
    ]
    (name,) = [kind.__struct_config__.tag for kind in made if issubclass(kind, control.Request)]
    return str(name)


def tables() -> str:
    parts: list[str] = []
    sections: dict[str, list[Row]] = {}
    for each in rows():
        sections.setdefault(each.heading, []).append(each)
    for heading, listed in sections.items():
        parts.append(f"## {heading}\n\n| call and wire name | what it does | answer |\n|---|---|---|\n")
        for each in listed:
            cells = f"`{each.call}`<br>`{each.request}`", each.text, f"`{each.answer}`"
            escaped = (cell.replace("|", "\\|") for cell in cells)
            parts.append(f"| {' | '.join(escaped)} |\n")
        parts.append("\n")
    return "".join(parts)


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{tables()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
