"""Requests about how the session is set up, and about what it has used.

What the agent answers is in the `_answers_*` modules.
"""

from __future__ import annotations

from outrider.wire._value import JsonObject
from outrider.wire.control._answers import Acknowledged
from outrider.wire.control._answers_settings import (
    BinaryVersion,
    HooksListing,
    MemoryDialog,
    ModelList,
    OutputStylesReloaded,
    PermissionRules,
    PluginsReloaded,
    SandboxDialog,
    SettingsReport,
    SkillsDialog,
    SkillsReloaded,
    StatusReport,
)
from outrider.wire.control._answers_usage import ContextUsage, SessionCost, UsageReport
from outrider.wire.control._requests import Request


class ApplyFlagSettings(Request[Acknowledged], tag="apply_flag_settings"):
    """Changes settings for this process only. One bad value, and nothing is changed."""

    settings: JsonObject
    """Laid over the settings key by key; None takes a key away."""


class UpdateSettings(Request[Acknowledged], tag="update_settings"):
    """Writes to a settings file. Only a few keys are allowed, such as `outputStyle`."""

    source: str
    """`localSettings` or `userSettings`."""
    settings: JsonObject


class GetSettings(Request[SettingsReport], tag="get_settings"):
    """Asks for the settings, merged and by source, and for what was skipped."""

    answer = SettingsReport


class GetContextUsage(Request[ContextUsage], tag="get_context_usage"):
    """Asks what fills the context window."""

    answer = ContextUsage

    detail: str | None = None
    """`summary` is an estimate at once; `full`, the default, has the API count and takes a second."""


class GetUsage(Request[UsageReport], tag="get_usage"):
    """Asks what the session has used, and what the account has left."""

    answer = UsageReport

    skip_behaviors: bool | None = None
    """Do not scan the transcripts on this machine."""


class GetSessionCost(Request[SessionCost], tag="get_session_cost"):
    """Asks for the cost display."""

    answer = SessionCost


class ListModels(Request[ModelList], tag="list_models"):
    """Asks which models there are."""

    answer = ModelList


class GetBinaryVersion(Request[BinaryVersion], tag="get_binary_version"):
    """Asks which build of the program runs."""

    answer = BinaryVersion


class GetHooksListing(Request[HooksListing], tag="get_hooks_listing"):
    """Asks which hooks are set up."""

    answer = HooksListing


class ListPermissionRules(Request[PermissionRules], tag="list_permission_rules"):
    """Asks which permission rules are in force."""

    answer = PermissionRules


class ReloadPlugins(Request[PluginsReloaded], tag="reload_plugins"):
    """Loads plugins again, and with them commands, agents and servers."""

    answer = PluginsReloaded

    hold_on_cache_impact: bool | None = None
    """Do nothing if the prompt would have to be cached anew; say so instead."""
    add_plugins: list[JsonObject] | None = None
    refuse_if_busy: bool | None = None
    """Fail with `reload_plugins_busy` during a turn."""


class ReloadSkills(Request[SkillsReloaded], tag="reload_skills"):
    """Reads skills and commands again."""

    answer = SkillsReloaded


class ReloadOutputStyles(Request[OutputStylesReloaded], tag="reload_output_styles"):
    """Reads output styles again."""

    answer = OutputStylesReloaded


class GetStatus(Request[StatusReport], tag="get_status"):
    """Asks for the status display."""

    answer = StatusReport


class GetMemoryDialog(Request[MemoryDialog], tag="get_memory_dialog"):
    """Asks for what the memory dialog shows."""

    answer = MemoryDialog


class GetSkillsDialog(Request[SkillsDialog], tag="get_skills_dialog"):
    """Asks for what the skills dialog shows."""

    answer = SkillsDialog


class GetSandboxDialog(Request[SandboxDialog], tag="get_sandbox_dialog"):
    """Asks for what the sandbox dialog shows."""

    answer = SandboxDialog
