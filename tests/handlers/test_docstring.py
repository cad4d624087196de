"""What docstrings say of parameters, in three styles, and what is left of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.handlers._tools.signature import read_docstring

GOOGLE = """Fetch a ticket.

    Slow the first time.

    Args:
        ticket (int): The number
            of the ticket.
        fields (list[str], optional): Which ones: all
            if left out.

        **more: Anything else.

    Returns:
        A text.
    """

NUMPY = """Fetch a ticket.

    Slow the first time.

    Parameters
    ----------
    ticket : int
        The number
        of the ticket.
    fields, names : list of str, optional
        Which ones.
    **more
        Anything else.

    Returns
    -------
    str
        A text.
    """

REST = """Fetch a ticket.

    Slow the first time.

    :param ticket: The number
        of the ticket.
    :type ticket: int
    :param list[str] fields: Which ones.
    :keyword more: Anything else.
    :returns: A text.
    """


def test_google_style() -> None:
    text, parameters = read_docstring(GOOGLE)
    assert text == "Fetch a ticket.\n\nSlow the first time.\n\nReturns:\n    A text."
    assert parameters == {
        "ticket": "The number of the ticket.",
        "fields": "Which ones: all if left out.",
        "more": "Anything else.",
    }


def test_numpy_style() -> None:
    text, parameters = read_docstring(NUMPY)
    assert text == "Fetch a ticket.\n\nSlow the first time.\n\nReturns\n-------\nstr\n    A text."
    assert parameters == {
        "ticket": "The number of the ticket.",
        "fields": "Which ones.",
        "names": "Which ones.",
        "more": "Anything else.",
    }


def test_rest_style() -> None:
    text, parameters = read_docstring(REST)
    assert text == "Fetch a ticket.\n\nSlow the first time.\n\n:returns: A text."
    assert parameters == {
        "ticket": "The number of the ticket.",
        "fields": "Which ones.",
        "more": "Anything else.",
    }


@pytest.mark.parametrize(
    "doc",
    [
        "One line.",
        "A text.\n\nArgs:\n    this is prose without a colon",
        "A text.\n\nArgs:",
        "Parameters\n\nare described elsewhere.",
        "Note: this is no section.\n\nExample:\n    x: 1",
        "Ratio a:b, and https://example.com/:param",
    ],
)
def test_prose_stays_prose(doc: str) -> None:
    assert read_docstring(doc) == (doc, {})


@pytest.mark.parametrize("doc", [None, "", "   \n  "])
def test_no_docstring_says_nothing(doc: str | None) -> None:
    assert read_docstring(doc) == ("", {})


def test_a_section_between_others_is_taken_out() -> None:
    doc = "Do it.\n\nArgs:\n    a: The a.\n\nRaises:\n    ValueError: Never.\n"
    assert read_docstring(doc) == ("Do it.\n\nRaises:\n    ValueError: Never.", {"a": "The a."})


def test_a_parameter_without_a_text_has_none() -> None:
    assert read_docstring("Do it.\n\nArgs:\n    a:\n    b: The b.") == ("Do it.", {"b": "The b."})


PIECES = st.sampled_from(
    [
        "Args:",
        "    a: text",
        "        more",
        "Parameters",
        "----------",
        "a : int",
        ":param a: x",
        "",
        "    ",
        "prose",
    ]
)


@given(st.lists(PIECES | st.text(max_size=12), max_size=12).map("\n".join))
def test_any_docstring_can_be_read(doc: str) -> None:
    text, parameters = read_docstring(doc)
    assert all(name.isidentifier() or name.isalnum() for name in parameters)
    assert text == text.strip()
