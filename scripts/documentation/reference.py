"""The API reference: a page for each package, from what the package offers.

A name is described once, on the page of the first package in the navigation that offers it; the others link
to it. Everything is read from the source, so nothing optional has to be installed.
"""

import importlib
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import griffe

from scripts.documentation.sources import API, ROOT, navigation

_PACKAGE: Final = griffe.load(
    "outrider", search_paths=[ROOT / "src"], resolve_aliases=True, resolve_external=False
)

_CODE_NAME: Final = re.compile(
    # What is left as it is: blocks of code, headings, links, other code.
    r"^ *```.*?^ *```$|^#.*?$|\[[^]]*\]\([^)]*\)|``.+?``|`(?P<name>[\w.]+)`|`[^`]+`",
    re.DOTALL | re.MULTILINE,
)


class Name(NamedTuple):
    """A name that a package offers."""

    path: str
    """Where it is described: `outrider.Session`."""
    item: griffe.Object
    is_here: bool
    """False: the page of another package describes it."""

    @property
    def summary(self) -> str:
        text = self.item.docstring.value if self.item.docstring else ""
        return " ".join(text.split("\n\n")[0].split())


def packages() -> list[str]:
    """The packages that have a page."""
    return [page.removeprefix(API).removesuffix(".md") for page in navigation() if page.startswith(API)]


def names() -> dict[str, list[Name]]:
    """What each package offers, with where that is described."""
    homes: dict[str, str] = {}
    made: dict[str, list[Name]] = {}
    for package in packages():
        module = _PACKAGE[package.removeprefix("outrider").removeprefix(".")] if "." in package else _PACKAGE
        made[package] = []
        for name in _offered(package, module):
            member = module.members[name]
            item = member.final_target if isinstance(member, griffe.Alias) else member
            if isinstance(item, griffe.Module) or not isinstance(item, griffe.Object):
                continue
            home = homes.setdefault(item.path, f"{package}.{name}")
            made[package].append(Name(home, item, home == f"{package}.{name}"))
    return made


def _offered(package: str, module: griffe.Object | griffe.Alias) -> list[str]:
    stated: list[str] | None = getattr(importlib.import_module(package), "__all__", None)
    if stated is not None:
        return [name for name in stated if not name.startswith("_")]
    is_package = module.is_package or module.is_subpackage
    return [
        name
        for name, member in module.members.items()
        if not name.startswith("_") and (_is_own(member) if is_package else not member.is_alias)
    ]


def _is_own(member: griffe.Object | griffe.Alias) -> bool:
    """Defined in this package, not imported from another one."""
    while isinstance(member, griffe.Alias):
        if not member.target_path.startswith("outrider."):
            return False
        member = member.target
    return True


def page(package: str, offered: list[Name]) -> str:
    """The page of a package, for mkdocstrings."""
    here = [name for name in offered if name.is_here]
    elsewhere = [name for name in offered if not name.is_here]
    lines = [f"# `{package}`\n", f"{_docstring(package)}\n"]
    if here:
        rows = ((name.path.removeprefix(f"{package}."), name) for name in here)
        lines.append("| name | what it is |\n|---|---|")
        lines += [f"| [`{short}`][{name.path}] | {_cell(name)} |" for short, name in rows]
    if elsewhere:
        listed = ", ".join(f"[`{name.path.rpartition('.')[2]}`][{name.path}]" for name in elsewhere)
        lines.append(f"\nDescribed elsewhere, and offered here too: {listed}.\n")
    for name in here:
        lines.append(f"\n::: {name.path}")
        # What all of them have would be there hundreds of times.
        if name.item.path.startswith("outrider.wire."):
            lines.append("    options:\n      inherited_members: false")
    return "\n".join(lines) + "\n"


def targets(offered: dict[str, list[Name]]) -> dict[str, str]:
    """What a page may call a class or a function, and where that is described.

    Full names, and short names of classes that mean one thing only, or one at the top.
    """
    full = {name.path: name.path for names in offered.values() for name in names}
    found: dict[str, set[str]] = {}
    for package, names in offered.items():
        if package not in {"outrider.compat", "outrider.sync"}:
            for name in names:
                found.setdefault(name.path.rpartition(".")[2], set()).add(name.path)
    at_top = {name.path for name in offered["outrider"] if name.is_here}
    for short, paths in found.items():
        if short[0].isupper() and not short.isupper() and (len(paths) == 1 or paths & at_top):
            full[short] = (paths & at_top or paths).copy().pop()
    return full


def with_references(text: str, known: dict[str, str]) -> str:
    """The text of a page with a link to the reference where it first names something."""
    seen: set[str] = set()

    def linked(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None or name not in known or known[name] in seen:
            return found[0]
        seen.add(known[name])
        return f"[`{name}`][{known[name]}]"

    return _CODE_NAME.sub(linked, text)


def _docstring(package: str) -> str:
    text = importlib.import_module(package).__doc__ or ""
    first, _, rest = text.partition("\n")
    return f"{first}\n{rest}".strip()


def _cell(name: Name) -> str:
    return name.summary.replace("|", "\\|")


def as_markdown(package: str, offered: list[Name]) -> str:
    """The same page as plain Markdown: signatures and docstrings."""
    lines = [f"# `{package}`\n", f"{_docstring(package)}\n"]
    for name in offered:
        if name.is_here:
            lines += _described(name.item, name.path.removeprefix(package + "."), "##")
    elsewhere = [f"`{name.path}`" for name in offered if not name.is_here]
    if elsewhere:
        lines.append(f"Described elsewhere, and offered here too: {', '.join(elsewhere)}.\n")
    return "\n".join(lines)


def _described(item: griffe.Object, name: str, level: str) -> Iterator[str]:
    yield f"{level} `{name}`\n"
    yield f"```python\n{_signature(item)}\n```\n"
    if item.docstring:
        yield f"{item.docstring.value}\n"
    if isinstance(item, griffe.Class):
        for key, member in item.all_members.items():
            target = member.final_target if isinstance(member, griffe.Alias) else member
            if not key.startswith("_") and isinstance(target, griffe.Attribute | griffe.Function):
                text = f": {' '.join(target.docstring.value.split())}" if target.docstring else ""
                yield f"* `{_signature(target)}`{text}"
        yield ""


def _signature(item: griffe.Object) -> str:
    if isinstance(item, griffe.Function):
        return str(item.signature())
    if isinstance(item, griffe.Class):
        bases = ", ".join(str(base) for base in item.bases)
        return f"class {item.name}({bases})" if bases else f"class {item.name}"
    annotation = f": {item.annotation}" if isinstance(item, griffe.Attribute) and item.annotation else ""
    return f"{item.name}{annotation}"
