"""Fuzzes framing and codec: whatever the bytes and however they are cut, `outrider.wire` keeps its promises.

    make fuzz SECONDS=60
    python fuzz/fuzz_wire.py --reproduce FILE     # needs no atheris

Runs until libFuzzer's `-max_total_time`; everything that it finds on the way is kept in `build/fuzz/corpus`.
"""

from __future__ import annotations

import hashlib
import sys
from itertools import cycle
from pathlib import Path
from random import Random

ROOT = Path(__file__).parent.parent

try:
    import atheris
except ImportError:
    atheris = None

if atheris is None:
    import outrider.wire as wire
    from outrider.errors import MalformedFrame, MessageInvalid
else:
    with atheris.instrument_imports(include=["outrider.wire"]):
        import outrider.wire as wire

        # Imported on first use otherwise, which would be outside of this block.
        import outrider.wire._tolerant  # noqa: F401
    from outrider.errors import MalformedFrame, MessageInvalid

LIMITS = (None, 32, 100, 1000, 5000)
"""Sizes that a frame may have. All leave room for `LAST`."""

LAST = b'{"type":"keep_alive"}'
"""A frame that nothing before it may hide."""

MEANINGLESS = bytes(range(9, 14)) + b" \x00\xef\xbb\xbf"
"""White space, NUL and the byte order mark: what framing may drop around a frame."""


class Case:
    """A stream and how it arrives: limit, number of sizes, the sizes of chunks in turn, then the stream."""

    def __init__(self, data: bytes) -> None:
        self.limit = LIMITS[data[0] % len(LIMITS)] if data else None
        self.header_size = 2 + (data[1] % 8 if len(data) > 1 else 0)
        self.sizes = data[2 : self.header_size]
        self.stream = data[self.header_size :]

    def chunks(self) -> list[bytes]:
        # All sizes 0 would never get to the end.
        sizes = self.sizes if any(self.sizes) else b"\x01"
        chunks, position = list[bytes](), 0
        for size in cycle(sizes):
            if position >= len(self.stream):
                break
            chunks.append(self.stream[position : position + size])
            position += size
        return chunks


class Broken(Exception):
    """A promise did not hold."""


def check(data: bytes) -> None:
    """Raises for an input that breaks a promise."""
    case = Case(data)
    whole = read(case.limit, case.stream)
    chunked = read(case.limit, *case.chunks())
    if not same(whole, chunked):
        raise Broken(
            f"cutting the stream up changes what arrives:\n  whole   {whole!r}\n  chunked {chunked!r}"
        )
    nothing_is_lost(case.stream, whole)
    the_last_frame_arrives(case)
    for arrival in whole:
        if isinstance(arrival, wire.Frame):
            it_travels(arrival)
            it_travels_without_its_line(arrival)
        else:
            _ = repr(arrival), arrival.raw, repr(arrival.error())
    for line in (case.stream, *case.stream.split(b"\n")):
        decoding_is_strict_or_not(line)


def read(limit: int | None, *chunks: bytes) -> list[wire.Arrival]:
    framer = wire.Framer(limit)
    arrivals = [arrival for chunk in chunks for arrival in framer.feed(chunk)]
    return arrivals + framer.flush()


def same(one: list[wire.Arrival], other: list[wire.Arrival]) -> bool:
    return len(one) == len(other) and all(
        equal(a, b) and a.raw_json == b.raw_json for a, b in zip(one, other, strict=True)
    )


def equal(one: object, other: object) -> bool:
    # NaN is not equal to itself, but looks the same.
    return type(one) is type(other) and (one == other or repr(one) == repr(other))


def nothing_is_lost(stream: bytes, arrivals: list[wire.Arrival]) -> None:
    if any(isinstance(arrival, wire.OversizedMessage) for arrival in arrivals):
        return
    arrived = b"".join(arrival.raw_json for arrival in arrivals)
    if arrived.translate(None, MEANINGLESS) != stream.translate(None, MEANINGLESS):
        raise Broken(f"bytes are lost or added: {arrivals!r}")


def the_last_frame_arrives(case: Case) -> None:
    arrivals = read(case.limit, case.stream, b"\n" + LAST + b"\n")
    if not arrivals or arrivals[-1] != wire.decode(LAST) or arrivals[-1].raw_json != LAST:
        raise Broken(f"a whole frame at the end is not delivered last: {arrivals!r}")


def it_travels(frame: wire.Frame) -> None:
    _ = frame.raw
    try:
        line = wire.encode(frame)
    except MessageInvalid:
        return
    if b"\n" in line:
        raise Broken(f"a frame is encoded in several lines: {line!r}")
    again = wire.decode(line)
    if not equal(frame, again):
        raise Broken(
            f"a frame comes back changed:\n  sent     {frame!r}\n  as       {line!r}\n  received {again!r}"
        )


def it_travels_without_its_line(frame: wire.Frame) -> None:
    """A copy made by hand may come back mended where the original was damaged, but then it stays as it is."""
    try:
        mended = wire.decode(wire.encode(bare(frame)))
        again = wire.decode(wire.encode(bare(mended)))
    except MessageInvalid:
        return
    if not equal(mended, again):
        raise Broken(f"a frame changes at each trip:\n  first  {mended!r}\n  second {again!r}")


def bare(frame: wire.Frame) -> wire.Frame:
    return type(frame)(**{name: getattr(frame, name) for name in frame.__struct_fields__})


def decoding_is_strict_or_not(line: bytes) -> None:
    try:
        frame = wire.decode(line)
    except MalformedFrame:
        frame = None
    try:
        strict = wire.decode(line, strict=True)
    except MessageInvalid:
        return
    except MalformedFrame:
        strict = None
    if not equal(frame, strict):
        raise Broken(f"strict decoding gives another frame: {strict!r}, not {frame!r}")


def reproduce(path: Path) -> None:
    data = path.read_bytes()
    case = Case(data)
    print(f"limit   {case.limit}\nsizes   {list(case.sizes)}\nstream  {case.stream!r}", flush=True)
    check(data)
    print("nothing is wrong with it")


def fuzz(arguments: list[str]) -> None:
    if atheris is None:
        raise SystemExit("Fuzzing needs atheris: run `make fuzz`. Without it, --reproduce FILE works.")
    sys.path.insert(0, str(ROOT))
    from fuzz import mutation, seeds

    corpus = ROOT / "build" / "fuzz" / "corpus"
    dictionary = seeds.write(corpus)
    words = sorted(seeds.words())
    prefixes = [
        value for name, _, value in (item.partition("=") for item in arguments) if name == "-artifact_prefix"
    ]
    prefix = prefixes[-1] if prefixes else ""

    def check_and_tell(data: bytes) -> None:
        try:
            check(data)
        except BaseException:
            name = f"{prefix}crash-{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"
            print(
                f"\nFound something. To see it again: python fuzz/fuzz_wire.py --reproduce {name}", flush=True
            )
            raise

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.3:
            return atheris.Mutate(data, len(data))
        changed = mutation.mutated(data, Case(data).header_size, random, words)
        return changed if len(changed) <= max_size else atheris.Mutate(data, len(data))

    options = ["-max_len=4096", "-timeout=20", f"-dict={dictionary}"]
    atheris.Setup([sys.argv[0], *options, *arguments, str(corpus)], check_and_tell, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--reproduce"] and len(sys.argv) == 3:
        reproduce(Path(sys.argv[2]))
    else:
        fuzz(sys.argv[1:])
