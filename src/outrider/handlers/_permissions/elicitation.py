"""Answers questions of MCP servers and dialogs of the agent. An invalid answer cancels the question."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, cast

import msgspec

from outrider.errors import Denied, OutriderError
from outrider.handlers._calls import Attempt, CallContext, attempt, name_of, outcome_of
from outrider.handlers._router import DialogHandled, ElicitationHandled
from outrider.options._validators import is_list
from outrider.redaction import preview, preview_value
from outrider.wire import Json, encode
from outrider.wire._encoding import to_wire
from outrider.wire._tolerant import convert_leniently, is_object
from outrider.wire.control import DialogResult, ElicitationResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outrider.handlers._router import Handled, Observe, Origin
    from outrider.wire import JsonObject
    from outrider.wire.control import Elicitation, RequestUserDialog


log = logging.getLogger("outrider.session")

# Forms.

FieldType: TypeAlias = Literal["string", "number", "integer", "boolean", "choice", "choices", "other"]
"""What a field takes: `choice` is one of its choices, `choices` a list of them; `other` is anything else,
unchecked."""


class Choice(msgspec.Struct, frozen=True):
    """One of the values that a field offers."""

    value: str
    title: str
    """What to show for it."""


class FormField(msgspec.Struct, frozen=True, kw_only=True, rename="camel", repr_omit_defaults=True):
    """A field of a form."""

    name: str
    type: FieldType
    title: str = ""
    """What to call it; its name where the server gives no title."""
    description: str = ""
    required: bool = False
    default: Json = None
    choices: tuple[Choice, ...] = ()
    """With `choice` and `choices`."""
    format: str | None = None
    """Of a text: `email`, `uri`, `date` or `date-time`. Not checked here."""
    pattern: str | None = None
    """A regular expression for a text. Not checked here."""
    min_length: int | None = None
    max_length: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_items: int | None = None
    max_items: int | None = None

    def error_in(self, value: object) -> str:
        """What is wrong with a value for the field; empty if nothing is."""
        offered = [choice.value for choice in self.choices]
        listed = ", ".join(map(repr, offered))
        match self.type:
            case "string" if not isinstance(value, str):
                return "must be a text"
            case "string":
                return _range_error(len(cast(str, value)), self.min_length, self.max_length, "characters")
            case "number" | "integer":
                if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                    return "must be a number"
                if self.type == "integer" and value != int(value):
                    return "must be a whole number"
                return _range_error(value, self.minimum, self.maximum, "")
            case "boolean":
                return "" if isinstance(value, bool) else "must be True or False"
            case "choice":
                return "" if value in offered else f"must be one of {listed}"
            case "choices" if not is_list(value) or not all(each in offered for each in value):
                return f"must be a list of {listed}"
            case "choices":
                return _range_error(
                    len(cast("list[object]", value)), self.min_items, self.max_items, "choices"
                )
            case "other":
                return ""


def _range_error(number: float, least: float | None, most: float | None, unit: str) -> str:
    if least is not None and number < least:
        return f"must be {least:g} or more {unit}".rstrip()
    if most is not None and number > most:
        return f"must be {most:g} or less {unit}".rstrip()
    return ""


def form_fields(schema: JsonObject | None, order: Sequence[str] | None) -> tuple[FormField, ...]:
    """The fields that a schema asks for, in the order that the server lists them in. Never raises."""
    properties = _objects((schema or {}).get("properties"))
    required = _texts((schema or {}).get("required"))
    names = [name for name in order or () if name in properties]
    names += [name for name in properties if name not in names]
    return tuple(_field(name, properties[name], name in required) for name in names)


def content_error(content: JsonObject, fields: Sequence[FormField]) -> str:
    """What is wrong with a form as it was filled in; empty if nothing is."""
    by_name = {field.name: field for field in fields}
    for name, value in content.items():
        if (field := by_name.get(name)) is None:
            return f"the form has no field {name!r}: it has {', '.join(map(repr, by_name)) or 'none'}"
        if error := field.error_in(value):
            return f"{name!r} {error}, not {preview_value(value, 80)}"
    missing = [field.name for field in fields if field.required and field.name not in content]
    return f"{missing[0]!r} is required" if missing else ""


def _field(name: str, schema: JsonObject, required: bool) -> FormField:
    kind, choices = _kind(schema)
    given = {"name": name, "type": kind, "required": required}
    field = convert_leniently(FormField, {**schema, **given, "choices": choices})
    return msgspec.structs.replace(field, title=field.title or name)


def _kind(schema: JsonObject) -> tuple[FieldType, tuple[Choice, ...]]:
    match schema.get("type"):
        case "string" | None if choices := _choices(schema):
            return "choice", choices
        case "array" if choices := _choices(schema.get("items")):
            return "choices", choices
        case "string" | "number" | "integer" | "boolean" as kind:
            return kind, ()
        case _:
            return "other", ()


def _choices(schema: object) -> tuple[Choice, ...]:
    """The values to choose from: a list of them, perhaps with a list of their names, or each with a title."""
    if not is_object(schema):
        return ()
    for key in ("oneOf", "anyOf"):
        titled = schema.get(key)
        if is_list(titled):
            found = [each for each in titled if is_object(each) and isinstance(each.get("const"), str)]
            return tuple(Choice(each["const"], _text(each.get("title")) or each["const"]) for each in found)
    values = _texts(schema.get("enum"))
    titles = _texts(schema.get("enumNames"))
    titles += values[len(titles) :]
    return tuple(Choice(value, title) for value, title in zip(values, titles, strict=False))


def _objects(value: object) -> dict[str, JsonObject]:
    found = value if is_object(value) else {}
    return {name: each for name, each in found.items() if is_object(each)}


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if is_list(value) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# Questions and dialogs.

_ACTIONS: Final = ("accept", "decline", "cancel")
_Result: TypeAlias = ElicitationResult | DialogResult


def accept(content: Mapping[str, Json] | None = None) -> ElicitationResult:
    """Accept a server's question, with the completed form, or because the page was opened."""
    return ElicitationResult(action="accept", content=None if content is None else dict(content))


