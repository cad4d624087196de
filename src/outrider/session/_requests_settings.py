"""What a session can ask about its set-up and its consumption: settings, rules, plugins, usage, status.

Does not read settings files: the agent does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Literal, cast

from outrider.handlers._tool_names import resolved_settings
from outrider.options import LocalPlugin
from outrider.options._part import part_reader
from outrider.options._readers import choice, is_path, json_object, listed, path_text, switch
from outrider.session._requests_asking import UNSET, Asking, Timeout
from outrider.wire import JsonObject, control


class SettingsRequests(Asking):
    """The part of `Requests` that is about set-up and consumption."""

    # Settings.

    async def apply_settings(self, settings: Mapping[str, object], *, timeout: Timeout = UNSET) -> None:
        """Change settings for this session only.

        Keys are as in a settings file: `effortLevel`, `permissions`, … Each replaces what it was before; None
        takes it away. One bad value, and nothing is changed: the `RequestFailed` names it. In permission
        rules tools of yours may be named as in `allowed_tools`.
        """
        changes = cast(JsonObject, json_object("`settings`", settings))
        request = control.ApplyFlagSettings(resolved_settings("`settings`", changes, self._names_of_tools()))
        await self.request(request, timeout=timeout)

    async def update_settings(
        self, source: Literal["user", "local"], settings: Mapping[str, object], *, timeout: Timeout = UNSET
    ) -> None:
        """Write to a settings file, for this and later sessions.

        `setting_sources` must name it. Few keys are allowed: `outputStyle` in `local`, …
        """
        known = cast(str, choice("user", "local")("`source`", source))
        changes = cast(JsonObject, json_object("`settings`", settings))
        await self.request(control.UpdateSettings(f"{known}Settings", changes), timeout=timeout)

    async def settings_report(self, *, timeout: Timeout = UNSET) -> control.SettingsReport:
        """The settings in force, where each comes from, and which files were skipped."""
        return await self.request(control.GetSettings(), timeout=timeout)

    async def permission_rules(self, *, timeout: Timeout = UNSET) -> control.PermissionState:
        """The permission rules in force, and the directories of the workspace."""
        return (await self.request(control.ListPermissionRules(), timeout=timeout)).state

    async def hooks_listing(self, *, timeout: Timeout = UNSET) -> control.HooksListing:
        """The hooks that are set up, and the events there are."""
        return await self.request(control.GetHooksListing(), timeout=timeout)

    # What is loaded.

    async def reload_plugins(
        self,
        *,
        add: Iterable[LocalPlugin | str | PathLike[str]] = (),
        hold_on_cache_impact: bool = False,
        refuse_if_busy: bool = False,
        timeout: Timeout = UNSET,
    ) -> control.PluginsReloaded:
        """Load plugins again, and with them commands, agents and servers; `add` brings in more.

        `hold_on_cache_impact`: if the prompt would have to be cached anew, change nothing and say so in
        `held`. `refuse_if_busy`: fail with the code `reload_plugins_busy` during a turn.
        """
        added = _read_plugins("`add`", add if is_path(add) else list(add))
        request = control.ReloadPlugins(
            switch("`hold_on_cache_impact`", hold_on_cache_impact) or None,
            [_spelled(plugin) for plugin in cast("tuple[LocalPlugin, ...]", added)] or None,
            switch("`refuse_if_busy`", refuse_if_busy) or None,
        )
        return await self.request(request, timeout=timeout)

    async def reload_skills(self, *, timeout: Timeout = UNSET) -> list[control.SlashCommand]:
        """Read skills and commands again; gives back those there are now."""
        return (await self.request(control.ReloadSkills(), timeout=timeout)).skills

    async def reload_output_styles(self, *, timeout: Timeout = UNSET) -> list[str]:
        """Read output styles again; gives back the names of those there are now."""
        return (await self.request(control.ReloadOutputStyles(), timeout=timeout)).available_output_styles

    # Consumption.

    async def context_usage(
        self, *, detail: Literal["summary", "full"] | None = None, timeout: Timeout = UNSET
    ) -> control.ContextUsage:
        """What fills the context window.

        `summary` is an estimate at once; `full`, the default, has the API count everything.
        """
        wanted = None if detail is None else cast(str, choice("summary", "full")("`detail`", detail))
        return await self.request(control.GetContextUsage(wanted), timeout=timeout)

    async def usage_report(
        self, *, skip_behaviors: bool = False, timeout: Timeout = UNSET
    ) -> control.UsageReport:
        """What the session has used, and what the account has left.

        `skip_behaviors` saves the scan of the transcripts on the agent's machine.
        """
        skip = switch("`skip_behaviors`", skip_behaviors) or None
        return await self.request(control.GetUsage(skip), timeout=timeout)

    async def session_cost(self, *, timeout: Timeout = UNSET) -> str:
        """The cost of the session as a text for people; `usage_report` has the numbers."""
        return (await self.request(control.GetSessionCost(), timeout=timeout)).text

    # What the agent shows its users.

    async def binary_version(self, *, timeout: Timeout = UNSET) -> control.BinaryVersion:
        """Which build of the agent's program runs."""
        return await self.request(control.GetBinaryVersion(), timeout=timeout)

    async def status_report(self, *, timeout: Timeout = UNSET) -> control.StatusReport:
        """Facts about the session, in groups of lines for people."""
        return await self.request(control.GetStatus(), timeout=timeout)

    async def memory_dialog(self, *, timeout: Timeout = UNSET) -> control.MemoryDialog:
        """The instruction files and memories of the session."""
        return await self.request(control.GetMemoryDialog(), timeout=timeout)

    async def skills_dialog(self, *, timeout: Timeout = UNSET) -> list[control.SkillEntry]:
        """The skills there are, and what each costs in the context."""
        return (await self.request(control.GetSkillsDialog(), timeout=timeout)).skills

    async def sandbox_dialog(self, *, timeout: Timeout = UNSET) -> control.SandboxDialog:
        """Whether commands run in a sandbox, what it needs, and what it lets through."""
        return await self.request(control.GetSandboxDialog(), timeout=timeout)


_read_part = part_reader(LocalPlugin)


def _read_plugin(place: str, value: object) -> object:
    return LocalPlugin(path_text(place, value)) if is_path(value) else _read_part(place, value)


_read_plugins = listed(_read_plugin)


def _spelled(plugin: LocalPlugin) -> JsonObject:
    skipping: JsonObject = {"skipMcpDiscovery": True} if plugin.skip_mcp_discovery else {}
    return {"type": "local", "path": plugin.path} | skipping
