"""The pages of the site: which there are, and what is in them.

A page is a Markdown file that reads well on its own, in the repository too. Links between pages are relative
paths; the site gets the same files with links that fit there.
"""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
CONFIG: Final = ROOT / "mkdocs.yml"
TOP: Final = {
    "index.md": "README.md",
    "architecture.md": "ARCHITECTURE.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "versioning.md": "VERSIONING.md",
}
"""Pages that are at the top of the repository."""

API: Final = "api/"

_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"\]\((?P<link>[^()\s]+)(?: \"[^\"]*\")?\)|\b(?:src|href)=\"(?P<source>[^\"]+)\"")
_NAV = re.compile(r"^ +- (?:.+: )?([\w./-]+\.md)$", re.MULTILINE)


class Link(NamedTuple):
    """Where a page points to."""

    target: str
    start: int
    end: int

    @property
    def is_external(self) -> bool:
        return bool(re.match(r"[a-z]+:", self.target))


def sources() -> dict[str, Path]:
    """The file of each page, by the page's path on the site."""
    docs = ROOT / "docs"
    made = {path.relative_to(docs).as_posix(): path for path in sorted(docs.rglob("*.md"))}
    return {page: ROOT / name for page, name in TOP.items()} | made


def navigation() -> list[str]:
    """The pages in the order of the site's navigation."""
    return _NAV.findall(CONFIG.read_text(encoding="utf-8"))


def blanked(text: str) -> str:
    """The text with spaces in the place of code, so that positions stay."""
    for pattern in _FENCE, _CODE:
        text = pattern.sub(lambda found: re.sub(r"\S", " ", found[0]), text)
    return text


def links(text: str) -> Iterator[Link]:
    """The links and pictures of a page."""
    for found in _LINK.finditer(blanked(text)):
        name = found.lastgroup or ""
        yield Link(found[name], *found.span(name))


def anchors(text: str) -> set[str]:
    """What a link may name after `#`: each heading, as GitHub and the site spell it."""
    made: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\]\([^)]*\)|[`*\[]", "", heading)
        slug = base = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        number = 0
        while slug in made:
            number += 1
            slug = f"{base}-{number}"
        made.add(slug)
    return made


def title(text: str) -> str:
    """The first heading, as plain text."""
    found = _HEADING.search(_FENCE.sub("", text))
    return re.sub(r"[`*]", "", found[1]) if found else ""


def summary(text: str) -> str:
    """The first sentence of prose, as plain text."""
    after = _HEADING.sub("", _FENCE.sub("", text), count=1)
    paragraphs = (part.strip() for part in after.split("\n\n"))
    prose = next((part for part in paragraphs if part and part[0] not in "<!|*[#>"), "")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=\.) ", plain, maxsplit=1)[0]


def urls() -> dict[str, str]:
    """The addresses of the project, as the package has them: `Homepage` is where the source is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {name: str(url).rstrip("/") for name, url in project["urls"].items()}


def staged(page: str, path: Path, pages: dict[str, Path]) -> str:
    """The text of a page with links that fit the site.

    A link to another page leads to that page, a picture stays beside it, and another file of the repository
    is linked where the source can be looked at.
    """
    text = path.read_text(encoding="utf-8")
    by_source = {source.resolve(): name for name, source in pages.items()}
    home = urls()["Homepage"]
    for link in sorted(links(text), key=lambda link: link.start, reverse=True):
        target, sharp, anchor = link.target.partition("#")
        if target.startswith(f"{home}/blob/main/"):
            file = ROOT / target.removeprefix(f"{home}/blob/main/")
        elif link.is_external or not target:
            continue
        else:
            file = path.parent / target
        file = file.resolve()
        if file in by_source:
            new = _relative(by_source[file], page)
        elif file.is_relative_to(ROOT / "docs") and file.is_file():
            new = _relative(file.relative_to(ROOT / "docs").as_posix(), page)
        else:
            kind = "tree" if file.is_dir() else "blob"
            new = f"{home}/{kind}/main/{file.relative_to(ROOT).as_posix()}"
        text = text[: link.start] + new + sharp + anchor + text[link.end :]
    return text


def _relative(target: str, page: str) -> str:
    return os.path.relpath(target, PurePosixPath(page).parent)