def decline() -> ElicitationResult:
    """Decline a server's question."""
    return ElicitationResult(action="decline")


def cancel() -> ElicitationResult:
    """Cancel a server's question, as if its window had been closed."""
    return ElicitationResult(action="cancel")


class ElicitationRequest(CallContext):
    """An MCP server asks the user to fill in a form, or to open a page.

    Return the completed form as a dict; True if the page was opened, or for a form with its defaults; None,
    False or `decline()` to decline; `cancel()` for no answer.
    """

    def __init__(self, ask: Elicitation, origin: Origin) -> None:
        super().__init__(origin)
        self.ask: Final = ask
        """The request as received; do not change it."""
        self.server: Final[str] = ask.mcp_server_name
        self.message: Final[str] = ask.message
        """What the server wants, in words."""
        self.url: Final[str | None] = ask.url
        """The page to open, in the mode `url`."""
        self.mode: Final[Literal["form", "url"]] = (
            "url" if ask.mode == "url" or (ask.mode is None and ask.url is not None) else "form"
        )
        self.id: Final[str | None] = ask.elicitation_id
        """In the mode `url`: what a later `elicitation_complete` message names."""
        self.schema: Final[JsonObject | None] = ask.requested_schema
        """The JSON Schema of the form."""
        self.fields: Final[tuple[FormField, ...]] = form_fields(ask.requested_schema, ask.property_order)
        """The fields of the form, in the order of the server."""
        self.title: Final[str | None] = ask.title
        self.display_name: Final[str | None] = ask.display_name
        """The server's name for people."""
        self.description: Final[str | None] = ask.description

    _refused, _cancelled = decline(), cancel()

    @property
    def _what(self) -> str:
        return f"a question of {self.server}"

    def _handled(self, result: _Result, common: JsonObject) -> Handled:
        action = cast("ElicitationResult", result).action
        return ElicitationHandled(server=self.server, action=action, **common)

    def _read(self, value: object) -> ElicitationResult:
        if value is None or value is False:
            return decline()
        if value is True:
            defaults = {field.name: field.default for field in self.fields if field.default is not None}
            return _accepted(defaults or None, self)
        if isinstance(value, ElicitationResult):
            if value.action not in _ACTIONS:
                raise NotAnAnswer(f"there is no action {preview_value(value.action)}")
            return _accepted(value.content, self) if value.action == "accept" else value
        if is_object(value):
            return _accepted(value, self)
        wanted = "return a dict, True, decline() or cancel()"
        raise NotAnAnswer(f"{preview_value(value)} is not an answer: {wanted}")

    def __repr__(self) -> str:
        return f"<ElicitationRequest of {self.server}: {preview(self.message, 80)}>"


