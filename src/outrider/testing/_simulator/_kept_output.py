"""Owns results of tools that are too long for the model: the whole goes to a file, the model sees its start.

Does not decide what is too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outrider.testing._simulator._tool_results import kilobytes

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.testing._simulator._world import Surroundings

__all__ = ["keep", "preview"]

_PREVIEW: Final = 2_000


def keep(run: Surroundings, name: str, raw: bytes) -> Path:
    """Put a result beside the session's transcript."""
    folder = run.transcript_path.with_suffix("") / "tool-results"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.txt"
    path.write_bytes(raw)
    return path


def preview(text: str, path: Path, size: int) -> str:
    """What the model is told instead."""
    start = text[:_PREVIEW]
    if "\n" in start:
        start = start[: start.rindex("\n")]
    return (
        f"<persisted-output>\nOutput too large ({kilobytes(size)}). Full output saved to: {path}\n\n"
        f"Preview (first 2KB):\n{start}\n...\n</persisted-output>"
    )
