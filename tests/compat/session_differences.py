"""Where `outrider.compat` does not answer as the reference does, and why. All else is the same."""

from __future__ import annotations

from tests.compat.kept_sessions import CAPITALS
from tests.transcripts.lines import session_id

__all__ = ["DIFFERENCES"]

_EVERYTHING = session_id(30)

DIFFERENCES: dict[str, list[str]] = {
    "A tag counts wherever it stands in the line, and in the file: the reference looks for lines that begin "
    'with {"type":"tag", in the last 64 KiB only.': [
        "odd lists: get_session_info(tag with fields before)",
        "odd lists: get_session_info(spaced JSON)",
        "odd lists: get_session_info(title at the beginning)",
    ],
    "Fields that are empty, or no time, do not hide what a later line says.": [
        "odd lists: get_session_info(empty cwd)",
        "odd lists: get_session_info(bad time)",
        "nothing: fold_session_summary(empty branch)",
    ],
    "A session was created when its own first line was written; a time within another object (a snapshot of "
    "files) is none of it.": ["odd lists: get_session_info(file history first)"],
    "A session is listed even if its first line is longer than 64 KiB or has a byte order mark; the "
    "reference does not see it.": [
        "odd lists: get_session_info(BOM)",
        "odd lists: get_session_info(long first line)",
        "odd lists: get_session_info(long first line that is no prompt)",
    ],
    "What can be read of a damaged conversation is read: the reference gives nothing for lines that name "
    "each other in a circle, and dies of a byte that is no UTF-8.": [
        "said: get_session_messages(cycle)",
        "said: get_session_messages(all in a cycle)",
        "said: get_session_messages(bad bytes)",
        "said: get_session_messages(flags of other types)",
    ],
    "The conversation that was used last is given, though a line of a subagent follows it: the reference "
    "gives another branch.": ["said: get_session_messages(branches and sidechains)"],
    "Lines in an order that no program writes: an id twice, a parent that stands after its child, one answer "
    "in two places. A parent has to stand before its child, so that the end of a file tells what was said "
    "last.": [
        "said: get_session_messages(parent below)",
        *(f"said: get_session_messages(made up {seed})" for seed in (0, 14, 16, 21, 25, 29, 34, 35)),
    ],
    "Of calls that ran side by side in a subagent, all results are given: the reference drops all but one.": [
        f"places: get_subagent_messages('{_EVERYTHING}', 'parallel')",
    ],
    "The id of a session is in small letters, and found in either.": [
        f"odd places: get_session_info('{CAPITALS}')",
        f"odd places: get_session_info('{CAPITALS.lower()}')",
        f"odd places: get_session_messages('{CAPITALS.lower()}')",
        "odd places: list_sessions(plain)",
    ],
    "The key of a folder is the program's own: it counts in UTF-16 units, so that characters outside of the "
    "first plane are two.": [
        "odd places: list_sessions(wide)",
        "nothing: project_key_for_directory(/srv/😀6)",
    ],
    "Long paths whose first 200 characters are the same: the sessions of this folder are given, whichever "
    "checksum their folder has, and those of another are not.": [
        "odd places: list_sessions(long)",
        "odd places: list_sessions(longer)",
        "odd places: get_session_info(23, long)",
        "odd places: get_session_info(24, long)",
        "places: list_sessions(/srv/long/long/long/long/long/long/long/307)",
    ],
    "What is added after half a line that a killed program left stands on a line of its own: in the "
    "reference it is lost, with that line.": ["changed: rename_session(2)", "changed: tag_session(2)"],
    "A session in which nobody said anything cannot be forked: the program could not resume the fork.": [
        "changed: fork_session(11)"
    ],
    "A session with damaged lines, or a damaged note on a subagent, is imported without these: the reference "
    "stops in the middle.": [f"imported: whole import_session_to_store({number})" for number in (30, 32, 33)],
    "A batch that is sent again, as its answer got lost, is kept once, and no entries make no session.": [
        "nothing: InMemorySessionStore(the same again)",
        "nothing: InMemorySessionStore(no entries)",
    ],
}
"""By reason: the names of the cases."""
