"""The sandbox that the agent runs its shell commands in, as a value.

Does not say how it reaches the agent: it has no flag and travels in the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from outrider.options._part import Part, part_reader
from outrider.options._readers import Reader, json_object, listed, mapped, optional, switch, text, whole

_switch = optional(switch)
_texts = optional(listed(text))
_port = optional(whole(1, 65535))


class SandboxNetwork(Part, frozen=True, kw_only=True, rename="camel"):
    """What a sandboxed command may reach. None of a field: as the agent decides."""

    allowed_domains: tuple[str, ...] | None = None
    denied_domains: tuple[str, ...] | None = None
    allow_managed_domains_only: bool | None = None
    allow_unix_sockets: tuple[str, ...] | None = None
    allow_all_unix_sockets: bool | None = None
    allow_local_binding: bool | None = None
    allow_mach_lookup: tuple[str, ...] | None = None
    http_proxy_port: int | None = None
    socks_proxy_port: int | None = None
    extra: Mapping[str, object] = {}
    """Further keys, as the agent spells them; they win over the fields."""

    _readers: ClassVar[Mapping[str, Reader]] = {
        **dict.fromkeys(
            ("allowed_domains", "denied_domains", "allow_unix_sockets", "allow_mach_lookup"), _texts
        ),
        **dict.fromkeys(
            ("allow_managed_domains_only", "allow_all_unix_sockets", "allow_local_binding"), _switch
        ),
        **dict.fromkeys(("http_proxy_port", "socks_proxy_port"), _port),
        "extra": json_object,
    }


class SandboxFilesystem(Part, frozen=True, kw_only=True, rename="camel"):
    """Which folders a sandboxed command may use, beyond what the agent's own rules say."""

    allow_write: tuple[str, ...] | None = None
    deny_write: tuple[str, ...] | None = None
    allow_read: tuple[str, ...] | None = None
    """Exceptions from `deny_read`."""
    deny_read: tuple[str, ...] | None = None
    extra: Mapping[str, object] = {}
    """Further keys, as the agent spells them; they win over the fields."""

    _readers: ClassVar[Mapping[str, Reader]] = {
        **dict.fromkeys(("allow_write", "deny_write", "allow_read", "deny_read"), _texts),
        "extra": json_object,
    }


class Sandbox(Part, frozen=True, kw_only=True, rename="camel"):
    """How shell commands of the agent are confined. None of a field: as the agent decides."""

    enabled: bool | None = None
    fail_if_unavailable: bool | None = None
    """Refuse to run rather than run unconfined. On unless said otherwise, as soon as `enabled` is."""
    auto_allow_bash_if_sandboxed: bool | None = None
    """A sandboxed command needs no permission."""
    excluded_commands: tuple[str, ...] | None = None
    """Commands that run outside of it."""
    allow_unsandboxed_commands: bool | None = None
    """The agent may ask to run a command outside of it."""
    enable_weaker_nested_sandbox: bool | None = None
    """Do with less where it cannot be had whole, as in an unprivileged container."""
    network: SandboxNetwork | None = None
    filesystem: SandboxFilesystem | None = None
    ignore_violations: dict[str, tuple[str, ...]] | None = None
    """By command pattern, or `*` for all: texts of violations that are not reported."""
    extra: Mapping[str, object] = {}
    """Further keys, as the agent spells them; they win over the fields."""

    _readers: ClassVar[Mapping[str, Reader]] = {
        **dict.fromkeys(
            (
                "enabled",
                "fail_if_unavailable",
                "auto_allow_bash_if_sandboxed",
                "allow_unsandboxed_commands",
                "enable_weaker_nested_sandbox",
            ),
            _switch,
        ),
        "excluded_commands": _texts,
        "network": optional(part_reader(SandboxNetwork)),
        "filesystem": optional(part_reader(SandboxFilesystem)),
        "ignore_violations": optional(mapped(text, listed(text))),
        "extra": json_object,
    }
