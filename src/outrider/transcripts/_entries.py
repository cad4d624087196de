"""Defines `TranscriptEntry`, one line of a transcript, and reads and writes such lines.

How entries form a conversation is in `_chain`.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar, cast

import msgspec

from outrider.errors import MalformedFrame, TranscriptError
from outrider.wire import (
    AssistantMessage,
    Json,
    JsonObject,
    SystemMessage,
    UserMessage,
    decode,
    frame_from_wire,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Self

_Container = TypeVar("_Container", dict[str, Any], list[object])

EntryMessage: TypeAlias = UserMessage | AssistantMessage | SystemMessage

_BLANK: Final = b" \t\r\n\x00\xef\xbb\xbf"
"""Around a line these mean nothing: white space, NUL bytes that a crash left, a byte order mark."""

_IN_WIRE: Final[Mapping[str, str]] = {
    "sessionId": "session_id",
    "toolUseResult": "tool_use_result",
    "requestId": "request_id",
    "agentId": "agent_id",
    "isApiErrorMessage": "is_api_error_message",
    "apiErrorStatus": "api_error_status",
    "parentToolUseID": "parent_tool_use_id",
    "compactMetadata": "compact_metadata",
    "logicalParentUuid": "logical_parent_uuid",
}
"""What fields of a line are called in the frame of the same message."""


class _Body(msgspec.Struct, frozen=True, gc=False):
    id: str | None = None


class _Kept:
    """Adds a place for what an entry was made from; it takes no part in `==` and `repr`."""

    __slots__ = ("source",)

    if TYPE_CHECKING:
        source: bytes | JsonObject


class TranscriptEntry(
    _Kept,
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    repr_omit_defaults=True,
    gc=False,
    rename={
        "parent_uuid": "parentUuid",
        "logical_parent_uuid": "logicalParentUuid",
        "written_at": "timestamp",
        "session_id": "sessionId",
        "git_branch": "gitBranch",
        "is_sidechain": "isSidechain",
        "is_meta": "isMeta",
        "is_compact_summary": "isCompactSummary",
        "agent_id": "agentId",
        "team_name": "teamName",
        "call_uuid": "sourceToolAssistantUUID",
        "body": "message",
    },
):
    """One line of a transcript. What it says is decoded when it is looked at: `message`, `text`, `raw`."""

    type: str = ""
    """`user`, `assistant`, `system`; others are not messages."""
    subtype: str | None = None
    uuid: str | None = None
    """None: the line is not part of the conversation, but describes the session."""
    parent_uuid: str | None = None
    """The entry that this one follows."""
    logical_parent_uuid: str | None = None
    """Where the conversation was when it was compacted."""
    written_at: str | None = None
    """The time, as it is written; `timestamp` is the same, read."""
    session_id: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    is_sidechain: bool = False
    """A subagent's."""
    is_meta: bool = False
    """Written by the program, and not shown to people."""
    is_compact_summary: bool = False
    """Stands for what was said before the conversation was compacted."""
    agent_id: str | None = None
    team_name: str | None = None
    call_uuid: str | None = None
    """The entry with the call that this tool's result answers."""
    body: _Body | None = None

    @property
    def timestamp(self) -> datetime | None:
        """When it was written, in UTC; None where that is not told."""
        return to_time(self.written_at)

    @property
    def message_id(self) -> str | None:
        """The API's id of the model's answer: the same for all of its blocks, each of which is an entry."""
        return self.body.id if self.body is not None and self.type == "assistant" else None

    @property
    def raw(self) -> JsonObject:
        """All of the line, decoded again at each use: changing it changes nothing else."""
        source = self.source
        return decode_line(source) if isinstance(source, bytes) else deep_copy(source)

    @property
    def message(self) -> EntryMessage | None:
        """The message, as a session gave it; None for other lines."""
        if self.type not in ("user", "assistant", "system"):
            return None
        found = frame_from_wire(_as_frame(self.raw))
        return found if isinstance(found, UserMessage | AssistantMessage | SystemMessage) else None

    @property
    def text(self) -> str:
        """The words of the message, without those of tools; of another line, the title or summary in it."""
        raw = self.raw
        if self.type in ("user", "assistant"):
            message = raw.get("message")
            content = cast("JsonObject", message).get("content") if isinstance(message, dict) else None
            return content if isinstance(content, str) else "".join(_texts(content))
        for name in ("content", "customTitle", "aiTitle", "summary", "lastPrompt", "tag"):
            if isinstance(value := raw.get(name), str):
                return value
        return ""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., TranscriptEntry | None], tuple[bytes | JsonObject]]:
        return (read_entry if isinstance(self.source, bytes) else to_entry), (self.source,)


_decode: Final = msgspec.json.Decoder(TranscriptEntry).decode
_keep: Final[Callable[[TranscriptEntry, bytes | JsonObject], None]] = cast(
    "Any", _Kept
).source.__set__  # the struct is frozen


def read_entry(line: bytes) -> TranscriptEntry | None:
    """The entry on a line; None for an empty or damaged line, and for one that is not a JSON object."""
    try:
        entry = _decode(line)
    except (ValueError, RecursionError):
        try:
            entry = _typed(decode_line(line))
        except ValueError:
            return None
    _keep(entry, line)
    return entry


