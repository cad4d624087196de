"""Write the tables in docs/command.md and docs/batches.md: the flags and the exit codes, from the code."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from outrider.app._flags import FLAGS, Code, Flag
from outrider.app._fleet.commands import BATCH_FLAGS

PAGE = Path(__file__).parents[1] / "docs" / "command.md"
BATCHES = PAGE.with_name("batches.md")


def codes() -> Iterator[str]:
    """A line for each exit code: its docstring is what it means."""
    yield "| code | when |"
    yield "|---|---|"
    (body,) = [
        node.body for node in ast.parse(inspect.getsource(Code)).body if isinstance(node, ast.ClassDef)
    ]
    meanings = {"OK": "Success."}
    for node, after in pairwise(body):
        if (
            isinstance(node, ast.Assign)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            (target,) = node.targets
            meanings[ast.unparse(target)] = " ".join(str(after.value.value).split())
    for code in Code:
        yield f"| {int(code)} | {meanings[code.name]} |"


def flags() -> Iterator[str]:
    """A line for each flag."""
    yield "| flag | option | |"
    yield "|---|---|---|"
    for flag in FLAGS:
        option = f"`{flag.option}.{flag.key}`" if flag.key else f"`{flag.option}`"
        yield f"| {_names(flag)} | {option} | {flag.help} |"


def batch() -> Iterator[str]:
    """A line for each flag of a batch."""
    yield "| flag | |"
    yield "|---|---|"
    for flag in BATCH_FLAGS:
        yield f"| {_names(flag)} | {flag.help} |"


def _names(flag: Flag) -> str:
    value = f" {flag.value}" if flag.value else ""
    return ", ".join(f"`{name}{value}`" for name in flag.names)


def page(path: Path = PAGE) -> str:
    """The page with its tables."""
    text = path.read_text(encoding="utf-8")
    for name, lines in (("codes", codes()), ("flags", flags()), ("batch", batch())):
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        if start not in text:
            continue
        before, _, rest = text.partition(start)
        text = before + start + "".join(f"{line}\n" for line in lines) + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    for path in (PAGE, BATCHES):
        path.write_text(page(path), encoding="utf-8")
