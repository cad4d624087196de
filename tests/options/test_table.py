"""The table of options: each leads somewhere, and no two say the same."""

from __future__ import annotations

import inspect
from collections import Counter

import pytest

from outrider.options import Options
from outrider.options._checks import OURS
from outrider.options._table import OPTIONS, ROWS, File, Flag, Host, Init, Variable, flag_owners
from outrider.wire.control import Initialize
from tests.cases import every_case

ENCODED = [(name, to) for name, to in ROWS if to.encode is not None]


@pytest.mark.requirement("A6")
def test_every_option_is_declared_and_leads_somewhere() -> None:
    assert list(OPTIONS) == sorted(Options.__struct_fields__, key=list(OPTIONS).index)
    assert {field for name, to in ROWS for field in (name, *to.also)} == set(OPTIONS)


@every_case("name, to", ENCODED, ids=lambda each: getattr(each, "name", each))
def test_an_encoder_takes_the_options_that_it_is_declared_with(name: str, to: Flag) -> None:
    assert to.encode is not None
    if to.encode is not list:
        assert len(inspect.signature(to.encode).parameters) == 1 + len(to.also), name


def test_no_two_destinations_are_the_same() -> None:
    named = Counter((type(to), to.name) for _, to in ROWS if not isinstance(to, Host))
    assert [each for each, times in named.items() if times > 1] == []
    files = Counter(to.file for _, to in ROWS if isinstance(to, File))
    assert max(files.values()) == 1


def test_a_request_is_filled_in_by_names_that_it_has() -> None:
    named = {to.name for _, to in ROWS if isinstance(to, Init)}
    assert named <= set(Initialize.__struct_fields__)


def test_flags_and_variables_look_like_that() -> None:
    assert all(to.name.startswith("--") for _, to in ROWS if isinstance(to, Flag | File))
    assert all(to.name.isupper() for _, to in ROWS if isinstance(to, Variable))


def test_no_flag_of_the_table_can_be_set_by_extra_arguments_too() -> None:
    owners = flag_owners()
    assert set(owners.values()) <= set(OPTIONS)
    assert not set(owners) & OURS
