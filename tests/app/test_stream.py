"""Markdown as it is written: what is finished is printed, and looks as if it had come at once."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from outrider.app._render import Stream, split_finished
from outrider.app._terminal import Terminal
from outrider.wire import decode
from tests.cases import every_case

ANSWER = """\
# The build

There is *none*: `src` is run as it is.
It goes on here.

1. first
2. second

   with a paragraph

```python
def f():

    return 1
```

| a | b |
|---|---|
| 1 | 2 |

The end."""


@every_case(
    "text, done",
    [
        ("", ""),
        ("One", ""),
        ("One\n", ""),
        ("One\n\n", "One\n\n"),
        ("One\n\nTwo", "One\n\n"),
        ("One\n\n```\na\n\nb", "One\n\n"),
        ("```\na\n\nb\n```\n\n", "```\na\n\nb\n```\n\n"),
        ("~~~\na\n\n", ""),
    ],
)
def test_markdown_is_cut_where_it_is_finished(text: str, done: str) -> None:
    assert split_finished(text) == (done, text[len(done) :])


def printed(pieces: list[str]) -> str:
    """What stays on a terminal of an answer that comes in these pieces."""
    terminal = Terminal()
    out = io.StringIO()
    terminal.out = Console(file=out, force_terminal=True, width=60, color_system=None, legacy_windows=False)
    terminal.is_live = True
    # What is drawn for the moment is not looked at here.
    terminal.show = lambda renderable: None  # type: ignore[method-assign]
    stream = Stream(terminal)
    for piece in pieces:
        event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        frame = {"type": "stream_event", "uuid": "u", "session_id": "s", "event": event}
        stream.show(decode(_encoded(frame)))
    stream.finish()
    return out.getvalue()


def _encoded(frame: object) -> bytes:
    import msgspec

    return msgspec.json.encode(frame)


@pytest.mark.parametrize("size", [1, 7, 40])
def test_an_answer_in_pieces_looks_as_if_it_had_come_at_once(size: int) -> None:
    pieces = [ANSWER[start : start + size] for start in range(0, len(ANSWER), size)]
    whole = printed([ANSWER])
    assert printed(pieces) == whole
    assert "The end." in whole
    # What is not there cannot be copied, and does not reach the edge.
    assert "There is none: src is run as it is. It goes on here.\n" in whole
