"""Every option has the effect on the wire that it has in the reference SDK."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider import compat
from scripts.reference_options import Effects, effects, kept, reference_effects
from tests.compat.option_cases import cases, lay_out
from tests.compat.scripts import reference_python

REFERENCE = kept()
GROUPS = sorted({name.partition(":")[0] for name in REFERENCE})

_EARLY = "the program would refuse it, or leave it out without a word: said before anything is started"
_NONE_THERE = "there is nothing to go on with, nor to copy: the program begins a new session either way"
_SANDBOX = "said, because the opposite is Outrider's own default"
_STATE = "what another SDK reads is not what this one does"
_PROMPT = "the ids that the program would take for these are written out"
_LIMIT = "we decide what a slow hook means: the program is told to wait a little longer than we do"
_AWAIT = (
    "a session that is gone on with waits for its hooks; in the reference, a deferred call may get past them"
)
_STORE = "a session is resumed from its store: one that is not there is an error, said early"

EXPLAINED = {
    # Refused early.
    "tools: allowed, half a rule / error": "it would swallow the rules after it",
    "mcp_servers: an unknown type / error": _EARLY,
    "mcp_servers: a URL without a type / error": _EARLY,
    "mcp_servers: no command / error": _EARLY,
    "model: turns below 0 / error": _EARLY,
    "model: no budget / error": _EARLY,
    "model: no tokens / error": _EARLY,
    "model: effort in capitals / error": _EARLY,
    "thinking: unknown / error": _EARLY,
    "settings: broken JSON / error": _EARLY,
    "settings: unknown source / error": _EARLY,
    "sessions: id that is none / error": _EARLY,
    "sessions: id and resume / error": _EARLY,
    "sessions: from a message, no turn / error": _EARLY,
    "sessions: from a message of nothing / error": _EARLY,
    "sessions: drops a turn alone / error": _EARLY,
    "agents: empty texts / error": "the model could not choose it, and it would not know what to do",
    "extra_args: one letter / error": _EARLY,
    "extra_args: no number / error": _EARLY,
    "stores: an unknown session / error": _STORE,
    "stores: an unknown title / error": _STORE,
    # Taken, where the reference fails.
    "none: allowed_tools is None / error": "as all other lists are",
    "thinking: enabled without a budget / error": "the program decides then",
    "output: buffer of nothing / error": "with no room at all nothing could be read: it is no limit",
    # The same, said in another way.
    "tools: tuples / --tools": "a tuple is a list of names, not the preset",
    "system_prompt: preset and nothing / --append-system-prompt": "it adds nothing",
    "model: the same twice / --fallback-model": "to fall back to the same model is none",
    "sessions: continue, with nothing there / --continue": _NONE_THERE,
    "sessions: fork nothing / --fork-session": _NONE_THERE,
    "extra_args: switches / --continue": _NONE_THERE,
    "extra_args: switches / --fork-session": _NONE_THERE,
    "sessions: continue and resume / --continue": "the one that is named; the program would take the latest",
    "extra_args: there already / --print": "it prints without",
    "extra_args: prompt file / --system-prompt": "the file wins over an empty text",
    "extra_args: bypass / --dangerously-skip-permissions": "it is the permission mode of that name",
    "extra_args: bypass / --permission-mode": "it is the permission mode of that name",
    "places: cwd, with dots / env": "the same folder, as a shell would name it",
    "* / hook timeouts": _LIMIT,
    "* / --await-initialize": _AWAIT,
    "hooks: goes on / hooks": "the program goes on unless it is told otherwise",
    "hooks: empty matcher / hooks": "an empty matcher matches all, as none does",
    "settings: sandbox / --settings": _SANDBOX,
    "settings: sandbox and JSON / --settings": _SANDBOX,
    "settings: sandbox and file / --settings": _SANDBOX,
    "settings: sandbox and file beside cwd / --settings": _SANDBOX,
    "env: inherited / env": _STATE,
    "env: inherited, and options / env": _STATE,
    "env: own over inherited / env": _STATE,
    "env: state in small letters / env": "it is another variable",
    "stores: the latest of none / --continue": _NONE_THERE,
    "prompt: empty / prompts": "a block of text that is empty, which is the same",
    "prompt: messages / prompts": _PROMPT,
    "prompt: messages, verbatim / prompts": _PROMPT,
    "prompt: blocks / prompts": _PROMPT,
    "prompt: other keys / prompts": _PROMPT,
}
"""Differences that are meant, by case and effect."""


def _differences(theirs: Effects, ours: Effects) -> Iterator[str]:
    """The effects that differ. Beside an error that only one has, nothing else counts."""
    if theirs.get("error") != ours.get("error"):
        yield "error"
        return
    yield from (name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name))


def _explanation(difference: str) -> str:
    return difference if difference in EXPLAINED else f"* / {difference.rpartition(' / ')[2]}"


@pytest.mark.skipif(os.name == "nt", reason="the recording child begins with `#!`")
@pytest.mark.parametrize("group", GROUPS)
def test_an_option_has_the_effect_that_it_has_in_the_reference(group: str, tmp_path: Path) -> None:
    ours = asyncio.run(effects("outrider.compat", tmp_path, group=f"{group}:"))
    theirs = {name: case for name, case in REFERENCE.items() if name.startswith(f"{group}:")}
    assert ours.keys() == theirs.keys(), "run `python scripts/reference_options.py --write REFERENCE_PYTHON`"
    found = {
        f"{case} / {effect}": (theirs[case].get(effect), ours[case].get(effect))
        for case in theirs
        for effect in _differences(theirs[case], ours[case])
    }
    explained = {_explanation(difference) for difference in found} & EXPLAINED.keys()
    unexplained = {name: both for name, both in found.items() if _explanation(name) not in EXPLAINED}
    assert not unexplained, "these differ from the reference, and nothing says why"
    needless = {name for name in EXPLAINED if name.startswith(f"{group}:")} - explained
    assert not needless, "these do not differ from the reference any more"


def test_all_explanations_are_of_cases() -> None:
    assert {name.partition(":")[0] for name in EXPLAINED if not name.startswith("* / ")} <= set(GROUPS)


def test_every_option_is_in_a_case(tmp_path: Path) -> None:
    lay_out(tmp_path)
    used = {option for case in cases(compat, tmp_path).values() for option in case.options}
    never = {field.name for field in dataclasses.fields(compat.ClaudeAgentOptions)} - used
    assert never == {"debug_stderr", "user"}, (
        "the first means nothing, the second needs root and another user"
    )


def test_the_reference_does_what_is_kept_of_it() -> None:
    assert reference_effects(reference_python()) == REFERENCE
