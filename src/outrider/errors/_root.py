"""Owns the root of all errors: how its facts, text and hint make what is shown, and how it is pickled.

Knows no particular failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

from outrider._display import plain
from outrider.errors._keeping import pickled, restored
from outrider.redaction import mask, preview

if TYPE_CHECKING:
    from os import PathLike
    from typing import Self, TypeAlias

    from outrider.redaction import Redaction

    StrPath: TypeAlias = str | PathLike[str]

__all__ = ["Aside", "OutriderError", "Told", "in_seconds"]


_LONGEST = 32768
"""Characters of a message that are kept. It may be made of what a child said, and is looked through for
secrets where it is raised: on an event loop."""


class Aside(TypedDict, total=False):
    hint: str
    session_id: str | None


class Told(Aside, total=False):
    message: str


class OutriderError(Exception):
    """The root of everything that Outrider raises.

    `message` is what whoever raised it had to say, empty where the facts say it all; `hint`, what to do next;
    `session_id`, the session that it happened in, if there was one yet; `result`, what had come of the turn
    by then, if one ran. `retryable` tells whether the same call, made again in a new session, can succeed. It
    does not tell what the failed one had done: resume a turn that has run tools instead of sending it again.
    """

    hint: str = ""
    retryable: bool = False
    result: object = None
    # What happened, with the facts: a clause that can stand in brackets, and lines for what is longer.
    _what: str = ""
    _evidence: tuple[str, ...] = ()

    def __init__(self, message: str = "", *, hint: str = "", session_id: str | None = None) -> None:
        self.message = preview(message, _LONGEST)
        super().__init__(*([self.message] if message else []))
        self.session_id, self.hint = session_id, mask(hint) or self.hint

    def __str__(self) -> str:
        what, text = preview(self._what, 1000), self.message.strip()
        if what:
            text = f"{text.rstrip('.')} ({what})" if text else what[0].upper() + what[1:]
        if self.hint:
            text += f" {self.hint}" if text.endswith((".", "!", "?")) else f". {self.hint}"
        session = [f"Session: {self.session_id}"] if self.session_id and self.session_id not in text else []
        # Much of it was said by somebody else, and whoever reads it may be at a terminal.
        return plain(mask("\n  ".join([text or type(self).__name__, *self._evidence, *session])))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({preview(str(self).splitlines()[0], 120)!r})"

    def add_note(self, note: str, /) -> None:
        super().add_note(mask(note))

    def hide(self, redaction: Redaction) -> Self:
        """Hide the values that a redaction knows in all that is shown. Gives the error itself."""
        for name, fact in list(vars(self).items()):
            if isinstance(fact, str):
                vars(self)[name] = redaction.mask_values(fact)
            elif isinstance(fact, (list, tuple)):
                texts = cast("list[object] | tuple[object, ...]", fact)
                hidden = [redaction.mask_values(text) if isinstance(text, str) else text for text in texts]
                vars(self)[name] = hidden if isinstance(texts, list) else tuple(hidden)
        self.args = tuple(redaction.mask_values(arg) if isinstance(arg, str) else arg for arg in self.args)
        return self

    def __reduce__(self) -> tuple[object, ...]:
        facts = {name: list(fact) if name == "__notes__" else fact for name, fact in vars(self).items()}
        return restored, (type(self), self.args, pickled(self.__cause__)), facts


def in_seconds(word: str, number: float | None) -> str:
    return "" if number is None else f"{word} {number:g} s"
