"""Builds the site: `python -m scripts.documentation.build`, in the environment that `make docs` makes.

Always from nothing: what Zensical keeps from the last build does not notice every change. It is checked as it
will be read: every link, anchor and cross-reference of the HTML.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from scripts.documentation import links, reference
from scripts.documentation.sources import API, CONFIG, ROOT, navigation, sources, staged, summary, title, urls

PAGES: Final = ROOT / "build" / "pages"
SITE: Final = ROOT / "build" / "site"
_UNRESOLVED: Final = re.compile(r"\]\[[\w.]+\]")


def main() -> None:
    """Write the pages, build the site, add the Markdown, and check it."""
    _fail(links.problems())
    for folder in PAGES, SITE:
        shutil.rmtree(folder, ignore_errors=True)
    pages = sources()
    texts = {page: staged(page, path, pages) for page, path in pages.items()}
    offered = reference.names()
    known = reference.targets(offered)
    for page, text in texts.items():
        # There, names are those of the package that it replaces.
        linked = text if page == "migrating.md" else reference.with_references(text, known)
        _write(PAGES / page, _with_plain_pipes(linked))
    for package, names in offered.items():
        _write(PAGES / API / f"{package}.md", _with_plain_pipes(reference.page(package, names)))
    for picture in (ROOT / "docs").rglob("*"):
        if picture.is_file() and picture.suffix != ".md":
            _write(PAGES / picture.relative_to(ROOT / "docs"), picture.read_bytes())

    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(CONFIG)]
    addresses = {"SITE_URL": f"{urls()['Documentation']}/", "REPO_URL": urls()["Homepage"]}
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | addresses)

    texts |= {
        f"{API}{package}.md": reference.as_markdown(package, names) for package, names in offered.items()
    }
    _write_markdown(texts)
    _fail(html_problems())
    size = sum(path.stat().st_size for path in SITE.rglob("*") if path.is_file())
    print(f"{len(texts)} pages, {size / 2**20:.1f} MB: {SITE.relative_to(ROOT)}/index.html")


def _with_plain_pipes(text: str) -> str:
    """The tables as Python-Markdown reads them: a pipe in code ends no cell, and a backslash would show."""
    return re.sub(
        r"^\|.*$",
        lambda row: re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), row[0]),
        text,
        flags=re.MULTILINE,
    )


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _fail(problems: list[str]) -> None:
    if problems:
        sys.exit("\n".join(problems))


def _write_markdown(texts: dict[str, str]) -> None:
    """Every page as Markdown, a list of them, and all of them in one file, for language models."""
    for page, text in texts.items():
        _write(SITE / page, text)
    home = urls()["Documentation"]
    order = [page for page in navigation() if page in texts]
    lines = [f"# Outrider\n\n> {summary(texts['index.md'])}\n"]
    for heading, of_api in ("Guides", False), ("API", True):
        lines.append(f"## {heading}\n")
        listed = [page for page in order if page.startswith(API) == of_api]
        lines += [f"- [{title(texts[page])}]({home}/{page}): {summary(texts[page])}" for page in listed]
        lines.append("")
    _write(SITE / "llms.txt", "\n".join(lines))
    guides = [f"<!-- {page} -->\n\n{texts[page]}" for page in order if not page.startswith(API)]
    _write(SITE / "llms-full.txt", "\n".join(guides))


class _Page(HTMLParser):
    """The ids and links of a page, and what reads like a link that was not found."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.unresolved: list[str] = []
        self._code = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep its id and where it points to."""
        given = dict(attrs)
        if name := given.get("id") or given.get("name"):
            self.ids.add(name)
        if target := given.get("href") or given.get("src"):
            self.links.append(target)
        self._code += tag in {"code", "pre", "script", "style"}

    def handle_endtag(self, tag: str) -> None:
        """Leave code."""
        self._code -= tag in {"code", "pre", "script", "style"}

    def handle_data(self, data: str) -> None:
        """Look for `][name]`, which Markdown leaves as it is where it finds nothing."""
        if not self._code:
            self.unresolved += _UNRESOLVED.findall(data)


def html_problems() -> list[str]:
    """Links, anchors and cross-references of the built site that lead nowhere."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in SITE.rglob("*.html")}
    found: list[str] = []
    for path, page in pages.items():
        # Served for every address that is not there, so its links begin at the root of the host.
        if path.name == "404.html":
            continue
        name = path.relative_to(SITE).as_posix()
        found += [f"{name}: unresolved reference {each}" for each in page.unresolved]
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{name}: there is no {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                found.append(f"{name}: there is no anchor {link}")
    return sorted(set(found))


if __name__ == "__main__":
    main()
