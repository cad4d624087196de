"""Write the tables in docs/control.md, from the methods of `outrider.session.Requests`."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from outrider.session import Requests
from outrider.wire import control

PAGE = Path(__file__).parents[1] / "docs" / "control.md"
START, END = "<!-- tables -->\n", "<!-- end of tables -->\n"

# Over what stands before the first heading of a class.
FIRST_HEADINGS = {"McpRequests": "MCP servers"}


class Method(NamedTuple):
    """A method as it is written down in the source."""

    heading: str
    call: str
    text: str
    """The first paragraph of its docstring."""
    answer: str
    request: str
    """The name of the request on the wire."""


def methods() -> Iterator[Method]:
    for part in Requests.__bases__:
        lines = inspect.getsource(part).splitlines(keepends=True)
        (body,) = [node.body for node in ast.parse("".join(lines)).body if isinstance(node, ast.ClassDef)]
        headings = {
            number: found[1]
            for number, line in enumerate(lines, 1)
            if (found := re.match(r"    # (.+)\.$", line))
        }
        for node in body:
            if isinstance(node, ast.AsyncFunctionDef):
                over = [number for number in headings if number < node.lineno]
                heading = headings[max(over)] if over else FIRST_HEADINGS[part.__name__]
                yield method(heading, node)


def method(heading: str, node: ast.AsyncFunctionDef) -> Method:
    text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    assert text, f"{node.name} has no docstring"
    answer = ast.unparse(node.returns) if node.returns is not None else ""
    return Method(heading, call(node), text, re.sub(r"\bcontrol\.", "", answer), subtype(node))


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
    sections: dict[str, list[Method]] = {}
    for each in methods():
        sections.setdefault(each.heading, []).append(each)
    for heading, listed in sections.items():
        parts.append(
            f"## {heading}\n\n| call, and the request on the wire | what it does | answer |\n|---|---|---|\n"
        )
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
