"""Changes inputs with an eye for their form: a value in a frame, or where lines begin and end.

Bytes changed at random hardly ever give another frame that is still JSON, so the codec would see little.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    3.0,
    1.5,
    10**30,
    float("nan"),
    float("-inf"),
    "",
    "text",
    "\ud800",
    "\x00",
    [],
    {},
    [None],
    [[]],
    [{}],
    {"type": "text"},
    {"type": "text", "text": 5},
    {"type": 5},
    {"": None},
    {"\ud800": "\udfff"},
    {"a": {"b": [1, {"c": None}]}},
)

SEAMS = (
    b"\n",
    b"\r\n",
    b"\r",
    b"",
    b" ",
    b"\n\n",
    b"\x00\n",
    b"\xef\xbb\xbf",
    b"noise ",
    b"{",
    b"}",
    b'"',
    b"\\",
)


def mutated(data: bytes, header_size: int, random: Random, words: list[str]) -> bytes:
    """Another input like this one; its header stays."""
    header, stream = data[:header_size], data[header_size:]
    for _ in range(random.randint(1, 3)):
        stream = random.choice(_WAYS)(stream, random, words)
    return header + stream


def _change_a_value(stream: bytes, random: Random, words: list[str]) -> bytes:
    lines = stream.split(b"\n")
    number = random.randrange(len(lines))
    try:
        frame = json.loads(lines[number])
    except (ValueError, RecursionError):
        return _change_a_seam(stream, random, words)
    holder: dict[str, Any] = {"": frame}
    _change_one(random, words, random.choice(list(_places(holder))))
    spaced = random.random() < 0.1
    text = json.dumps(
        holder[""], ensure_ascii=random.random() < 0.3, separators=None if spaced else (",", ":")
    )
    lines[number] = text.encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _places(value: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Every place in a JSON value, as what holds it and its key there."""
    places: list[tuple[Any, Any]] = []
    waiting: list[Any] = [value]
    while waiting:
        holder = waiting.pop()
        keys = holder if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            places.append((holder, key))
            waiting.append(holder[key])
    return places


def _change_one(random: Random, words: list[str], place: tuple[Any, Any]) -> None:
    holder, key = place
    match random.randrange(6):
        case 0 if key != "":
            del holder[key]
        case 1 if isinstance(holder, dict) and key != "":
            holder[random.choice(words)] = holder.pop(key)
        case 2 if isinstance(holder, dict) and key != "":
            holder[random.choice(words)] = random.choice(ODD_VALUES)
        case 3:
            holder[key] = random.choice(words)
        case 4:
            holder[key] = random.choice(
                ([holder[key]], {random.choice(words): holder[key]}, str(holder[key]))
            )
        case _:
            holder[key] = random.choice(ODD_VALUES)


def _change_a_seam(stream: bytes, random: Random, words: list[str]) -> bytes:
    """Put something between two bytes, mostly where a line ends."""
    ends = [place for place, byte in enumerate(stream) if byte == 0x0A]
    place = random.choice(ends) if ends and random.random() < 0.5 else random.randint(0, len(stream))
    rest = place + (random.random() < 0.5)
    return stream[:place] + random.choice(SEAMS) + stream[rest:]


def _move_a_line(stream: bytes, random: Random, words: list[str]) -> bytes:
    """Repeat a line, or a piece of one, elsewhere."""
    lines = stream.split(b"\n")
    line = random.choice(lines)
    begin = random.choice((0, 0, random.randint(0, len(line))))
    end = random.choice((len(line), len(line), random.randint(begin, len(line))))
    lines.insert(random.randint(0, len(lines)), line[begin:end])
    return b"\n".join(lines)


_WAYS: tuple[Callable[[bytes, Random, list[str]], bytes], ...] = (
    _change_a_value,
    _change_a_value,
    _change_a_value,
    _change_a_seam,
    _move_a_line,
)
