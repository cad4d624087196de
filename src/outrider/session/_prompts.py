"""Makes user messages from prompts: text, blocks, images, documents, messages, or a stream.

The type of a file is found from its bytes, never from its name alone. Reading files may take a while:
`has_files` says whether there are any.
"""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from contextvars import copy_context
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

import anyio
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, checkpoint, current_token

from outrider._threads import start_thread
from outrider.errors import ConnectionLost, MessageInvalid, TurnFailed, TurnInterrupted, UsageError
from outrider.redaction import preview_value
from outrider.wire import (
    FRAME_TYPES,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    JsonObject,
    TextBlock,
    UserMessage,
    user_message,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from os import PathLike
    from threading import Thread

    from outrider.session._connection.connection import Connection
    from outrider.session._streams.turn_state import TurnState

IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF: Final = "application/pdf"
TEXT: Final = "text/plain"

# The API takes requests of up to 32 MB, in which bytes are written as base64: four characters for three.
_MOST_TEXT: Final = 32 * 1024 * 1024
_MOST_BYTES: Final = _MOST_TEXT // 4 * 3


def image(source: str | PathLike[str] | bytes, *, media_type: str | None = None) -> ImageBlock:
    """An image to send: a file, its bytes, or an address (`https://…`) from which the API loads it.

    PNG, JPEG, GIF and WebP are recognized by their first bytes, not by the file name; give `media_type` for
    an image that is not recognized. Raises `UsageError` for anything else.
    """
    if isinstance(source, str) and _is_address(source):
        return ImageBlock({"type": "url", "url": source})
    data, name = (source, "The image") if isinstance(source, bytes) else _read(source)
    return _image(data, _media_type(data, name, media_type, IMAGE_TYPES))


def document(
    source: str | PathLike[str] | bytes, *, title: str | None = None, context: str | None = None
) -> DocumentBlock:
    """A document to send: a file (`Path`), its bytes, a text, or the address (`https://…`) of a PDF.

    `title` is its name for the model, by default the name of the file; `context` is what the model should
    know about it. Raises `UsageError` for anything but PDF and text.
    """
    if isinstance(source, str):
        if _is_address(source):
            return DocumentBlock({"type": "url", "url": source}, title, context)
        _refuse_file_name(source)
        return _text_document(source, "The document", title, context)
    if isinstance(source, bytes):
        data, name = source, "The document"
    else:
        data, name = _read(source)
        title = Path(source).name if title is None else title
    return _document(data, _media_type(data, name, None, (PDF, TEXT)), name, title, context)


def file_block(path: Path) -> ImageBlock | DocumentBlock:
    """A file to send, as the block that fits its content. Raises `UsageError` if there is none."""
    data, name = _read(path)
    found = _media_type(data, name, None, (*IMAGE_TYPES, PDF, TEXT))
    return _image(data, found) if found in IMAGE_TYPES else _document(data, found, name, path.name, None)


def _is_address(source: str) -> bool:
    return source.startswith(("https://", "http://"))


def _refuse_file_name(text: str) -> None:
    """Refuse the name of a file as a text: the name would be sent instead of the file."""
    try:
        is_name = len(text) < 1024 and (text.lower().endswith(".pdf") or Path(text).is_file())
    except (OSError, ValueError):
        return
    if is_name:
        raise UsageError(
            f"`document` got the text {text!r}, which looks like the name of a file",
            hint=f"Give `Path({text!r})` to send the file.",
        )


def _read(path: str | PathLike[str]) -> tuple[bytes, str]:
    """A file's content, and what to call it in errors."""
    file = Path(path)
    name = f"The file {str(file)!r}"
    try:
        if file.is_dir():
            raise UsageError(
                f"{name} is a folder", hint="Name the files in it, or let the agent look into it."
            )
        if not file.exists():
            where = "" if file.is_absolute() else f" in {str(Path.cwd())!r}"
            raise UsageError(
                f"{name} does not exist{where}", hint="Check its name, or give an absolute path."
            )
        if not file.is_file():
            # To read a pipe or a device might never end.
            raise UsageError(
                f"{name} is not a regular file", hint="Copy its content to one, or send the bytes."
            )
        _refuse_size(file.stat().st_size, _MOST_TEXT, name)
        return file.read_bytes(), name
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{name} cannot be read: {error}", hint="Check its permissions and its name."
        ) from error


