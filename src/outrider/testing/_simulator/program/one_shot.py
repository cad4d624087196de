"""Owns the print modes of the program: one prompt, and an answer as text, as one JSON value, or as frames.

The turn itself is the same as in a streaming session.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from outrider.testing._simulator.program.invocation import Invocation, StartFailed
from outrider.testing._simulator.turn import Prompt

if TYPE_CHECKING:
    from outrider.testing._simulator.host.line import Streams
    from outrider.testing._simulator.run import Run
    from outrider.wire import JsonObject

__all__ = ["PrintMode", "read_prompt"]

_NO_INPUT = "Error: Input must be provided either through stdin or as a prompt argument when using --print"


async def read_prompt(invocation: Invocation, streams: Streams) -> str:
    """The prompt: the argument, and what is on stdin. Raises `StartFailed` if there is none."""
    pieces: list[bytes] = []
    while data := await streams.receive():
        pieces.append(data)
    piped = b"".join(pieces).decode("utf-8", "replace").strip()
    prompt = "\n".join(part for part in (invocation.prompt, piped) if part)
    if not prompt:
        raise StartFailed(_NO_INPUT)
    return prompt


class PrintMode:
    """One prompt, answered in the form that was asked for."""

    def __init__(self, run: Run, streams: Streams) -> None:
        self._run, self._streams = run, streams
        self._frames: list[JsonObject] = []

    async def main(self, prompt: str) -> int:
        """Answer it; gives the exit code."""
        run = self._run
        form = run.invocation.output_format
        run.begin_one_shot(self._take, Prompt(content=prompt))
        code = await run.main()
        if form == "text":
            self._write_text()
        elif form == "json":
            self._write_json()
        await self._streams.drain()
        return code

    def _take(self, frame: JsonObject) -> None:
        if self._run.invocation.output_format == "stream-json":
            self._streams.write(_line(frame))
        else:
            # Of a list, the last result tells what all have used.
            self._frames.append({key: frame[key] for key in frame if key != "model_usage_since_last_result"})

    def _results(self) -> list[JsonObject]:
        return [frame for frame in self._frames if frame.get("type") == "result"]

    def _write_text(self) -> None:
        for result in self._results()[-1:]:
            text = result.get("result")
            if not isinstance(text, str):
                text = f"Execution error: {', '.join(map(str, result.get('errors', ())))}"
            self._streams.write(text.encode() + b"\n")

    def _write_json(self) -> None:
        if self._run.invocation.verbose:
            self._streams.write(_line(self._frames))
        else:
            for result in self._results()[-1:]:
                self._streams.write(_line(result))


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
