"""The scenes of `make versions`, with the version of the tests, and the page that shows what came of them."""

from __future__ import annotations

import pytest

from scripts.versions import CELL, PAGE, SCENES, VERSIONS, between, markdown, play, since
from tests.real_program import require_program

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.real
@pytest.mark.parametrize("title", SCENES)
async def test_a_scene_works_with_the_version_of_the_tests(title: str) -> None:
    assert await play(title, require_program()) == "yes"


def test_the_page_shows_each_scene_with_each_version() -> None:
    table = TEXT.partition("<!-- scenes -->\n")[2].partition("<!-- end of scenes -->")[0].split("\n")[1:-2]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]
    assert tuple(head[1:-1]) == VERSIONS
    cells = {title: found for title, *found in rows}
    assert list(cells) == list(SCENES)
    assert table == markdown(head[1:], cells)
    assert all(
        CELL.fullmatch(cell) and not cell.startswith("no") for found in cells.values() for cell in found
    )


def test_the_page_lists_the_options_that_old_versions_lack() -> None:
    assert between(TEXT, "options", since()) == TEXT, "run `make versions ARGS=--write`"
