"""Finds what is wrong with the pages: links and anchors that lead nowhere, and pages that nobody finds.

`python -m scripts.documentation.links` prints it. It reads the Markdown only, so it takes no second.
`make docs` checks the built site, too.
"""

import re
import sys
from collections import Counter
from pathlib import Path

from scripts.documentation.sources import API, ROOT, anchors, blanked, links, navigation, sources

_REFERENCE = re.compile(r"\]\[[^]]*\]")


def problems() -> list[str]:
    """What is wrong, one line each."""
    pages = sources()
    files = {path.resolve() for path in (*ROOT.glob("*.md"), *pages.values())}
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    found = [line for path in sorted(texts) for line in _wrong_links(path, texts)]
    listed = [page for page in navigation() if not page.startswith(API)]
    found += [f"mkdocs.yml: {page} is not in the navigation" for page in pages if page not in listed]
    found += [f"mkdocs.yml: there is no page {page}" for page in listed if page not in pages]
    counts = Counter(navigation())
    found += [f"mkdocs.yml: {page} is there {count} times" for page, count in counts.items() if count > 1]
    return found


def _wrong_links(path: Path, texts: dict[Path, str]) -> list[str]:
    name, text = path.relative_to(ROOT).as_posix(), texts[path]
    found = [
        f"{name}: `{reference}` means nothing on GitHub: write `](page.md)`"
        for reference in _REFERENCE.findall(blanked(text))
    ]
    for link in links(text):
        target, _, anchor = link.target.partition("#")
        file = (path.parent / target).resolve() if target else path
        line = text.count("\n", 0, link.start) + 1
        if link.is_external:
            continue
        if not file.is_relative_to(ROOT) or not file.exists():
            found.append(f"{name}:{line}: there is no {link.target}")
        elif anchor and file.suffix == ".md" and anchor not in anchors(texts.get(file, "")):
            found.append(f"{name}:{line}: {target or name} has no heading #{anchor}")
    return found


if __name__ == "__main__":
    wrong = problems()
    print(*wrong, sep="\n", end="\n" if wrong else "")
    sys.exit(bool(wrong))
