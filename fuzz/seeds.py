"""Writes what the fuzzer starts from: short lines of the real program, odd ones made up, and a dictionary.

By itself: `python fuzz/seeds.py FOLDER`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Started as a script, Python looks for modules in this folder and not in the one above.
sys.path.insert(0, str(ROOT))

from tests import recordings  # noqa: E402 - found only now

LONGEST = 700
"""Longer lines are left out: they slow the fuzzer down and show nothing that a short one does not."""

HEADERS = (bytes((0, 0)), bytes((1, 1, 7)), bytes((2, 3, 1, 64, 3)))
"""Ways to cut the stream up; see `fuzz_wire.Case`."""

ODD = (
    b"",
    b"\n\n\r\n \t\x00\n",
    b"warning: something happened\n",
    b'[SandboxDebug] {"type":"keep_alive"}\n',
    b'\xef\xbb\xbf{"type":"keep_alive"}\r\n',
    b'{"type":"keep_alive"}{"type":"keep_alive"}\n',
    b'{"type":"keep_alive"} and then\n',
    b'{"type":\n"keep_alive"\n}\n',
    b'{"type":"assistant","message":{"content":[{"type":"te\n{"type":"keep_alive"}\n',
    b'{"type":"stream_event","event":{"delta":{"text":"\xff\xfe"}},"uuid":"u","session_id":"s"}\n',
    b'{"type":"stream_event","event":{"delta":{"text":"\\ud83d"}},"uuid":"\\udc00","session_id":"s"}\n',
    b'{"type":"stream_event","event":[],"uuid":1,"session_id":null}\n',
    b'{"type":"result","subtype":"success","duration_ms":1e400,"total_cost_usd":NaN,"usage":{"a":-Infinity}}\n',
    b'{"type":"result","duration_ms":3.0,"num_turns":18446744073709551616,"is_error":1}\n',
    b'{"type":"user","message":{"role":"user","content":"text"}}\n',
    b'{"type":"user","message":{"role":"user","content":[{"type":"new"},7,null,{"type":"text"}]}}\n',
    b'{"type":"assistant","message":{"content":"text","model":5}}\n',
    b'{"type":"system"}\n{"type":"system","subtype":"new"}\n{"type":"system","subtype":7}\n',
    b'{"type":"new","x":[[[[{"a":{}}]]]]}\n',
    b'{"type":"keep_alive","type":"result"}\n',
    b'{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool"}}\n',
    b'{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","resetsAt":1.0,"new":[]},"uuid":"u"}\n',
    b'{"type":"rate_limit_event","rate_limit_info":7}\n',
    b'{"type":"auth_status","isAuthenticating":true,"output":["a",1]}\n{"type":"active_goal","value":{}}\n',
    b'{"type":"tool_use_summary","summary":"s"}\n{"type":"prompt_suggestion","suggestion":"s"}\n',
    b'{"type":"autocompact_state"}\n{"type":"update_environment_variables","variables":{"a":"b"}}\n',
    b'{"a":"\x01\t"}\n',
    b'{"type":"new","a":' + b"[" * 1200 + b"]" * 1200 + b"}\n",
    b'"text"\n17\nnull\n[]\n{}\n',
    b"[" * 300 + b"\n" + b'{"a":' * 300 + b"\n",
)


def recorded() -> Iterator[bytes]:
    """The shortest line of each kind in the recordings, from either side."""
    shortest: dict[tuple[str, ...], bytes] = {}
    for name in recordings.NAMES:
        for record in recordings.read(name):
            if not isinstance(record.frame, dict):
                continue
            kind = _kind(record.frame)
            if len(record.line) < len(shortest.get(kind, b" " * LONGEST)):
                shortest[kind] = record.line
    yield from shortest.values()


def _kind(frame: dict[str, object]) -> tuple[str, ...]:
    """What tells lines apart: their type, that of the request or event in them, those of their blocks."""
    kind = [str(frame.get("type")), str(frame.get("subtype"))]
    for inner in ("request", "response", "event", "message"):
        value = frame.get(inner)
        if isinstance(value, dict):
            kind += [str(value.get("subtype")), str(value.get("type"))]
            content = value.get("content")
            if isinstance(content, list):
                kind += [str(block.get("type")) for block in content if isinstance(block, dict)]
    return tuple(kind)


def bodies() -> Iterator[bytes]:
    """Streams to begin with."""
    yield from ODD
    before = b""
    for line in recorded():
        yield line + b"\n"
        if len(before) + len(line) < LONGEST:
            yield before + b"\n" + line[: len(line) // 2] + b"\n" + line
        before = line


def words() -> set[str]:
    """Every key, and every value that looks like a name, of the recorded lines."""
    found: set[str] = set()

    def collect(value: object) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                found.add(key)
                collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)
        elif isinstance(value, str) and value.isidentifier():
            found.add(value)

    for line in recorded():
        collect(json.loads(line))
    return {word for word in found if len(word) <= 40 and word.isascii() and word.isidentifier()}


def write(folder: Path) -> Path:
    """Fill the folder; gives back where the dictionary is, next to it."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, body in enumerate(bodies()):
        seed = HEADERS[number % len(HEADERS)] + body
        (folder / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    dictionary = folder.with_suffix(".dict")
    entries = [f'"\\"{word}\\""' for word in sorted(words())]
    entries += [r'"\x0a"', r'"\x0d\x0a"', r'"\xef\xbb\xbf"', r'"\\u"', r'"\\ud800"', '"NaN"', '"1e999"']
    dictionary.write_text("\n".join(entries) + "\n", encoding="ascii")
    return dictionary


if __name__ == "__main__":
    write(Path(sys.argv[1]))
