"""Inputs of the built-in tools that bring in something from outside: the web, MCP resources, skills, plugins.

Does not hold the tools that servers bring with them (`mcp__…`): their inputs are known to the servers alone.
"""

from __future__ import annotations

from typing import Literal

from outrider.wire._value import Number, Value


class WebFetchInput(Value):
    """Loads a web page and has a question answered from it."""

    url: str
    prompt: str
    """What to find out from the page."""
    offset: int | None = None
    """Where to go on in a page that was too long."""


class WebSearchInput(Value):
    """Searches the web."""

    query: str
    allowed_domains: list[str] | None = None
    """Results from nowhere else."""
    blocked_domains: list[str] | None = None


class SkillInput(Value):
    """Loads a skill, or runs a command that is written as one."""

    skill: str
    args: str | None = None


class ToolSearchInput(Value):
    """Fetches the schemas of tools that the agent was told of by name only."""

    query: str
    """Words, or `select:` and names."""
    max_results: Number | None = None
    """The program takes 5 if left out."""


class ListMcpResourcesInput(Value):
    """Lists the resources that MCP servers offer."""

    server: str | None = None
    """Only those of this one."""


class ReadMcpResourceInput(Value):
    """Reads a resource of an MCP server."""

    server: str
    uri: str


class ReadMcpResourceDirInput(Value):
    """Lists what is in a resource that is a folder."""

    server: str
    uri: str


class ListConnectorsInput(Value):
    """Lists the connectors that are set up."""

    keywords: list[str] | None = None


class SearchMcpRegistryInput(Value):
    """Searches the registry of MCP servers."""

    keywords: list[str]


class SuggestConnectorsInput(Value):
    """Offers connectors to the person for setting up."""

    uuids: list[str]
    """Their ids in the registry."""


class ListPluginsInput(Value):
    """Lists the plugins that are installed."""

    keywords: list[str] | None = None


class SearchPluginsInput(Value):
    """Searches for plugins to install."""

    keywords: list[str]


class PluginSkill(Value):
    """A skill that a suggested plugin would bring."""

    name: str
    description: str | None = None


class SuggestedPlugin(Value, rename="camel"):
    """A plugin that the agent would have installed."""

    plugin_id: str
    plugin_name: str
    description: str
    skills: list[PluginSkill] | None = None


class SuggestPluginInstallInput(Value, rename="camel"):
    """Offers plugins to the person for installing."""

    context_label: str
    """What they would help with."""
    plugins: list[SuggestedPlugin]
    trigger: Literal["user_asked", "proactive"] | None = None


class ListSkillsInput(Value):
    """Lists the skills that are installed."""

    keywords: list[str] | None = None


class SearchSkillsInput(Value):
    """Searches for skills to install."""

    keywords: list[str]


class SuggestSkillsInput(Value, rename="camel"):
    """Offers skills to the person for installing."""

    keywords: list[str]
    context_label: str | None = None
    """What they would help with."""
    trigger: Literal["user_asked", "proactive"] | None = None
