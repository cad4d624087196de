"""Owns how a line of this run is compared with a recorded one, and how a difference is shown.

Does not know which line is compared with which.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from json import dumps
from typing import Final, NamedTuple, TypeAlias, cast

from outrider.errors import OptionsError, ProtocolError
from outrider.redaction import MASK, mask_json, preview
from outrider.wire import Json, JsonObject

__all__ = ["Ignored", "ReplayMismatch", "aligned", "is_same", "key_of", "read_ignored", "with_ids"]

Ignored: TypeAlias = tuple[tuple[str, ...], ...]
"""Places in frames that are not compared: the keys that lead there, `*` for any."""

Key: TypeAlias = tuple[str, ...]

_SHOWN_LINES: Final = 60
_SHOWN_LENGTH: Final = 400
_CONTEXT: Final = 3
_LONG_ID: Final = 16
"""A text as long as this is not what somebody says by chance."""

# What each side makes up anew in every run.
_VOLATILE: Final[Mapping[str, Ignored]] = {
    "user": (("uuid",),),
    "control_request": (("request_id",),),
    "control_cancel_request": (),
    "control_response": (),
}


class ReplayMismatch(ProtocolError, AssertionError):
    """What is said in this run is not what was recorded.

    `expected` is the recorded frame, `actual` the one of this run; None where there is none.
    """

    hint = "Record it anew if the change is meant; `ignore` leaves out what differs each time."
    _what = ""

    def __init__(self, message: str, *, expected: Json = None, actual: Json = None, source: str = "") -> None:
        super().__init__(message)
        self.expected, self.actual = expected, actual
        self._evidence = (*_difference(expected, actual), *([f"Recorded in: {source}"] if source else []))


def read_ignored(paths: Iterable[str]) -> Ignored:
    """Places as users write them: `message.content`, `request.hooks.*`. Raises `OptionsError`."""
    if isinstance(paths, str):
        raise OptionsError("`ignore` is a text", hint=f"Did you mean [{paths!r}]?")
    read: list[tuple[str, ...]] = []
    for path in cast("Iterable[object]", paths):
        if not isinstance(path, str) or not all(path.split(".")):
            hint = 'Give the keys that lead there, with dots between them: "message.content".'
            raise OptionsError(f"`ignore` has {path!r}, which is no place in a frame", hint=hint)
        read.append(tuple(path.split(".")))
    return tuple(read)


def key_of(frame: JsonObject | None) -> Key:
    """What kind of line it is. Two lines of another kind are never the same."""
    if frame is None:
        return ("no frame",)
    kind = str(frame.get("type"))
    if kind == "control_request":
        return kind, str(_fields(frame.get("request")).get("subtype"))
    if kind == "control_response":
        return kind, str(_fields(frame.get("response")).get("request_id"))
    return (kind,)


class _Leeway(NamedTuple):
    """What may differ."""

    ignored: Ignored
    is_masked: bool
    """Whether a `***` stands for a secret; else it was said."""


def _leeway(expected: Json, ignored: Ignored, is_masked: bool) -> _Leeway:
    kind = str(expected.get("type")) if isinstance(expected, dict) else ""
    return _Leeway((*ignored, *_VOLATILE.get(kind, ())), is_masked)


def is_same(expected: JsonObject, actual: JsonObject, ignored: Ignored, *, is_masked: bool) -> bool:
    """Whether a frame is the recorded one, but for what is made up in each run, what is ignored, and secrets
    if some were hidden in it."""
    return _is_same(expected, actual, (), _leeway(expected, ignored, is_masked))


def _is_same(expected: object, actual: object, path: tuple[str, ...], leeway: _Leeway) -> bool:
    if path and any(_leads_to(place, path) for place in leeway.ignored):
        return True
    if isinstance(expected, dict) and isinstance(actual, dict):
        theirs, ours = cast("JsonObject", expected), cast("JsonObject", actual)
        return all(
            _is_same(theirs.get(key, _Missing), ours.get(key, _Missing), (*path, key), leeway)
            for key in theirs.keys() | ours.keys()
        )
    if isinstance(expected, list) and isinstance(actual, list):
        items, others = cast("list[object]", expected), cast("list[object]", actual)
        return len(items) == len(others) and all(
            _is_same(one, other, (*path, str(number)), leeway)
            for number, (one, other) in enumerate(zip(items, others, strict=True))
        )
    if isinstance(expected, str) and leeway.is_masked and MASK in expected:
        return actual is not _Missing and _fits_mask(expected, actual)
    # Not `1 == True`; but numbers are the same however they are written.
    return isinstance(expected, bool) == isinstance(actual, bool) and expected == actual


def aligned(expected: Json, actual: Json, ignored: Ignored, *, is_masked: bool) -> Json:
    """What was said, with what is not compared as it was recorded, so that the rest can be seen."""
    return cast("Json", _aligned(expected, actual, (), _leeway(expected, ignored, is_masked)))


def _aligned(expected: object, actual: object, path: tuple[str, ...], leeway: _Leeway) -> object:
    if path and _is_same(expected, actual, path, leeway):
        return expected
    if isinstance(expected, dict) and isinstance(actual, dict):
        theirs, ours = cast("JsonObject", expected), cast("JsonObject", actual)
        found = {key: _aligned(theirs.get(key, _Missing), ours[key], (*path, key), leeway) for key in ours}
        left = {key: value for key, value in theirs.items() if key not in found}
        return found | {k: v for k, v in left.items() if _is_same(v, _Missing, (*path, k), leeway)}
    if isinstance(expected, list) and isinstance(actual, list):
        items, others = cast("list[object]", expected), cast("list[object]", actual)
        pairs = enumerate(zip(items, others, strict=False))
        return [_aligned(one, other, (*path, str(n)), leeway) for n, (one, other) in pairs] + others[
            len(items) :
        ]
    return actual


class _Missing:
    """Stands for a key that is not there."""


def _fits_mask(expected: str, actual: object) -> bool:
    """Whether a text may be the one in which secrets were hidden."""
    if not isinstance(actual, str):
        return expected == MASK
    first, *middle, last = expected.split(MASK)
    rest = actual.removeprefix(first)
    if not actual.startswith(first) or not rest.endswith(last):
        return False
    rest = rest[: len(rest) - len(last)]
    for piece in middle:
        _, found, rest = rest.partition(piece) if piece else ("", "", rest)
        if found != piece:
            return False
    return True


def _leads_to(place: Sequence[str], path: Sequence[str]) -> bool:
    return len(place) == len(path) and all(
        word in ("*", step) for word, step in zip(place, path, strict=True)
    )


def with_ids(value: Json, ids: Mapping[str, str]) -> Json:
    """A copy with each id replaced by the one that stands for it."""
    return cast("Json", _with_ids(value, ids, ""))


def _with_ids(value: object, ids: Mapping[str, str], key: str) -> object:
    if isinstance(value, str):
        # Short ones are words of a script, which mean an id only where one is expected.
        is_id = len(value) >= _LONG_ID or key.lower().endswith(("uuid", "request_id"))
        return ids.get(value, value) if is_id else value
    if isinstance(value, dict):
        fields = cast("JsonObject", value)
        return {name: _with_ids(item, ids, name) for name, item in fields.items()}
    if isinstance(value, list):
        return [_with_ids(item, ids, key) for item in cast("list[object]", value)]
    return value


def _difference(expected: Json, actual: Json) -> list[str]:
    """The lines in which two frames differ, secrets hidden, elided."""
    if expected is None or actual is None:
        shown = _lines(expected if actual is None else actual)
        sign = "-" if actual is None else "+"
        lines = [f"{sign} {line}" for line in shown]
    else:
        found = difflib.unified_diff(_lines(expected), _lines(actual), lineterm="", n=_CONTEXT)
        lines = ["…" if line.startswith("@@") else f"{line[:1]} {line[1:]}" for line in list(found)[2:]]
        lines = lines[1:]
    if len(lines) > _SHOWN_LINES:
        lines[_SHOWN_LINES:] = [f"… and {len(lines) - _SHOWN_LINES} lines more"]
    return ["- recorded, + said now:", *lines] if lines else []


def _lines(frame: Json) -> list[str]:
    text = (
        frame
        if isinstance(frame, str)
        else dumps(mask_json(frame), indent=1, ensure_ascii=False, sort_keys=True)
    )
    return [preview(line, _SHOWN_LENGTH) for line in text.splitlines()]


def _fields(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}
