"""Where the simulated agent is not as the program, on purpose: each with its place and its reason.

Out of scope, so that no scenario is about it: what tools other than Bash, Read, Write and Edit do, MCP
servers that are not in the host and what they ask the user, where a `cd` leads the next command, how long
the program waits for subagents after the end of its input, commands that move to the background by
themselves, pictures and notebooks that are read, one-shot runs, how the program judges commands, files and
sites, commands with a slash other than `/clear`, and requests that only tell of the program itself, for
dialogs. Rules count here by the name of a tool, and for Bash by the text of the command; settings files are
not read; `auto` asks as `default` does. The script gives the results of other tools; `RealAgent` has the
program's own judgement.

An entry that is no longer needed fails the tests, as does a difference that has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from tests.conformance.golden import Deviation

__all__ = ["DIFFERENCES", "Difference", "judge"]


class Difference(NamedTuple):
    """Something that is meant to differ."""

    scenarios: tuple[str, ...]
    """Where it is: in each of these it must be."""
    frame: str
    """In what sort of frame; `*` stands for anything."""
    key: str
    """At which keys; empty for the whole frame."""
    reason: str

    def explains(self, name: str, deviation: Deviation) -> bool:
        return (
            name in self.scenarios
            and fnmatchcase(deviation.frame, self.frame)
            and fnmatchcase(deviation.key, self.key)
        )


DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        ("a_tool_for_later_that_is_allowed_then", "a_tool_of_the_host_for_later"),
        "result/success",
        "num_turns",
        "the program counts what is in its file when a call is deferred once more",
    ),
    Difference(
        ("one_shot", "partial_messages", "usage_adds_up", "only_some_tools", "requests_that_change_nothing"),
        "system/init",
        "messaging_socket_path",
        "nobody can send it messages from outside",
    ),
    Difference(
        (
            *("tools_of_the_host", "a_server_that_is_configured", "permission_for_a_tool_of_the_host"),
            "servers_that_come_and_go",
            "a_tool_of_the_host_for_later",
        ),
        "control_request/mcp_message initialize",
        "request.message.params.clientInfo.description",
        "it does not describe itself as the product that it plays",
    ),
    Difference(
        ("an_error_last_is_the_exit_code", "no_such_model"),
        "request main",
        "",
        "the program tries some failures again without telling of it; here one step is one failure",
    ),
    Difference(
        ("a_hook_that_fails", "a_hook_that_fails_and_blocks"),
        "run",
        "stderr",
        "the program shows lines of its own source there",
    ),
    Difference(
        ("a_subagent", "a_subagent_with_hooks_and_text", "a_tool_of_a_subagent_for_later"),
        "user/tool_result",
        "tool_use_result.harness*",
        "what a subagent says is handed over without notes for the model",
    ),
    Difference(
        ("a_subagent", "a_subagent_with_hooks_and_text", "a_tool_of_a_subagent_for_later"),
        "user/tool_result",
        "*content*",
        "what a subagent says is handed over without notes for the model",
    ),
    Difference(
        ("a_subagent", "a_subagent_with_hooks_and_text", "a_tool_of_a_subagent_for_later"),
        "request main",
        "tool_results*",
        "what a subagent says is handed over without notes for the model",
    ),
    Difference(
        ("mirrored",),
        "run",
        "mirrored.*",
        "of the program's own bookkeeping in sessions, only what they are gone on with by is kept",
    ),
    Difference(
        ("tools_of_the_host",),
        "user/tool_result",
        "message.content*",
        "the model knows the schemas of all tools: there is no need to tell it of one that it got wrong",
    ),
    Difference(
        ("tools_of_the_host",),
        "request main",
        "tool_results*",
        "the model knows the schemas of all tools: there is no need to tell it of one that it got wrong",
    ),
    Difference(
        ("a_subagent_with_hooks_and_text",),
        "assistant/tool_use of a subagent",
        "",
        "the call of a subagent is shown before its hooks are asked, as that of the main conversation is",
    ),
    Difference(
        ("requests_that_are_refused",),
        "control_response no-subtype",
        "response.error*",
        "a request without a subtype is told to be that",
    ),
    Difference(
        ("a_prompt_that_is_too_long",),
        "assistant/text",
        "message.content*",
        "the program guesses why a short conversation is too long",
    ),
    Difference(
        ("a_prompt_that_is_too_long",),
        "result/success",
        "result",
        "the program guesses why a short conversation is too long",
    ),
    Difference(
        ("three_prompts_at_once",),
        "command_lifecycle/started",
        "",
        "lines that arrive together are all read before the first of them is acted on",
    ),
    Difference(
        ("questions",),
        "*",
        "tool_*",
        "what is wrong with questions is told in plain words, not as the answer of a library",
    ),
    Difference(
        ("bad_values",),
        "run",
        "stderr",
        "what is wrong with a schema is not told in the words of a parser of JavaScript",
    ),
)


def judge(
    name: str, deviations: Iterable[Deviation], known: Iterable[Difference] = DIFFERENCES
) -> tuple[list[Deviation], list[Difference]]:
    """What nobody has explained, and what was explained for nothing."""
    found = list(deviations)
    meant = [difference for difference in known if name in difference.scenarios]
    unexplained = [each for each in found if not any(difference.explains(name, each) for difference in meant)]
    unneeded = [
        difference for difference in meant if not any(difference.explains(name, each) for each in found)
    ]
    return unexplained, unneeded