def _refuse_size(size: int, most: int, name: str) -> None:
    if size > most:
        raise UsageError(
            f"{name} has {size} bytes, and the API takes no more than {most} in one request",
            hint="Make it smaller, or name its path in the text and let the agent read it.",
        )


def _image(data: bytes, media_type: str) -> ImageBlock:
    _refuse_size(len(data), _MOST_BYTES, "The image")
    return ImageBlock({"type": "base64", "media_type": media_type, "data": _base64(data)})


def _document(
    data: bytes, media_type: str, name: str, title: str | None, context: str | None
) -> DocumentBlock:
    if media_type != PDF:
        return _text_document(_decoded(data) or "", name, title, context)
    _refuse_size(len(data), _MOST_BYTES, name)
    return DocumentBlock({"type": "base64", "media_type": PDF, "data": _base64(data)}, title, context)


def _text_document(text: str, name: str, title: str | None, context: str | None) -> DocumentBlock:
    if not text.strip():
        raise UsageError(f"{name} has no text in it", hint="Send something that has content.")
    _refuse_size(len(text), _MOST_TEXT, name)
    return DocumentBlock({"type": "text", "media_type": TEXT, "data": text}, title, context)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _media_type(data: bytes, name: str, given: str | None, allowed: Sequence[str]) -> str:
    """What the bytes are, one of `allowed`; if they do not tell, what the caller says."""
    if given is not None and given not in allowed:
        raise UsageError(f"`media_type` is {given!r}", hint=f"It can be one of {', '.join(allowed)}.")
    if not data:
        raise UsageError(f"{name} is empty", hint="Send something that has content.")
    found = _sniffed(data)
    if given is not None and found in (None, TEXT, given):
        return given
    if found is None or given is not None or found not in allowed:
        is_what = f"begins with {data[:8]!r}" if found is None else f"is {found}"
        expected = f"`media_type` {given!r}" if given is not None else ", ".join(allowed)
        raise UsageError(
            f"{name} {is_what}, and not {expected}",
            hint="Convert it, or name its path in the text and let the agent read it.",
        )
    return found