def decode_line(line: bytes) -> JsonObject:
    """The JSON object on a line, which may be slightly malformed. Raises a ValueError for anything else."""
    try:
        found: Json = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        stripped = line.strip(_BLANK)
        if not stripped.startswith(b"{"):
            raise ValueError("not a JSON object") from None
        try:
            return decode(stripped).raw
        except MalformedFrame:
            raise ValueError("not a JSON object") from None
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one kind of error for all that is not an entry
    return found


def to_entry(data: JsonObject) -> TranscriptEntry:
    """The entry for one that is decoded already, as stores give them."""
    entry = _typed(data)
    _keep(entry, data)
    return entry


def _typed(data: JsonObject) -> TranscriptEntry:
    """The fields of an entry; those of another type are left out."""
    fields: dict[str, Any] = {}
    for ours, theirs in _TEXTS.items():
        if isinstance(value := data.get(theirs), str):
            fields[ours] = value
    for ours, theirs in _FLAGS.items():
        if data.get(theirs) is True:
            fields[ours] = True
    if isinstance(body := data.get("message"), dict):
        id = cast("JsonObject", body).get("id")
        fields["body"] = _Body(id if isinstance(id, str) else None)
    return TranscriptEntry(**fields)


def deep_copy(data: _Container) -> _Container:
    """A copy of what came as JSON, however deep it is: not by calls within calls."""
    made = data.copy()
    to_do: list[dict[Any, Any] | list[Any]] = [made]
    while to_do:
        target = to_do.pop()
        for place, value in list(target.items() if isinstance(target, dict) else enumerate(target)):
            if isinstance(value, dict | list):
                target[place] = value.copy()
                to_do.append(target[place])
    return made


_NAMES: Final[dict[str, str]] = {
    field.name: field.encode_name for field in msgspec.structs.fields(TranscriptEntry)
}
_FLAGS: Final = {ours: theirs for ours, theirs in _NAMES.items() if ours.startswith("is_")}
_TEXTS: Final = {ours: theirs for ours, theirs in _NAMES.items() if ours not in _FLAGS and ours != "body"}


def to_time(text: object) -> datetime | None:
    """A time as the program writes it; without a zone it is UTC. None for anything else."""
    try:
        time = datetime.fromisoformat(text if isinstance(text, str) else "")
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _texts(content: object) -> Iterator[str]:
    for block in cast("list[object]", content) if isinstance(content, list) else ():
        if isinstance(block, dict) and cast("JsonObject", block).get("type") == "text":
            text = cast("JsonObject", block).get("text")
            if isinstance(text, str):
                yield text


def _as_frame(raw: JsonObject) -> JsonObject:
    frame: JsonObject = {_IN_WIRE.get(name, name): value for name, value in raw.items()}
    if frame["type"] == "user" and (raw.get("isMeta") is True or raw.get("isCompactSummary") is True):
        frame["isSynthetic"] = True
    if isinstance(metadata := frame.get("compact_metadata"), dict):
        frame["compact_metadata"] = _in_snake_case(cast("JsonObject", metadata))
    return frame


def _in_snake_case(metadata: JsonObject) -> JsonObject:
    return {
        re.sub(r"(?<=[a-z0-9])[A-Z]", lambda found: f"_{found[0].lower()}", name): (
            _in_snake_case(cast("JsonObject", value)) if isinstance(value, dict) else value
        )
        for name, value in metadata.items()
    }


# Lines.


def to_json(value: object) -> str:
    """Compact JSON that can be written as UTF-8. Raises `ValueError` for what JSON has no number for."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but an escape.
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text


def to_line(value: object) -> str:
    """As `to_json`; what JSON has no number for becomes null."""
    try:
        return to_json(value)
    except RecursionError as error:
        raise TranscriptError(
            "an entry is nested too deeply to be written", hint="Take that line out of the transcript."
        ) from error
    except ValueError:
        return to_json(finite(value))


def from_line(line: str) -> JsonObject:
    """The entry on a line. Raises a ValueError with the reason if it is invalid."""
    entry = to_object(line)
    if not isinstance(entry.get("type"), str):
        raise ValueError("it has no `type`")  # noqa: TRY004 - one kind of error for all that is not an entry
    return entry


def to_object(text: str) -> JsonObject:
    """Decode a JSON object. Raises a ValueError with the reason if it is invalid."""
    found = read_json(text)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - as above
    return cast("JsonObject", found)


def read_json(text: str) -> object:
    """Read strict JSON; a number that is too large for a float is read as what is written for it: null.
    Raises a ValueError if it is not JSON."""
    try:
        return cast("object", json.loads(text, parse_constant=_refuse, parse_float=_to_float))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def fields_of(value: object) -> JsonObject:
    """The value, if it is an object; else one without fields."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _to_float(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def finite(value: Any) -> Any:  # noqa: ANN401 - anything made of JSON types
    """The value, with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [finite(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {name: finite(item) for name, item in cast("dict[str, object]", value).items()}
    return value
