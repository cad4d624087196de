"""Write the tables in docs/options.md, from the declarations of `outrider.options`."""

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from outrider.options import OptionFields, Options
from outrider.options._table import ROWS, Destination, File, Host, Init, Variable
from outrider.wire.control import Initialize

PAGE = Path(__file__).parents[1] / "docs" / "options.md"
START, END = "<!-- tables -->\n", "<!-- end of tables -->\n"


class Field(NamedTuple):
    """An option as it is written down in the source."""

    name: str
    default: str
    text: str
    line: int


def fields() -> Iterator[Field]:
    tree = ast.parse(inspect.getsource(inspect.getmodule(Options) or Options))
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Options"]
    for node, after in pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            assert isinstance(after, ast.Expr), f"{node.target.id} has no docstring"
            assert isinstance(after.value, ast.Constant), f"{node.target.id} has no docstring"
            assert isinstance(node.value, ast.Call), f"{node.target.id} is not declared by `option`"
            default = node.value.args[0]
            text = " ".join(str(after.value.value).split())
            yield Field(node.target.id, ast.unparse(default), text, node.lineno)


def sections() -> dict[str, list[Field]]:
    """The fields under the headings that stand over them in the source, as comments."""
    lines = inspect.getsource(inspect.getmodule(Options) or Options).splitlines()
    headings = {
        number: found[1]
        for number, (line, after) in enumerate(pairwise(lines), 1)
        if not after and (found := re.fullmatch(r"    # (\w[^.]*)\.", line))
    }
    made: dict[str, list[Field]] = {heading: [] for heading in headings.values()}
    for field in fields():
        heading = max(number for number in headings if number < field.line)
        made[headings[heading]].append(field)
    return made


def forms() -> dict[str, str]:
    """The types that each option accepts."""
    tree = ast.parse(inspect.getsource(OptionFields))
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def where(to: Destination) -> str:
    match to:
        case Init(name):
            wire_name = Initialize.__struct_encode_fields__[Initialize.__struct_fields__.index(name)]
            return f"`{wire_name}` in the first request"
        case Variable(name):
            return f"the variable `{name}`"
        case Host(name):
            return f"by {name}"
        case File(name):
            return f"`{name}`, a file"
        case Destination(name):
            return f"`{name}`"


def tables() -> str:
    places: dict[str, list[str]] = {}
    for name, to in ROWS:
        places.setdefault(name, []).append(where(to))
    for name, to in ROWS:
        for other in to.also:
            places.setdefault(other, []).append(f"with `{name}`")
    accepted = forms()
    parts: list[str] = []
    for heading, listed in sections().items():
        parts.append(f"## {heading}\n\n| option | what it does | passed on |\n|---|---|---|\n")
        for field in listed:
            form = f"`{field.name}`<br>`{accepted[field.name]}`, default `{field.default}`"
            reached = "; ".join(dict.fromkeys(places[field.name]))
            cells = (cell.replace("|", "\\|") for cell in (form, field.text, reached))
            parts.append(f"| {' | '.join(cells)} |\n")
        parts.append("\n")
    return "".join(parts)


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{tables()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
