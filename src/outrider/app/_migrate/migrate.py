"""Owns `outrider migrate`: shows what changes in a code base that used the other SDK, and makes the changes.

Does not know Python: what is found in a file, `_migrate_files` and those below it say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec
from rich.text import Text

from outrider._display import plain
from outrider.app._failing import Code, Failed, in_one_line
from outrider.app._migrate.files import Examined, examined, files_in, replace
from outrider.app._migrate.rules import NEW, OLD, Counterpart, Finding, Weight, weight_of
from outrider.app._render.describe import shortened
from outrider.app._terminal import Terminal, chopped, one_line, printable

__all__ = ["counterpart", "migrate"]

_MODULES: Final = ("types", "testing", "_errors")
_AROUND: Final = 3
"""So many lines are shown before and after a change."""
_LONGEST: Final = 400
"""Of a line; those of notebooks may hold pictures."""

_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


class _Place(msgspec.Struct, frozen=True):
    """Something to look at, as it is told to programs."""

    path: str
    line: int
    cell: int | None
    rule: str
    weight: Weight
    text: str

    @classmethod
    def of(cls, path: Path, found: Finding) -> _Place:
        return cls(str(path), found.line, found.cell or None, found.rule, weight_of(found.rule), found.text)

    @property
    def where(self) -> str:
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{one_line(self.path)}:{cell}{self.line}"


def migrate(paths: Sequence[Path], *, no_color: bool, write: bool, check: bool, as_json: bool) -> int:
    """Look through files and folders, print what was found, and change it if that is wanted.

    Gives the exit code. Raises `OSError` for a path that is not there.
    """
    if write and check:
        raise Failed("--check changes nothing: leave it out, or --write.", Code.USAGE)
    terminal = Terminal(no_color=no_color)
    failures: list[OSError] = []
    if not as_json:
        terminal.wait("reading")
    try:
        files = list(_examined(paths, failures))
    finally:
        terminal.clear()
    changed = [file for file in files if file.is_changed]
    written = [file for file in changed if write and _is_replaced(file, failures)]
    places = [_Place.of(file.path, found) for file in files for found in file.findings]
    if as_json:
        _tell(terminal, changed, written, places, failures)
    else:
        _show(terminal, changed, places)
        for failure in failures:
            terminal.note(f"error: {in_one_line(failure, {})}")
        where = ", ".join("this folder" if path == Path() else one_line(str(path)) for path in paths)
        last = _summary(changed, written, places, is_written=write)
        terminal.print(last if files or failures else Text(f"No file in {where} imports {OLD}."))
    return Code.FAILED if failures or (check and changed) else Code.OK


def counterpart() -> Counterpart:
    """What there is in `outrider.compat`."""
    there = {name: _public(f"{NEW}.{name}") for name in _MODULES}
    return {"": _public(NEW) | there.keys(), **there}


def _public(module: str) -> frozenset[str]:
    loaded = import_module(module)
    names: Sequence[str] | None = getattr(loaded, "__all__", None)
    return frozenset(names if names is not None else dir(loaded))


def _examined(paths: Sequence[Path], failures: list[OSError]) -> Iterator[Examined]:
    there = counterpart()
    for path in files_in(paths, failures.append):
        try:
            file = examined(path, there)
        except OSError as error:
            failures.append(error)
            continue
        if file.is_changed or file.findings:
            yield file


def _is_replaced(file: Examined, failures: list[OSError]) -> bool:
    try:
        replace(file)
    except OSError as error:
        # Whatever the file was called on the way.
        error.filename = str(file.path)
        failures.append(error)
        return False
    return True


# How it looks.


def _show(terminal: Terminal, changed: Sequence[Examined], places: Sequence[_Place]) -> None:
    for file in changed:
        for line in _diff(file):
            _print_line(terminal, line)
        terminal.print()
    for weight, title in (("look", "To look at"), ("hint", "Simpler now")):
        chosen = [place for place in places if place.weight == weight]
        if chosen:
            terminal.print(Text(f"{title}:", style="bold"))
            for place in chosen:
                _print_place(terminal, place)
            terminal.print()


def _print_line(terminal: Terminal, line: str) -> None:
    style = "bold" if line.startswith(("--- ", "+++ ")) else _STYLES.get(line[:1], "")
    if not terminal.out.is_terminal:
        terminal.print(Text(shortened(plain(line), _LONGEST)))
        return
    # At the edge of the terminal, not between words: where a line of code is indented is a part of it.
    sign, words = line[:1], shortened(printable(line[1:]), _LONGEST)
    for piece in chopped(words, max(terminal.out.width - 1, 20)):
        terminal.print(Text(f"{sign}{piece}", style=style, no_wrap=True))
        sign = " "


def _print_place(terminal: Terminal, place: _Place) -> None:
    style = "yellow" if place.weight == "look" else "cyan"
    if not terminal.out.is_terminal:
        # As compilers write it: editors and other programs know where it is.
        terminal.print(f"{place.where}: {one_line(place.text)} [{place.rule}]")
        return
    terminal.print(Text.assemble("  ", (place.where, style), (f"  {place.rule}", "dim")))
    words = Text(one_line(place.text))
    for line in words.wrap(terminal.out, max(min(terminal.out.width, 110) - 4, 20)):
        terminal.print(Text("    ").append_text(line))


def _diff(file: Examined) -> Iterator[str]:
    """The lines of a unified diff. There are as many lines as before: none is added or taken away."""
    before, after = (data.decode(errors="replace").split("\n") for data in (file.before, file.after))
    count = len(before) if before[-1] else len(before) - 1
    path = one_line(_readable(file.path))
    yield f"--- {path}"
    yield f"+++ {path}"
    for start, end in _hunks([number for number in range(count) if before[number] != after[number]], count):
        yield f"@@ -{start + 1},{end - start} +{start + 1},{end - start} @@"
        added: list[str] = []
        for number in range(start, end):
            old, new = (lines[number].removesuffix("\r") for lines in (before, after))
            ending = ["\\ No newline at end of file"] if number == len(before) - 1 else []
            if old != new:
                yield from (f"-{old}", *ending)
                added += (f"+{new}", *ending)
            else:
                yield from (*added, f" {old}", *ending)
                added.clear()
        yield from added


def _hunks(numbers: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
    """From where to where lines are shown, if these are to be seen and so many there are."""
    start = end = 0
    for number in numbers:
        if number - _AROUND > end and end:
            yield start, end
            end = 0
        start = start if end else max(number - _AROUND, 0)
        end = min(number + _AROUND + 1, count)
    if end:
        yield start, end


def _summary(
    changed: Sequence[Examined], written: Sequence[Examined], places: Sequence[_Place], *, is_written: bool
) -> Text:
    shown = written if is_written else changed
    counts = (sum(file.imports for file in shown), "import"), (sum(file.strings for file in shown), "string")
    changes = " and ".join(_count(number, word) for number, word in counts if number)
    looks, hints = (sum(place.weight == weight for place in places) for weight in ("look", "hint"))
    text = f"{_count(len(shown), 'file')}, {changes} changed" if changes else "Nothing to change"
    text += f"; {_count(looks, 'place')} to look at" if looks else ""
    text += f"; {_count(hints, 'hint')}" if hints else ""
    if is_written and len(written) < len(changed):
        left = _count(len(changed) - len(written), "file")
        return Text(f"{text}. {left} could not be written.", style="bold red")
    if changed and not is_written:
        return Text(f"{text}. Nothing was written: --write makes the changes.", style="bold yellow")
    return Text(f"{text}.", style="bold green")


def _readable(path: Path | str) -> str:
    """A path whose bytes may be no text at all, as text."""
    return str(path).encode(errors="replace").decode()


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _tell(
    terminal: Terminal,
    changed: Sequence[Examined],
    written: Sequence[Examined],
    places: Sequence[_Place],
    failures: Sequence[OSError],
) -> None:
    told = {
        "files": [
            {
                "path": _readable(file.path),
                "imports": file.imports,
                "strings": file.strings,
                "is_written": file in written,
                "diff": "".join(f"{line}\n" for line in _diff(file)),
            }
            for file in changed
        ],
        "places": places,
        "errors": [_readable(in_one_line(failure, {})) for failure in failures],
    }
    terminal.write_json(msgspec.json.format(msgspec.json.encode(told).decode(), indent=2))
