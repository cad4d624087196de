"""Owns the prompts that wait: in which order they are taken up, and which of them together.

Does not answer them.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec

from outrider.wire import JsonObject

__all__ = ["Prompt", "PromptQueue", "joined"]

_ORDER: Final = {"now": 0, "next": 1, "later": 2}
_REMEMBERED: Final = 10_000


class Prompt(msgspec.Struct, kw_only=True):
    """A message of the user, or one that the program writes itself."""

    content: str | list[JsonObject]
    uuid: str | None = None
    priority: str = "next"
    should_query: bool = True
    is_verbatim: bool = False
    is_synthetic: bool = False
    origin: JsonObject | None = None
    """Of a turn that the program starts itself, and of a synthetic message."""

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        texts = (block.get("text") for block in self.content if block.get("type") == "text")
        return "\n".join(text for text in texts if isinstance(text, str))

    @property
    def command(self) -> tuple[str, str] | None:
        """The name and the arguments, if it is a command."""
        text = self.text.strip()
        if self.is_verbatim or self.origin is not None or not text.startswith("/"):
            return None
        name, _, rest = text[1:].partition(" ")
        return name, rest.strip()

    def goes_with(self, other: Prompt) -> bool:
        """Whether both can be answered by one turn."""
        return (
            self.priority == other.priority
            and all(prompt.should_query for prompt in (self, other))
            and all(prompt.command is None and prompt.origin is None for prompt in (self, other))
            and self.is_verbatim == other.is_verbatim
            and self.is_synthetic == other.is_synthetic
        )

    @classmethod
    def of(cls, frame: JsonObject) -> Prompt:
        """Of a `user` line, whose message is known to be one."""
        message = cast("JsonObject", frame["message"])
        priority, uuid = frame.get("priority"), frame.get("uuid")
        is_synthetic = frame.get("isSynthetic") is True
        return cls(
            content=cast("str | list[JsonObject]", message.get("content")),
            uuid=uuid if isinstance(uuid, str) else None,
            priority=priority if priority in _ORDER else "next",
            should_query=frame.get("shouldQuery") is not False,
            is_verbatim=frame.get("client_composed") is True,
            is_synthetic=is_synthetic,
            origin={"kind": "unclassified"} if is_synthetic else None,
        )


class PromptQueue:
    """Prompts in the order in which they will be taken up."""

    def __init__(self) -> None:
        self._waiting: list[Prompt] = []
        self._seen: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def uuids(self) -> list[str]:
        return [prompt.uuid for prompt in self._waiting if prompt.uuid is not None]

    @property
    def is_urgent(self) -> bool:
        """Whether one waits that ends the turn before it."""
        return any(prompt.priority == "now" for prompt in self._waiting)

    def add(self, prompt: Prompt) -> bool:
        """Add one; false for one whose uuid was seen before, which is dropped."""
        if prompt.uuid is not None:
            if prompt.uuid in self._seen:
                return False
            self._seen[prompt.uuid] = None
            if len(self._seen) > _REMEMBERED:
                del self._seen[next(iter(self._seen))]
        self._waiting.append(prompt)
        self._waiting.sort(key=lambda each: _ORDER[each.priority])
        return True

    def take(self, *, alone: bool = False) -> list[Prompt]:
        """The prompts of the next turn: those that go together, or only the first."""
        if not self._waiting:
            return []
        batch = [self._waiting.pop(0)]
        while not alone and self._waiting and batch[0].goes_with(self._waiting[0]):
            batch.append(self._waiting.pop(0))
        return batch

    def take_folded(self) -> list[Prompt]:
        """The prompts that the running turn takes up between two rounds."""
        folded = [
            prompt
            for prompt in self._waiting
            if prompt.priority == "next" and prompt.should_query and prompt.command is None
        ]
        self._waiting = [prompt for prompt in self._waiting if prompt not in folded]
        return folded

    def cancel(self, uuid: str) -> bool:
        """Take one back."""
        left = [prompt for prompt in self._waiting if prompt.uuid != uuid]
        is_found = len(left) < len(self._waiting)
        self._waiting = left
        return is_found

    def clear(self) -> list[str]:
        """Take all back that have a uuid; gives these."""
        uuids = self.uuids
        self._waiting = [prompt for prompt in self._waiting if prompt.uuid is None]
        return uuids


def joined(prompts: list[Prompt]) -> str | list[JsonObject]:
    """One content for several prompts."""
    if all(isinstance(prompt.content, str) for prompt in prompts):
        return "\n".join(cast("str", prompt.content) for prompt in prompts)
    blocks: list[JsonObject] = []
    for prompt in prompts:
        content = prompt.content
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return blocks
