"""Owns the reading of JSON that others made, with types: what is not as expected counts as not there.

Does not decode text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from outrider.wire import Json, JsonObject

__all__ = ["as_list", "as_object", "blocks_of"]


def as_object(value: object) -> JsonObject:
    """An object; an empty one for anything else."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Json]:
    """A list; an empty one for anything else."""
    return cast("list[Json]", value) if isinstance(value, list) else []


def blocks_of(message: Mapping[str, object]) -> list[JsonObject]:
    """The content blocks of a message; none if its content is a text."""
    return [as_object(block) for block in as_list(message.get("content")) if isinstance(block, dict)]
