"""The table of who tries what again, in the docs, says what the code does."""

from __future__ import annotations

import inspect
from pathlib import Path

from outrider.fleet import RayEngine, Restart, Retry
from outrider.fleet._pool import scheduler
from outrider.options import Timeouts
from outrider.transcripts.stores import _s3 as bucket

DOCS = Path(__file__).parents[2] / "docs" / "healing.md"


def rows() -> list[tuple[str, ...]]:
    section = DOCS.read_text(encoding="utf-8").partition("## Who retries what")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[2:]]


def test_the_table_has_the_defaults_of_the_code() -> None:
    said = [row[2] for row in rows()]
    retry, restart = Retry(), Restart()
    assert f"for {Timeouts().retries:g} seconds" in said[0]
    assert said[1].startswith(f"{retry.max_tries} tries")
    assert f"{retry.max_seconds:g} seconds" in said[1]
    assert said[2] == f"{restart.max} restarts (`max`), so {restart.max + 1} starts"
    assert said[3].startswith(f"{restart.max} waits")
    assert "max_retries=0" in inspect.getsource(RayEngine)
    assert f"for {retry.max_seconds:g} seconds" in said[4]
    assert "(0)" in said[8]
    first, longest = scheduler._FIRST_BACKOFF, scheduler._LONGEST_BACKOFF
    assert f"after {first:g} second, then up to {longest:g}" in said[9]
    assert f"S3 {bucket._TRIES} times" in said[10]


def test_each_row_is_whole() -> None:
    assert len(rows()) == 12
    assert all(len(row) == 4 and all(row) for row in rows())
