"""What is asked of kept sessions, and what is told of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outrider.errors import OptionsError
from outrider.transcripts import SessionQuery, StoredSession
from tests.cases import every_case
from tests.transcripts.lines import SESSION

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
INFO = StoredSession(
    id=SESSION, project="-srv", title="Release Notes", tag="ci", git_branch="main", last_modified=NOON
)


@every_case(
    "asked, is_it",
    [
        ({}, True),
        ({"title": "release"}, True),
        ({"title": "NOTES"}, True),
        ({"title": "letters"}, False),
        ({"tag": "ci"}, True),
        ({"tag": "c"}, False),
        ({"branch": "main"}, True),
        ({"branch": "other"}, False),
        ({"since": NOON, "until": NOON}, True),
        ({"since": NOON + timedelta(seconds=1)}, False),
        ({"until": NOON - timedelta(seconds=1)}, False),
        ({"since": NOON.astimezone().replace(tzinfo=None)}, True),
        ({"since": (NOON + timedelta(seconds=1)).astimezone().replace(tzinfo=None)}, False),
        ({"archived": None}, True),
        ({"archived": True}, False),
        ({"title": "release", "tag": "other"}, False),
    ],
    ids=str,
)
def test_a_session_is_asked_for_if_all_is_as_asked(asked: dict[str, Any], is_it: bool) -> None:
    assert SessionQuery(**asked).matches(INFO) is is_it


@pytest.mark.parametrize(
    "asked, told",
    [
        ({"limit": -1}, "limit cannot be -1"),
        ({"limit": True}, "limit cannot be True"),
        ({"offset": -2}, "offset cannot be -2"),
        (
            {"since": NOON, "until": NOON - timedelta(days=1)},
            "since (2026-03-01 12:00:00+00:00) is after until",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_asked_for_is_refused(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionsError) as caught:
        SessionQuery(**asked)
    assert told in str(caught.value)
