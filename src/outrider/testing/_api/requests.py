"""`Request`, a request as the API got it, and what it was made for."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import msgspec

from outrider.testing._script.steps import Gate
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._script.script import Item, Script

KIT_VARIABLE: Final = "OUTRIDER_TEST_KIT"
"""Marks a program that the test kit started on purpose."""

RequestKind: TypeAlias = Literal["main", "subagent", "count_tokens", "probe", "title", "other"]
"""What a request is for: a round of the conversation or of a subagent's, the size of a prompt, whether a
model is there, a title for the session, or another path than that of messages."""


_MESSAGES: Final = "/v1/messages"
_AGENT_HEADER: Final = "x-claude-code-agent-id"
_SESSION_HEADER: Final = "x-claude-code-session-id"


# What the agent adds to a user message.
_REMINDER: Final = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
_NOTICE: Final = re.compile(r"<task-notification>.*?</task-notification>", re.DOTALL)
_INTERRUPTED: Final = "[Request interrupted by user"
# What it sends, as the user, to have the model continue in the same turn.
_GOING_ON: Final = (
    "[structured-output-enforce]",
    "Output token limit hit.",
    "Stop hook feedback:",
    "SubagentStop hook feedback:",
)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer of the model: as it arrived at an API, or as the simulated agent makes it."""

    kind: RequestKind
    body: JsonObject
    """Empty if there was none, or no JSON object."""
    method: str = "POST"
    path: str = _MESSAGES
    """Without what follows a `?`."""
    headers: Mapping[str, str] = {}
    """By name in lower case."""

    @property
    def agent_id(self) -> str | None:
        """The subagent that asks; none for the main conversation."""
        return self.headers.get(_AGENT_HEADER)

    @property
    def session_id(self) -> str | None:
        """The session that it belongs to, if the agent says so."""
        return self.headers.get(_SESSION_HEADER)

    @property
    def model(self) -> str:
        """The model that is asked; empty if none is."""
        return str(self.body.get("model", ""))

    @property
    def messages(self) -> list[JsonObject]:
        """The conversation so far."""
        return _objects(self.body.get("messages"))

    @property
    def tools(self) -> dict[str, JsonObject]:
        """The tools that the model is offered, by name."""
        return {str(tool.get("name", "")): tool for tool in _objects(self.body.get("tools"))}

    @property
    def tool_uses(self) -> list[JsonObject]:
        """The calls of tools in the model's last message, as blocks."""
        for message in reversed(self.messages):
            if message.get("role") == "assistant":
                return [block for block in blocks_of(message) if block.get("type") == "tool_use"]
        return []

    @property
    def tool_results(self) -> list[JsonObject]:
        """The results of the tools that the model's last message called, as blocks."""
        found: list[JsonObject] = []
        # Notes of the agent's may follow the message that has them.
        for message in takewhile(lambda message: message.get("role") != "assistant", reversed(self.messages)):
            found[:0] = [block for block in blocks_of(message) if block.get("type") == "tool_result"]
        return found

    @property
    def prompt(self) -> str:
        """What the turn was started with, in the user's own words: without what the agent adds to them.

        Of several prompts that were never answered, the last. For a turn that the agent starts itself, after
        a background task, its notice.
        """
        at = self._turn_at()
        return "" if at is None else _prompt(blocks_of(self.messages[at])) or ""

    @property
    def since_prompt(self) -> list[JsonObject]:
        """The messages of this turn so far, from the one with its prompt on."""
        return self.messages[self._turn_at() or 0 :]

    @property
    def starts_turn(self) -> bool:
        """Whether it is the first of its turn: it brings a prompt, and no results of tools."""
        at = self._turn_at()
        return at is not None and all(message.get("role") == "system" for message in self.messages[at + 1 :])

    def _turn_at(self) -> int | None:
        messages = self.messages
        for at in reversed(range(len(messages))):
            message = messages[at]
            if message.get("role") == "user" and _prompt(blocks_of(message)) is not None:
                return at
        return None