def _sniffed(data: bytes) -> str | None:
    """What the bytes are by their beginning; text if all of them can be read as such."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    # Readers of PDF allow other bytes before it.
    if b"%PDF-" in data[:1024]:
        return PDF
    return None if _decoded(data) is None else TEXT


def _decoded(data: bytes) -> str | None:
    """The bytes as text; None if they are none."""
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


Part: TypeAlias = str | ContentBlock | Path | JsonObject
"""A part of a prompt: text, a content block (typed or as a dict), or a file, which is sent along."""

Prompt: TypeAlias = str | ContentBlock | UserMessage | JsonObject | Sequence[Part]
"""What can be sent: text, a content block, a list of parts, or a whole user message (typed or as a dict)."""

Priority: TypeAlias = Literal["now", "next", "later"]
"""When a message is taken up while a turn runs: it ends that turn, comes before others, or after them."""

_BLOCKS: Final = get_args(ContentBlock)
_NO_CONTENT: Final = "its `content` is neither text nor a list of content blocks, or empty"
_RIGHT_CALL: Final = (
    'Send text, or a list of text, content blocks and files: `["What is this?", Path("a.png")]`.'
)


def make_message(
    prompt: object,
    *,
    uuid: str | None = None,
    priority: str | None = None,
    should_query: bool | None = None,
    verbatim: bool = False,
) -> JsonObject:
    """The frame for a prompt; files in it are read. A message that has a uuid keeps it.

    `should_query`: False adds to the conversation without a turn; `verbatim`: no `/command` and no `@file` in
    the text is processed. Raises `UsageError` for an invalid prompt, and `MessageInvalid` for a message or a
    block that the agent could not read.
    """
    frame = user_message(_checked(prompt), uuid=uuid)
    if priority is not None:
        if priority not in get_args(Priority):
            raise UsageError(f"`priority` is {priority!r}", hint="Give one of 'now', 'next' and 'later'.")
        frame["priority"] = priority
    if should_query is not None:
        frame["shouldQuery"] = should_query
    if verbatim:
        frame["client_composed"] = True
    return frame


def is_prompt_stream(prompt: object) -> bool:
    """Whether this is a stream of several messages rather than one prompt.

    That is an async iterable; an iterator, such as a generator; or a list or tuple, not empty, of nothing but
    user messages: `UserMessage`s, and dicts that have the type `user`, or no type and a `message`. Any other
    list is one prompt of several parts.
    """
    if isinstance(prompt, list | tuple):
        items = cast("Sequence[object]", prompt)
        return bool(items) and all(_is_message(item) for item in items)
    if isinstance(prompt, io.IOBase):
        return False
    return hasattr(prompt, "__aiter__") or hasattr(prompt, "__next__")


def has_files(prompt: object) -> bool:
    """Whether making a message of the prompt reads files."""
    return isinstance(prompt, list | tuple) and any(
        isinstance(item, Path) for item in cast("Sequence[object]", prompt)
    )


def _checked(prompt: object) -> object:
    """The prompt in the forms that the wire knows, with something in it."""
    if isinstance(prompt, str):
        return _text(prompt, "The prompt")
    if isinstance(prompt, _BLOCKS):
        return _parts([prompt])
    if isinstance(prompt, UserMessage):
        if not _has_content(prompt.content):
            raise MessageInvalid(prompt, _NO_CONTENT)
        return prompt
    if isinstance(prompt, dict):
        return _checked_dict(cast("JsonObject", prompt))
    if isinstance(prompt, list | tuple):
        return _parts(cast("Sequence[object]", prompt))
    raise UsageError(_wrong(prompt), hint=_advice(prompt))


def _checked_dict(given: JsonObject) -> JsonObject:
    kind = given.get("type")
    if not isinstance(kind, str | None):
        raise MessageInvalid(given, "its `type` is not text")
    if given.get("uuid") is not None and not isinstance(given["uuid"], str):
        raise MessageInvalid(given, "its `uuid` is not text")
    if kind != "user" and kind in FRAME_TYPES:
        raise MessageInvalid(given, f"a message of type {kind!r} is not one that a user sends")
    inner = given.get("message") if kind == "user" or "message" in given else given
    if isinstance(inner, dict):
        body = cast("JsonObject", inner)
        if body.get("role") not in (None, "user"):
            raise MessageInvalid(
                given, f"its role is {body['role']!r}; a prompt is always of the role 'user'"
            )
        if isinstance(kind, str) and kind != "user":
            return cast("JsonObject", _part(given, "The prompt"))
        if not _has_content(body.get("content")):
            raise MessageInvalid(given, _NO_CONTENT)
    elif not _has_content(inner):
        raise MessageInvalid(given, "its `message` has no content")
    return given


def _has_content(content: object) -> bool:
    if isinstance(content, str):
        return bool(content.strip())
    if not isinstance(content, list | tuple):
        return False
    blocks = cast("Sequence[object]", content)
    return bool(blocks) and all(map(_is_readable, blocks))


def _is_readable(block: object) -> bool:
    """Whether it is a block, and has text if it is one of text. The agent drops others without a word."""
    if isinstance(block, TextBlock):
        return isinstance(cast("object", block.text), str)
    if not isinstance(block, dict):
        return isinstance(block, _BLOCKS)
    fields = cast("JsonObject", block)
    kind = fields.get("type")
    return isinstance(kind, str) and (kind != "text" or isinstance(fields.get("text"), str))


def _parts(items: Sequence[object]) -> list[object]:
    if not items:
        raise UsageError("The prompt is an empty list", hint=_RIGHT_CALL)
    return [_part(item, f"Part {number} of the prompt") for number, item in enumerate(items, 1)]


def _part(item: object, place: str) -> object:
    if isinstance(item, str):
        return TextBlock(_text(item, place))
    if isinstance(item, Path):
        return file_block(item)
    if isinstance(item, _BLOCKS):
        if not _is_readable(item):
            raise MessageInvalid(item, f"{place.lower()} is a block of text without text")
        return item
    if _is_message(item):
        raise UsageError(
            f"{place} is a whole message, and others are not: {preview_value(item, 100)}",
            hint="Send a list of messages alone, or a list of parts: text, content blocks and files.",
        )
    if isinstance(item, dict):
        block = cast("JsonObject", item)
        if not isinstance(block.get("type"), str):
            raise MessageInvalid(block, f"{place.lower()} is a dict with no `type`, and so no content block")
        if not _is_readable(block):
            raise MessageInvalid(block, f"{place.lower()} is a block of text without text")
        return block
    raise UsageError(f"{place} is {_named(item)}", hint=_RIGHT_CALL)


def _text(text: str, place: str) -> str:
    if not text.strip():
        raise UsageError(
            f"{place} is {'empty' if not text else 'nothing but white space'}", hint="Send some text."
        )
    return text


def _is_message(item: object) -> bool:
    if isinstance(item, dict):
        fields = cast("JsonObject", item)
        return fields.get("type") == "user" or ("message" in fields and "type" not in fields)
    return isinstance(item, UserMessage)


def _named(value: object) -> str:
    return "None" if value is None else f"{preview_value(value, 100)}, of type {type(value).__name__}"


def _wrong(prompt: object) -> str:
    return (
        "The prompt is a stream of messages"
        if is_prompt_stream(prompt)
        else f"The prompt is {_named(prompt)}"
    )


def _advice(prompt: object) -> str:
    if isinstance(prompt, Path):
        return f"Send it in a list, with what to do with it: `[{prompt!r}, 'Summarise this']`."
    if isinstance(prompt, bytes | bytearray | io.IOBase):
        return "Send text (`.decode()`, `.read()`), or make a block of it with `image` or `document`."
    if is_prompt_stream(prompt):
        return "Only one message can be sent here: take them from it one by one."
    return _RIGHT_CALL


log = logging.getLogger("outrider.session")

Prompts: TypeAlias = AsyncIterable[object] | Iterable[object]

_END: Final = object()
_CLOSE_SECONDS: Final = 1.0
"""How long a generator that is no longer wanted may take to end."""


async def feed(
    connection: Connection, state: TurnState, prompts: Prompts, send: Callable[[object], Awaitable[None]]
) -> None:
    """Send each prompt as it comes. That the iterable fails is the failure of the turn."""
    source = _AsyncSource(prompts) if isinstance(prompts, AsyncIterable) else _BlockingSource(prompts)
    failure: BaseException | None = None
    count = 0
    where = "after"
    try:
        with anyio.CancelScope() as state.feeding:
            if state.is_stopping:
                state.feeding.cancel()
            while (prompt := await source.next()) is not _END:
                count += 1
                where = "at"
                # One that is cut short may have been sent or not, and the agent would be asked for something
                # that it never saw. What stops the turn or closes the session ends this, too.
                with anyio.CancelScope(shield=True):
                    await send(prompt)
                where = "after"
    except anyio.get_cancelled_exc_class() as error:
        # Raises it again if it was meant for this task. Else something that the iterable waited for was
        # cancelled, which is an error like any other.
        await checkpoint()
        failure = error
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises
        failure = error
    finally:
        state.feeding = None
        await source.close()
    if not isinstance(failure, Exception | anyio.get_cancelled_exc_class() | None):
        connection.end_with(failure)
    elif not state.is_over:
        if where == "at" and isinstance(failure, ConnectionLost):
            # Not the iterable's fault: the agent does not read, or is gone.
            state.input_error = failure
        _conclude(connection, state, failure, f"{where} prompt {count}" if count else "before the first")


def _conclude(connection: Connection, state: TurnState, failure: BaseException | None, where: str) -> None:
    """No more prompts will come, for whatever reason."""
    routing, now = connection.routing, anyio.current_time()
    if isinstance(failure, ConnectionLost) and connection.is_closed:
        # Then the turn ends with the connection.
        return
    if failure is not None and state.input_error is None:
        state.input_error = TurnFailed(
            messages=state.received,
            session_id=connection.info.session_id,
            message=f"the iterable of prompts came to an end {where}, with {failure!r}",
            hint="Look at what makes the prompts; `__cause__` has its exception.",
        )
        state.input_error.__cause__ = failure
    elif not state.uuids and not state.is_stopping:
        state.input_error = UsageError("There was no prompt in the iterable. Give it at least one.")
    if not state.uuids:
        routing.fail(state, TurnInterrupted(message="the turn was ended before its first prompt"), now)
        return
    if state.input_error is not None:
        connection.begin_stop(state)
    routing.fed(state, now)


class _AsyncSource:
    """The prompts of an async iterable."""

    def __init__(self, prompts: AsyncIterable[object]) -> None:
        self._prompts = prompts
        self._iterator: AsyncIterator[object] | None = None

    async def next(self) -> object:
        """The next prompt, or the end."""
        if self._iterator is None:
            self._iterator = aiter(self._prompts)
        try:
            # With a default, one whose `__anext__` raises `StopIteration` crashes CPython 3.11.
            return await anext(self._iterator)
        except StopAsyncIteration:
            return _END

    async def close(self) -> None:
        """Close a generator. Anything else that can be closed may be of use to its owner."""
        if isinstance(cast("object", self._iterator), AsyncGenerator):
            generator = cast("AsyncGenerator[object, None]", self._iterator)
            try:
                with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                    await generator.aclose()
            except Exception:
                log.exception("the generator of prompts could not be closed")


class _BlockingSource:
    """The prompts of a plain iterable, which may block, and so is asked in a thread of its own.

    A daemon: one that blocks for ever, as `input()` may, holds up neither its session nor the program's end.
    """

    def __init__(self, prompts: Iterable[object]) -> None:
        self._prompts = prompts
        self._orders: SimpleQueue[bool] = SimpleQueue()
        """True: give the next prompt; False: none is wanted any more."""
        self._thread: Thread | None = None
        self._arrival = anyio.Event()
        self._prompt: object = _END
        self._error: BaseException | None = None

    async def next(self) -> object:
        """The next prompt, or the end."""
        if self._thread is None:
            context, token = copy_context(), current_token()
            self._thread = start_thread(lambda: context.run(self._serve, token), name="outrider-prompts")
        self._arrival = anyio.Event()
        self._orders.put(True)
        await self._arrival.wait()
        if self._error is not None:
            raise self._error
        return self._prompt

    async def close(self) -> None:
        """The thread closes a generator, as soon as it has it back."""
        self._orders.put(False)

    def _serve(self, token: EventLoopToken) -> None:
        iterator: Iterator[object] | None = None
        while self._orders.get():
            prompt, error = _END, None
            try:
                iterator = iter(self._prompts) if iterator is None else iterator
                prompt = next(iterator, _END)
            except BaseException as raised:  # noqa: BLE001 - raised again where it is waited for
                error = raised
            try:
                from_thread.run_sync(self._take, prompt, error, token=token)
            except Exception as gone:  # noqa: BLE001 - the event loop; there is nobody to tell
                log.debug("a prompt came after its event loop had ended: %s", gone)
                break
        if isinstance(iterator, Generator):
            try:
                iterator.close()
            except Exception:
                log.exception("the generator of prompts could not be closed")

    def _take(self, prompt: object, error: BaseException | None) -> None:
        self._prompt, self._error = prompt, error
        self._arrival.set()
