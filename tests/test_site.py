"""The site: what is wrong with a page is found, and what a page links to is there."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import pytest

import outrider
from scripts.documentation import links, sources

NO_PAGE = {
    # A program.
    "outrider.app",
    # Whose names are part of others.
    *("outrider.command", "outrider.redaction"),
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small one, in which nothing is wrong."""
    for module in (links, sources):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(sources, "CONFIG", tmp_path / "mkdocs.yml")
    monkeypatch.setattr(sources, "TOP", {"index.md": "README.md"})
    texts = {
        "README.md": "# Home\n\n[Guide](docs/guide.md#ab-and-c) ![It](docs/picture.svg) [Code](src/a.py)\n",
        "docs/guide.md": "# Guide\n\nIt `does`. And more.\n\n## `a.b` and *c*\n\n[Home](../README.md)\n",
        "docs/picture.svg": "<svg/>",
        "src/a.py": "",
        "mkdocs.yml": "nav:\n  - Home: index.md\n  - guide.md\n",
        "pyproject.toml": '[project.urls]\nHomepage = "https://code.example/"\n',
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_sound_repository_has_no_problems(repository: Path) -> None:
    assert links.problems() == []


@pytest.mark.parametrize(
    "addition, problem",
    [
        ("[there](other.md)", "docs/guide.md:9: there is no other.md"),
        ("[there](#elsewhere)", "docs/guide.md:9: docs/guide.md has no heading #elsewhere"),
        ("[up](../README.md#gone)", "docs/guide.md:9: ../README.md has no heading #gone"),
        ('<img src="gone.svg">', "docs/guide.md:9: there is no gone.svg"),
        ("[it][outrider.Session]", "docs/guide.md: `][outrider.Session]` means nothing on GitHub"),
    ],
    ids=["page", "anchor", "anchor elsewhere", "picture", "reference"],
)
def test_what_leads_nowhere_is_found(repository: Path, addition: str, problem: str) -> None:
    with (repository / "docs" / "guide.md").open("a", encoding="utf-8") as page:
        page.write(f"\n{addition}\n\n```\n[code](is-no-link.md)\n```\n")
    (found,) = links.problems()
    assert found.startswith(problem)


def test_a_page_that_nobody_finds_is_a_problem(repository: Path) -> None:
    (repository / "docs" / "hidden.md").write_text("# Hidden\n", encoding="utf-8")
    assert links.problems() == ["mkdocs.yml: hidden.md is not in the navigation"]


def test_links_fit_the_site(repository: Path) -> None:
    pages = sources.sources()
    assert sources.staged("index.md", pages["index.md"], pages) == (
        "# Home\n\n[Guide](guide.md#ab-and-c) ![It](picture.svg) "
        "[Code](https://code.example/blob/main/src/a.py)\n"
    )
    text = sources.staged("guide.md", pages["guide.md"], pages)
    assert "[Home](index.md)" in text
    assert (sources.title(text), sources.summary(text)) == ("Guide", "It `does`.")


def test_every_public_package_has_a_page_in_the_reference() -> None:
    public = {
        f"outrider.{module.name}"
        for module in pkgutil.iter_modules(outrider.__path__)
        if not module.name.startswith("_")
    }
    described = {
        page.removeprefix("api/").removesuffix(".md") for page in sources.navigation() if "api/" in page
    }
    assert public - described == NO_PAGE
