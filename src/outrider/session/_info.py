"""What the agent says about itself: its tools, commands, models, account, and the session that it is in.

Follows the messages that change it; does not ask for anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from outrider.wire import (
    CommandsChangedMessage,
    ConversationResetMessage,
    InitMessage,
    SessionTitleChangedMessage,
    StatusMessage,
)
from outrider.wire.control import (
    AccountInfo,
    AgentInfo,
    Initialized,
    ModelInfo,
    ModelSet,
    PermissionModeSet,
    SlashCommand,
)

if TYPE_CHECKING:
    from typing import Self

    from outrider.wire import Message
    from outrider.wire.shapes import SystemInitMcpServer, SystemInitPlugin
else:
    # Plain dicts, which keep what no shape names.
    SystemInitMcpServer = SystemInitPlugin = dict


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The session as the agent last described it. A value: a change makes a new one.

    Some of it is known after the start, the rest (`tools`, `mcp_servers`, `skills`, `plugins`, `cwd`,
    `session_id`) when the first turn begins.
    """

    session_id: str | None = None
    version: str | None = None
    """The version of Claude Code."""
    model: str | None = None
    permission_mode: str | None = None
    cwd: str | None = None
    title: str | None = None
    output_style: str = ""
    capabilities: tuple[str, ...] = ()
    """What the program can do. Look here, not at its version."""
    commands: tuple[SlashCommand, ...] = ()
    """Slash commands and skills that can be called."""
    agents: tuple[AgentInfo, ...] = ()
    models: tuple[ModelInfo, ...] = ()
    account: AccountInfo = msgspec.field(default_factory=AccountInfo)
    tools: tuple[str, ...] = ()
    mcp_servers: tuple[SystemInitMcpServer, ...] = ()
    """As they stood when the last turn began; `mcp_status` asks for their state."""
    skills: tuple[str, ...] = ()
    plugins: tuple[SystemInitPlugin, ...] = ()
    output_styles: tuple[str, ...] = ()
    pid: int | None = None
    """Of the agent, as it sees itself: on its own machine, in its own container."""
    initialized: Initialized | None = None
    """The whole answer to the first request."""
    init: InitMessage | None = None
    """The whole message with which the last turn began."""

    def supports(self, capability: str) -> bool:
        """Whether the program names this capability."""
        return capability in self.capabilities

    def with_initialized(self, answer: Initialized) -> Self:
        """After the answer to `initialize`."""
        return msgspec.structs.replace(
            self,
            initialized=answer,
            version=answer.claude_code_version or self.version,
            permission_mode=answer.current_permission_mode or self.permission_mode,
            output_style=answer.output_style or self.output_style,
            output_styles=tuple(answer.available_output_styles),
            capabilities=tuple(answer.capabilities or self.capabilities),
            commands=tuple(answer.commands),
            agents=tuple(answer.agents),
            models=tuple(answer.models),
            account=answer.account,
            pid=answer.pid if answer.pid is not None else self.pid,
        )

    def with_answer(self, answer: object) -> Self:
        """After the answer to a request; the same one if it changes nothing.

        The message that reports the change comes later, that of a model not before the next turn.
        """
        if isinstance(answer, ModelSet) and answer.model:
            return msgspec.structs.replace(self, model=answer.model)
        if isinstance(answer, PermissionModeSet) and answer.mode:
            return msgspec.structs.replace(self, permission_mode=answer.mode)
        return self

    def with_message(self, message: Message) -> Self:
        """After a message; the same one if it changes nothing."""
        if isinstance(message, InitMessage):
            return self._with_init(message)
        if isinstance(message, CommandsChangedMessage):
            commands = tuple(SlashCommand.from_wire(command) for command in message.commands)
            return msgspec.structs.replace(self, commands=commands)
        if isinstance(message, StatusMessage) and message.permission_mode:
            return msgspec.structs.replace(self, permission_mode=message.permission_mode)
        if isinstance(message, SessionTitleChangedMessage):
            return msgspec.structs.replace(self, title=message.title)
        if isinstance(message, ConversationResetMessage):
            # The new id comes with the next message.
            return msgspec.structs.replace(self, session_id=None)
        return self

    def _with_init(self, message: InitMessage) -> Self:
        return msgspec.structs.replace(
            self,
            init=message,
            session_id=message.session_id,
            version=message.claude_code_version or self.version,
            model=message.model,
            permission_mode=message.permission_mode,
            cwd=message.cwd,
            output_style=message.output_style or self.output_style,
            capabilities=tuple(message.capabilities) or self.capabilities,
            tools=tuple(message.tools),
            mcp_servers=tuple(message.mcp_servers),
            skills=tuple(message.skills),
            plugins=tuple(message.plugins),
        )


CHANGES_INFO: Final[frozenset[type]] = frozenset(
    (
        InitMessage,
        CommandsChangedMessage,
        StatusMessage,
        SessionTitleChangedMessage,
        ConversationResetMessage,
    )
)
"""The messages that may change it."""
