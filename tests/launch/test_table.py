"""The table of options has a row for each option, and each row leads somewhere."""

from __future__ import annotations

import inspect
from collections import Counter

import pytest

from outrider.launch._encode import SAME, Filed, Flag, Host, Init, Place, Row, Variable
from outrider.launch._table import ROWS
from outrider.options import Options
from outrider.options._checks import OURS, OWNERS
from outrider.wire.control import Initialize
from tests.cases import every_case

FIELDS = Options.__struct_fields__


def places(row: Row) -> list[Place]:
    return [place for place in (row.to, row.one_shot) if place is not None and place is not SAME]


ALL_PLACES = [place for row in ROWS for place in places(row)]


@pytest.mark.requirement("A6")
@every_case("field", FIELDS)
def test_every_option_has_a_row(field: str) -> None:
    assert [row for row in ROWS if field in row.fields]


def test_no_row_names_an_option_that_does_not_exist() -> None:
    assert {field for row in ROWS for field in row.fields} <= set(FIELDS)


@every_case("row", ROWS, ids=lambda row: f"{row.option}-{row.to[0]}")
def test_a_row_is_written_from_its_own_fields_alone(row: Row) -> None:
    parameters = inspect.signature(row.spell).parameters
    assert len(parameters) == len(row.fields)


def test_no_two_rows_say_the_same_thing() -> None:
    streaming = Counter(row.to[:1] for row in ROWS if not isinstance(row.to, Host))
    assert [place for place, times in streaming.items() if times > 1] == []


def test_a_request_is_filled_in_by_names_that_it_has() -> None:
    named = {place.name for place in ALL_PLACES if isinstance(place, Init)}
    assert named <= set(Initialize.__struct_fields__)


def test_files_have_names_of_their_own() -> None:
    files = [place.file for place in ALL_PLACES if isinstance(place, Filed)]
    assert len(set(files)) == len(files)


def test_no_flag_of_the_table_can_be_set_by_extra_arguments_too() -> None:
    flags = {place.name.removeprefix("--") for place in ALL_PLACES if isinstance(place, Flag | Filed)}
    assert flags <= set(OWNERS) | OURS


def test_what_stays_in_this_process_says_who_reads_it() -> None:
    assert all(place.user for place in ALL_PLACES if isinstance(place, Host))


def test_variables_are_no_flags() -> None:
    assert all(place.name.isupper() for place in ALL_PLACES if isinstance(place, Variable))
