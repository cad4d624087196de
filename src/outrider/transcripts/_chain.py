"""Finds the conversation in the entries of a transcript: which of them belong to it, and in which order.

Each entry names its parent, which stands earlier in the file, so the conversation is walked from its end. A
parent that is not found earlier ends the walk, so cycles do no harm, and the last messages of a long file are
found without reading the rest. Does not read files: `_disk` does.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from outrider.transcripts._entries import TranscriptEntry
    from outrider.wire import JsonObject

CHAINED: Final = frozenset(["user", "assistant", "system", "attachment", "progress"])
"""Types of the entries that follow each other."""

History: TypeAlias = Literal["compacted", "full"]
"""From where on a conversation is read: from the last time that it was compacted, or from its beginning."""

_SPOKEN: Final = frozenset(["user", "assistant"])
_BOUNDARY: Final = "compact_boundary"


def conversation(
    entries: Iterable[TranscriptEntry], *, history: History = "compacted", agent: bool = False
) -> list[TranscriptEntry]:
    """The messages of a conversation, first to last: the branch that was used last.

    Of calls that ran side by side, all are in it, with their results. Left out are what the program notes
    for itself, and the messages of subagents and of other agents of a team; in a subagent's own transcript
    (`agent`) its messages are what is wanted.

    Where it was compacted, a summary stands for what came before; with `full` history, what came before is
    there too, and the boundary (a `system` entry) between the two.
    """
    return _Walk([entry for entry in entries if is_chained(entry)], history, agent).messages()


def is_chained(entry: TranscriptEntry) -> bool:
    """Whether an entry follows another, or can be followed."""
    return entry.type in CHAINED and bool(entry.uuid)


def last_messages(
    chained: Sequence[TranscriptEntry], count: int, *, history: History = "compacted", agent: bool = False
) -> list[TranscriptEntry] | None:
    """The last messages of a conversation, from the entries at the end of its transcript that are chained;
    None if these are too few to tell."""
    walk = _Walk(chained, history, agent)
    found = walk.messages()
    return found[-count:] if walk.is_whole or walk.certain >= count else None


class _Run:
    """The entries of one answer of the model that are on the chain, last to first."""

    def __init__(self, message_id: str | None, anchor: int) -> None:
        self.message_id = message_id
        self.members = [anchor]
        self.start = -1
        """What belongs to it stands after this position."""

    @property
    def anchor(self) -> int:
        return self.members[0]


class _Walk:
    """A walk through entries, from the last message to the first one; positions are those in the list."""

    def __init__(self, chained: Sequence[TranscriptEntry], history: History, agent: bool) -> None:
        self._entries = chained
        self._is_full = history == "full"
        self._is_agent = agent
        self._places: dict[str, int] = {}
        """Where an entry is, by its uuid; the last one of those that are there again."""
        self._again: dict[str, list[int]] = {}
        """All places of those, in order."""
        for position, entry in enumerate(chained):
            uuid = entry.uuid or ""
            if uuid in self._places:
                self._again.setdefault(uuid, [self._places[uuid]]).append(position)
            self._places[uuid] = position
        self.is_whole = False
        """Whether the first entry of the conversation was reached: nothing before it counts."""
        self.certain = 0
        """How many of the last messages are certain even if it was not."""

    def messages(self) -> list[TranscriptEntry]:
        chain = self._chain()
        runs = self._runs(chain)
        beside = self._beside(chain, runs) if chain and len(chain) < len(self._entries) - chain[-1] else {}
        # What belongs to the first answer may stand before all that is known.
        unsure = runs[-1].anchor if runs else -1
        made: list[TranscriptEntry] = []
        for position in reversed(chain):
            made += self._shown([self._entries[position], *beside.get(position, ())])
            if position == unsure:
                self.certain = -len(made)
        self.certain += len(made) if runs else 0
        return made

    def _shown(self, entries: Iterable[TranscriptEntry]) -> list[TranscriptEntry]:
        return [
            entry
            for entry in entries
            if (entry.type in _SPOKEN and self._is_wanted(entry))
            or (self._is_full and entry.subtype == _BOUNDARY and entry.type == "system")
        ]

    def _is_wanted(self, entry: TranscriptEntry) -> bool:
        return not entry.is_meta and (self._is_agent or not (entry.is_sidechain or entry.team_name))

    def _chain(self) -> list[int]:
        """The positions of the entries that follow each other, last to first."""
        entries = self._entries
        position: int | None = next(
            (
                place
                for place in range(len(entries) - 1, -1, -1)
                if entries[place].type in _SPOKEN and self._is_wanted(entries[place])
            ),
            None,
        )
        chain: list[int] = []
        seen: set[str] = set()
        while position is not None:
            entry = entries[position]
            if (entry.uuid or "") in seen:
                self.is_whole = True
                break
            chain.append(position)
            seen.add(entry.uuid or "")
            parent = entry.parent_uuid
            if not parent and self._is_full and entry.subtype == _BOUNDARY:
                parent = entry.logical_parent_uuid
            if not parent:
                self.is_whole = True
                break
            position = self._before(parent, position)
        return chain

    def _before(self, uuid: str, position: int) -> int | None:
        """Where the last entry with this uuid is, before a position."""
        place = self._places.get(uuid)
        if place is None or place < position:
            return place
        places = self._again.get(uuid, ())
        index = bisect_left(places, position)
        return places[index - 1] if index else None

    # Calls that ran side by side: each block of an answer is an entry that follows the one before, and each
    # result follows the entry of its call, so that the chain goes through one of the results only.

    def _runs(self, chain: list[int]) -> list[_Run]:
        """The answers on the chain, last to first."""
        runs: list[_Run] = []
        for position in chain:
            entry = self._entries[position]
            if entry.type != "assistant":
                continue
            id = entry.message_id
            if runs and id is not None and id == runs[-1].message_id:
                runs[-1].members.append(position)
                continue
            if runs:
                runs[-1].start = position
            runs.append(_Run(id, position))
        if runs:
            runs[-1].start = chain[-1]
        return runs

    def _beside(self, chain: list[int], runs: list[_Run]) -> dict[int, list[TranscriptEntry]]:
        """What the chain leaves out of the answers on it: other calls and their results, by the position that
        they come after."""
        off = _OffChain(self._entries, chain, is_agent=self._is_agent)
        return {run.anchor: found for run in runs if run.message_id is not None and (found := off.take(run))}


class _OffChain:
    """The entries that are not on a chain, by what they may belong to."""

    def __init__(self, entries: Sequence[TranscriptEntry], chain: list[int], *, is_agent: bool) -> None:
        self._entries = entries
        self._chain = chain
        self._blocks: dict[str, list[int]] = {}
        """By the id of the answer."""
        self._followers: dict[str, list[int]] = {}
        """What was said in the user's role, by the entry that it follows."""
        self._results: dict[str, list[int]] = {}
        """The same, by the entry of the call."""
        self._used = {entries[place].uuid: place for place in chain}
        """Where entries have their place already, by uuid: on the chain, or beside it."""
        known = set(chain)
        for position in range(chain[-1], len(entries)):
            entry = entries[position]
            if position in known or (entry.is_sidechain and not is_agent):
                continue
            if entry.message_id is not None:
                self._blocks.setdefault(entry.message_id, []).append(position)
            elif entry.type == "user" and entry.parent_uuid:
                self._followers.setdefault(entry.parent_uuid, []).append(position)
                if entry.call_uuid is not None:
                    self._results.setdefault(entry.call_uuid, []).append(position)

    def take(self, run: _Run) -> list[TranscriptEntry]:
        """What belongs to an answer: calls, then results, each in the order of their times; at the same time,
        in that of the calls."""
        blocks = self._free(self._blocks.get(run.message_id or "", ()), run)
        members = dict.fromkeys(self._entries[place].uuid or "" for place in sorted([*run.members, *blocks]))
        results: list[int] = []
        strays: list[int] = []
        for uuid in members:
            results += [
                place
                for place in self._free(self._followers.get(uuid, ()), run)
                if _calls_answered(self._entries[place])
            ]
            strays += [
                place
                for place in self._free(self._results.get(uuid, ()), run)
                if self._entries[place].parent_uuid not in members
            ]
        results += self._still_open(sorted(strays), results, members, run)
        self._used |= {self._entries[place].uuid: place for place in (*blocks, *results)}
        return [
            self._entries[place]
            for places in (blocks, results)
            for place in sorted(places, key=lambda place: self._entries[place].written_at or "")
        ]

    def _free(self, places: Sequence[int], run: _Run) -> list[int]:
        """Those that may belong to an answer; of lines that are there again, the last."""
        found = {
            self._entries[place].uuid: place
            for place in places
            if place > run.start and self._used.get(self._entries[place].uuid, -1) <= run.start
        }
        return list(found.values())

    def _still_open(
        self, strays: list[int], results: list[int], members: dict[str, None], run: _Run
    ) -> list[int]:
        """Of results that follow something else, those of calls that have no other result."""
        if not strays:
            return []
        on_chain = [
            place
            for place in self._chain
            if place > run.start
            and (self._entries[place].call_uuid in members or self._entries[place].parent_uuid in members)
        ]
        answered = {id for place in (*on_chain, *results) for id in _calls_answered(self._entries[place])}
        found: list[int] = []
        for place in strays:
            ids = _calls_answered(self._entries[place])
            if not ids <= answered:
                found.append(place)
                answered |= ids
        return found


def _calls_answered(entry: TranscriptEntry) -> set[str]:
    """The ids of the calls whose results an entry has."""
    message = entry.raw.get("message")
    content = cast("JsonObject", message).get("content") if isinstance(message, dict) else None
    return {
        str(cast("JsonObject", block).get("tool_use_id"))
        for block in (cast("list[object]", content) if isinstance(content, list) else ())
        if isinstance(block, dict) and cast("JsonObject", block).get("type") == "tool_result"
    }
