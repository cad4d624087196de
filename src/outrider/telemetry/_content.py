"""Prompts, answers, arguments and results as attributes: masked, scrubbed and cut to size.

Nothing here is called unless content was asked for.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, cast

import msgspec

from outrider.options import CustomPrompt, PresetPrompt
from outrider.redaction import MASK, WINDOW
from outrider.wire import TextBlock, ThinkingBlock
from outrider.wire._blocks import TOOL_CALLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from outrider.options import Options
    from outrider.redaction import Redaction
    from outrider.wire import ContentBlock, JsonObject

log = logging.getLogger("outrider.telemetry")

_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_EVENTS: Final = "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT"
_MODES: Final = {
    "span_only": (True, False),
    "event_only": (False, True),
    "span_and_event": (True, True),
    "true": (True, False),
}
_LIMIT: Final = 64 * 1024
"""Bytes of one attribute."""
_SHORTEST: Final = 64
_EACH: Final = 16
"""Characters that a value counts for at least, besides its text."""


class Content:
    """What becomes of content: whether it goes on spans, or into an event of theirs, and how it is hidden."""

    def __init__(
        self, wanted: bool | None, redaction: Redaction, scrub: Callable[[str], str] | None = None
    ) -> None:
        """`wanted`: None if OpenTelemetry's variables decide."""
        chosen = "span_only" if wanted else "" if wanted is False else os.environ.get(_VARIABLE, "")
        self.on_spans, self.in_events = _MODES.get(chosen.strip().lower(), (False, False))
        if os.environ.get(_EVENTS, "").strip().lower() == "false":
            self.in_events = False
        self._redaction = redaction
        self._scrub = scrub

    def __bool__(self) -> bool:
        return self.on_spans or self.in_events

    def encode(self, value: object) -> str:
        """A JSON value as text of at most 64 KiB that is JSON, too: long texts in it are cut. Raises nothing:
        what cannot be shown is left out."""
        try:
            shown = self._hidden(value)
            longest = _LIMIT
            while len(text := msgspec.json.encode(_cut(shown, longest), enc_hook=str)) > _LIMIT:
                if longest <= _SHORTEST:
                    return f'"… ({len(text):,} bytes)"'
                longest //= 2
            return text.decode()
        except Exception as error:  # noqa: BLE001 - also of a redaction of the user's
            # Not what it says, which may be the content.
            log.error("content could not be shown, and is left out: %s", type(error).__name__)  # noqa: TRY400
            return f'"{MASK}"'

    def clean(self, text: str) -> str:
        """A text that is no JSON, in the same way."""
        return str(msgspec.json.decode(self.encode(text)))

    def _hidden(self, value: object) -> object:
        # To mask megabytes would keep the event loop busy for seconds, and most of them will not be shown.
        # Cut close to what is shown, a secret might be split and not be known any more.
        shown = self._redaction.mask_json(_Window().cut(value))
        return shown if self._scrub is None else self._scrubbed(shown)

    def _scrubbed(self, value: object) -> object:
        if not isinstance(value, str):
            return _mapped(self._scrubbed, value)
        try:
            return str(cast("Callable[[str], str]", self._scrub)(value))
        except Exception:  # noqa: BLE001 - what cannot be scrubbed is not shown
            return MASK


class _Window:
    """The part of a value that can matter for what is shown of it."""

    def __init__(self) -> None:
        self._left = 2 * _LIMIT

    def cut(self, value: object) -> object:
        self._left -= _EACH
        if isinstance(value, str):
            longest = max(0, min(self._left, _LIMIT + WINDOW))
            text, least = value[:longest], max(0, longest - WINDOW)
            if longest < len(value):
                # The beginning of a secret may not be known as one: the last word is left out.
                text = text[: max(text.rfind(" ", least), least)]
            # Half a surrogate pair is not Unicode, and would fail the exporter.
            text = text.encode(errors="replace").decode()
            self._left -= len(text)
            return text if len(value) <= len(text) else text + "…"
        if isinstance(value, dict):
            fields = cast("JsonObject", value).items()
            return {key: self.cut(inner) for key, inner in fields if self._left > 0}
        if isinstance(value, list | tuple):
            return [self.cut(inner) for inner in cast("list[object]", value) if self._left > 0]
        return value


def _mapped(function: Callable[[object], object], value: object) -> object:
    if isinstance(value, dict):
        return {key: function(inner) for key, inner in cast("JsonObject", value).items()}
    if isinstance(value, list | tuple):
        return [function(inner) for inner in cast("list[object]", value)]
    return value


def _cut(value: object, longest: int) -> object:
    if isinstance(value, str):
        return value if len(value) <= longest else value[:longest] + "…"
    return _mapped(lambda inner: _cut(inner, longest), value)


# Messages in the form of the conventions.


def prompt_message(frame: JsonObject) -> JsonObject:
    """A prompt, from the frame that it is sent in."""
    message = cast("JsonObject", frame.get("message") or {})
    content: object = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    parts = [_plain_part(block) for block in cast("list[JsonObject]", blocks or [])]
    return {"role": "user", "parts": parts}


def _plain_part(block: JsonObject) -> JsonObject:
    if block.get("type") == "text":
        return {"type": "text", "content": block.get("text")}
    # Of an image or a document only that there is one: its bytes would be the whole limit.
    return {"type": str(block.get("type"))}


def answer_message(blocks: Iterable[ContentBlock]) -> JsonObject:
    """What the model said in one message."""
    parts: list[JsonObject] = []
    for block in blocks:
        if isinstance(block, TextBlock):
            parts.append({"type": "text", "content": block.text})
        elif isinstance(block, ThinkingBlock):
            parts.append({"type": "reasoning", "content": block.thinking})
        elif isinstance(block, TOOL_CALLS):
            parts.append({"type": "tool_call", "id": block.id, "name": block.name, "arguments": block.input})
    return {"role": "assistant", "parts": parts}


def system_instructions(options: Options) -> list[JsonObject]:
    """The system prompt, as far as the options have it."""
    prompt = options.system_prompt
    texts: tuple[str | None, ...] = ()
    if isinstance(prompt, CustomPrompt):
        texts = (prompt.prompt,) if isinstance(prompt.prompt, str) else prompt.prompt
    elif isinstance(prompt, PresetPrompt):
        texts = (prompt.append,)
    return [{"type": "text", "content": text} for text in (*texts, options.append_system_prompt) if text]