def text_of(content: object) -> str:
    """The text in the content of a message, or of a tool's result."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in _objects(content) if block.get("type") == "text")


def _prompt(blocks: list[JsonObject]) -> str | None:
    """The prompt in a user message; none if it only continues a turn."""
    texts: list[str] = []
    notices: list[str] = []
    has_results = has_others = False
    for block in blocks:
        if block.get("type") != "text":
            has_results |= block.get("type") == "tool_result"
            has_others |= block.get("type") != "tool_result"
            continue
        text = str(block.get("text", ""))
        notices += _NOTICE.findall(text)
        own = _REMINDER.sub("", text)
        if own.startswith(_INTERRUPTED):
            texts, has_results = [], False
            continue
        # The agent joins messages that had no answer: the text of each but the last is given a line break.
        if texts and texts[-1].endswith("\n") and not has_results:
            texts = []
        if own == text or own.strip():
            texts.append(own if own == text else own.strip())
    if has_results or (blocks and not (texts or notices or has_others)):
        return None
    prompt = "\n".join(texts) or "\n".join(notices)
    return None if prompt.startswith(_GOING_ON) else prompt


def blocks_of(message: JsonObject) -> list[JsonObject]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else _objects(content)


def _objects(value: object) -> list[JsonObject]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("JsonObject", item) for item in items if isinstance(item, dict)]


def kind_of(method: str, path: str, headers: Mapping[str, str], body: JsonObject) -> RequestKind:
    if method == "POST" and path == f"{_MESSAGES}/count_tokens":
        return "count_tokens"
    if method != "POST" or path != _MESSAGES:
        return "other"
    if body.get("max_tokens") == 1:
        return "probe"
    if _AGENT_HEADER in headers:
        return "subagent"
    if not body.get("tools") and _output_format(body) == "json_schema":
        return "title"
    return "main"


def _output_format(body: JsonObject) -> object:
    return _object(_object(body.get("output_config")).get("format")).get("type")


def _object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


class RequestLog:
    """Requests in the order in which they were made."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self.arrived = threading.Condition()
        """Held while one is added."""
        self.hanging = Gate(after=0)
        """What requests wait at now that are to hang."""

    def __len__(self) -> int:
        return len(self._requests)

    def release(self) -> None:
        """Let all continue that hang; later ones wait at another gate."""
        with self.arrived:
            gate, self.hanging = self.hanging, Gate(after=0)
        gate.open()

    def add(self, request: Request) -> None:
        with self.arrived:
            self._requests.append(request)
            self.arrived.notify_all()

    def all(self) -> list[Request]:
        with self.arrived:
            return list(self._requests)

    def main(self) -> list[Request]:
        """Those of the main conversation."""
        return [request for request in self.all() if request.kind == "main"]

    def wait_for(self, what: int | Callable[[Request], bool], timeout: float) -> Request:
        """Block this thread until one is there. Raises `TimeoutError` if it does not come."""
        deadline = time.monotonic() + timeout
        with self.arrived:
            while (found := self._find(what)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    came = ", ".join(request.kind for request in self._requests) or "none"
                    wanted = f"main request {what}" if isinstance(what, int) else "the request"
                    raise TimeoutError(f"{wanted} did not come within {timeout:g} s; those that did: {came}")
                self.arrived.wait(left)
        return found

    def _find(self, what: int | Callable[[Request], bool]) -> Request | None:
        if callable(what):
            return next(filter(what, self._requests), None)
        main = [request for request in self._requests if request.kind == "main"]
        return main[what - 1] if 1 <= what <= len(main) else None


class Asked:
    """What a test does with a scripted model: its script, and the requests that it got."""

    script: Script
    _requests: RequestLog

    def add(self, *items: Item) -> None:
        """Add items to the script. Raises `OptionsError` for an invalid item."""
        self.script.add(*items)

    def clear(self) -> None:
        """Forget the steps that no request has taken."""
        self.script.clear()

    @property
    def remaining(self) -> tuple[Item, ...]:
        """What is left of the script: what no request has taken yet."""
        return self.script.remaining

    def check(self) -> None:
        """Raise what functions and expectations of the script have raised, if they have."""
        self.script.check()

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in the order of their arrival; those of a simulated agent, of all its runs."""
        return self._requests.all()

    @property
    def main_requests(self) -> list[Request]:
        """Those of the main conversation: one for each step that was taken."""
        return self._requests.main()

    def wait_for(self, what: int | Callable[[Request], bool], timeout: float = 30.0) -> Request:
        """Block this thread until a request is there: the n-th of the main conversation, from 1 on, or the
        first that a function says yes to. Raises `TimeoutError` if it does not come."""
        return self._requests.wait_for(what, timeout)

    def wait_for_hang(self, timeout: float = 30.0) -> None:
        """Block this thread until a request has come to a `hang()`. Raises `TimeoutError` if none does."""
        self._requests.hanging.wait_reached(timeout)

    def release(self) -> None:
        """Let all requests continue that `hang()` holds now."""
        self._requests.release()