class DialogRequest(CallContext):
    """Claude Code wants to show a dialog of a kind in `supported_dialog_kinds`.

    Return its result, or None if it was closed without a result.
    """

    def __init__(self, ask: RequestUserDialog, origin: Origin) -> None:
        super().__init__(origin, ask.tool_use_id)
        self.ask: Final = ask
        """The request as received; do not change it."""
        self.kind: Final[str] = ask.dialog_kind
        self.payload: Final[Json] = ask.payload
        """What the dialog is about; its form depends on the kind."""

    _refused = _cancelled = DialogResult("cancelled")

    @property
    def _what(self) -> str:
        return f"a dialog {self.kind!r}"

    def _handled(self, result: _Result, common: JsonObject) -> Handled:
        given = cast("DialogResult", result).result
        return DialogHandled(kind=self.kind, result=given, tool_use_id=self.tool_use_id, **common)

    def _read(self, value: object) -> DialogResult:
        if value is None:
            return DialogResult("cancelled")
        if isinstance(value, DialogResult):
            if value.behavior == "cancelled":
                return value
            value = value.result
        return DialogResult("completed", _as_json(value))

    def __repr__(self) -> str:
        return f"<DialogRequest {self.kind} {preview_value(self.payload)}>"


class NotAnAnswer(ValueError):
    """A callback returned something that is not an answer; the text says why."""


# How a request is answered belongs to its class, but not to its public methods.
# pyright: reportPrivateUsage=false
class _Answers:
    """Answers one kind of request during a session; an invalid answer cancels it."""

    request: ClassVar[type[ElicitationRequest | DialogRequest]]

    def __init__(
        self, callback: Callable[..., object] | None, observe: Observe, timeout: float | None = None
    ) -> None:
        """`timeout`: how many seconds the callback may take. None: no limit."""
        self._callback = callback
        self._observe = observe
        self._timeout = timeout

    async def answer(self, ask: Any, origin: Origin) -> JsonObject:  # noqa: ANN401 - what `request` takes
        """The answer, as sent. Raises only cancellation and exceptions that end programs."""
        began = perf_counter()
        request = self.request(ask, origin)
        tried, result = Attempt(outcome="answered"), request._cancelled
        try:
            tried, result = await self._answered(request)
        except Exception as error:  # noqa: BLE001 - a mistake of ours, or of an object that was looked at
            tried = Attempt(outcome="failed", error=error)
            _log_failure(tried, "Outrider", request._what)
        except BaseException as error:
            tried = Attempt(outcome=outcome_of(error), error=error)
            raise
        finally:
            common = {"seconds": perf_counter() - began, "outcome": tried.outcome, "error": tried.error}
            self._observe(request._handled(result, common))
        return result.to_wire()

    async def _answered(self, request: ElicitationRequest | DialogRequest) -> tuple[Attempt, _Result]:
        if self._callback is None:
            return Attempt(outcome="answered"), request._refused
        who = name_of(self._callback)
        tried = await attempt(self._callback, request, self._timeout)
        if isinstance(tried.error, Denied):
            return Attempt(outcome="answered"), request._refused
        if tried.outcome != "answered":
            _log_failure(tried, who, request._what)
            return tried, request._cancelled
        try:
            return tried, request._read(tried.value)
        except NotAnAnswer as error:
            log.error("%s did not answer %s: cancelled, because %s", who, request._what, error)  # noqa: TRY400
            return Attempt(outcome="failed", error=error), request._cancelled


class Elicitations(_Answers):
    """Answers what MCP servers ask during one session."""

    request = ElicitationRequest


class Dialogs(_Answers):
    """Answers the dialogs of one session's agent."""

    request = DialogRequest


def _log_failure(tried: Attempt, who: str, what: str) -> None:
    if tried.outcome == "timed_out":
        log.error("%s gave %s about %s: cancelled", who, tried.error, what)
    else:
        log.error("%s failed to answer %s: cancelled", who, what, exc_info=tried.error)


def _accepted(content: object, request: ElicitationRequest) -> ElicitationResult:
    if request.mode == "url":
        if content:
            raise NotAnAnswer("a page to open has no form to fill in: return True")
        return accept()
    if not is_object(content if content is not None else {}):
        raise NotAnAnswer(f"a form is filled in with a dict, not with {preview_value(content)}")
    filled = cast("JsonObject", _as_json(content or {}))
    if error := content_error(filled, request.fields):
        raise NotAnAnswer(error)
    return accept(filled)


def _as_json(value: object) -> Json:
    try:
        plain: Json = to_wire(value)
        encode(plain)
    except (OutriderError, RecursionError) as error:
        raise NotAnAnswer(f"{preview_value(value)} cannot be written as JSON") from error
    return plain
