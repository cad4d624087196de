"""Write the tables in docs/options.md, from the fields of `Options` and the table of `outrider.launch`."""

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from outrider.launch._encode import Filed, Flag, Host, Init, Place, Variable
from outrider.launch._table import ROWS
from outrider.options import OptionFields, Options
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
            text = " ".join(str(after.value.value).split())
            yield Field(node.target.id, ast.unparse(node.value), text, node.lineno)


def sections() -> dict[str, list[Field]]:
    """The fields under the headings that stand over them in the source, as comments."""
    lines = inspect.getsource(inspect.getmodule(Options) or Options).splitlines()
    headings = {
        number: found[1]
        for number, line in enumerate(lines, 1)
        if (found := re.fullmatch(r"    # (\w[^.]*)\.", line))
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


def where(place: Place) -> str:
    match place:
        case Flag(name):
            return f"`{name}`"
        case Filed(name):
            return f"`{name}`, a file"
        case Init(name):
            spelled = Initialize.__struct_encode_fields__[Initialize.__struct_fields__.index(name)]
            return f"`{spelled}` in the first request"
        case Variable(name):
            return f"the variable `{name}`"
        case Host(user):
            return f"by {user}"


def tables() -> str:
    places: dict[str, list[str]] = {}
    for row in ROWS:
        # The first field is the one that the row is about; the others have a say in it.
        places.setdefault(row.option, []).append(where(row.to))
    for row in ROWS:
        for name in row.fields[1:]:
            places.setdefault(name, []).append(f"with `{row.option}`")
    accepted = forms()
    parts: list[str] = []
    for heading, listed in sections().items():
        parts.append(f"## {heading}\n\n| option | what it does | how it reaches the agent |\n|---|---|---|\n")
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
