"""Defines the requests of the agent to the host, the replies to them, and JSON-RPC messages for MCP servers.

Does not know the methods of MCP: `outrider.handlers` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

from outrider.wire._tolerant import convert_leniently, is_object
from outrider.wire._value import Json, JsonObject, Received, Value
from outrider.wire.choices import DecisionReasonType
from outrider.wire.hooks._inputs import HookInput, McpServerSource, hook_input_from_wire
from outrider.wire.hooks._outputs import ElicitationAction, HookAnswer, hook_output_from_wire
from outrider.wire.permissions import (
    PermissionResult,
    PermissionUpdate,
    permission_result_from_wire,
    permission_updates_from_wire,
)

if TYPE_CHECKING:
    from typing import Self


PARSE_ERROR: Final = -32700
"""The message is not JSON."""
INVALID_REQUEST: Final = -32600
"""The message is not a request."""
METHOD_NOT_FOUND: Final = -32601
"""There is no such method."""
INVALID_PARAMS: Final = -32602
"""The method does not take these parameters."""
INTERNAL_ERROR: Final = -32603
"""The method failed."""

JsonRpcId: TypeAlias = str | int | float
"""What ties a reply to its request."""


class JsonRpcRequest(Value):
    """A call that wants a reply with the same id."""

    method: str
    id: JsonRpcId
    params: Json = None
    """An object or a list; anything else is an error of the sender. Unset: none were sent."""

    def to_wire(self) -> JsonObject:
        return _message(id=self.id, method=self.method) | _optional(params=self.params)


class JsonRpcNotification(Value):
    """A call that wants no reply."""

    method: str
    params: Json = None
    """An object or a list; anything else is an error of the sender. Unset: none were sent."""

    def to_wire(self) -> JsonObject:
        return _message(method=self.method) | _optional(params=self.params)


class JsonRpcSuccess(Value):
    """The reply to a request that was carried out."""

    id: JsonRpcId | None
    result: Json

    def to_wire(self) -> JsonObject:
        return _message(id=self.id, result=self.result)


class JsonRpcError(Value):
    """The reply to a request that failed."""

    id: JsonRpcId | None
    """None where the request was so broken that its id could not be read."""
    code: int
    message: str
    data: Json = None

    def to_wire(self) -> JsonObject:
        error = {"code": self.code, "message": self.message} | _optional(data=self.data)
        return _message(id=self.id, error=error)


class JsonRpcInvalid(Value):
    """An object that is not a JSON-RPC message."""

    raw: JsonObject
    """The object as received."""

    def to_wire(self) -> JsonObject:
        return self.raw


class _ErrorBody(Value):
    code: int = INTERNAL_ERROR
    message: str = ""
    data: Json = None


JsonRpcReply: TypeAlias = JsonRpcSuccess | JsonRpcError
"""What a request is answered with."""

JsonRpcMessage: TypeAlias = JsonRpcRequest | JsonRpcNotification | JsonRpcReply | JsonRpcInvalid
"""Any message."""


def jsonrpc_from_wire(data: JsonObject) -> JsonRpcMessage:
    """Read a message; never raises. The version is not looked at, and a mistyped error is read as it can be.

    A call whose id is null, or is neither text nor number, is a notification: nothing could match its reply.
    """
    match data:
        case {"method": str(method)}:
            rpc_id = _id(data)
            if rpc_id is None:
                return JsonRpcNotification(method, data.get("params"))
            return JsonRpcRequest(method, rpc_id, data.get("params"))
        case {"error": error} if error is not None:
            body = convert_leniently(_ErrorBody, error if is_object(error) else {"data": error})
            return JsonRpcError(_id(data), body.code, body.message, body.data)
        case {"result": result}:
            return JsonRpcSuccess(_id(data), result)
        case _:
            return JsonRpcInvalid(data)


def _id(data: JsonObject) -> JsonRpcId | None:
    value: object = data.get("id")
    return value if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None


def _message(**fields: Json) -> JsonObject:
    return {"jsonrpc": "2.0", **fields}


def _optional(**fields: Json) -> JsonObject:
    return {key: value for key, value in fields.items() if value is not None}


class MatchedAskRule(Value):
    """The permission rule that makes the agent ask."""

    source: str
    """Which settings the rule is from."""
    tool_name: str
    rule_content: str | None = None


class ComputerFolder(Value):
    """A folder of a computer that a tool works on."""

    path: str
    computer_name: str | None = None


class CanUseTool(Received, tag_field="subtype", tag="can_use_tool"):
    """May this tool run? Answered with a `PermissionResult`; there is no deadline."""

    subtype: ClassVar[Literal["can_use_tool"]] = "can_use_tool"
    tool_name: str
    input: JsonObject
    tool_use_id: str
    permission_suggestions: list[PermissionUpdate] | None = None
    """Changes that would avoid the question next time; to be sent back with the answer."""
    blocked_path: str | None = None
    """The path that made the agent ask."""
    decision_reason: str | None = None
    """Why the agent asks, in words."""
    decision_reason_type: DecisionReasonType | None = None
    decision_reason_code: str | None = None
    decision_reason_hook_event: str | None = None
    """Where a hook wanted the question: its event."""
    decision_reason_hook_source: str | None = None
    """Where a hook wanted the question: which settings it is from."""
    decision_reason_rule_source: str | None = None
    """Where a rule wanted the question: which settings it is from."""
    classifier_approvable: bool | None = None
    """A classifier may decide in place of a person."""
    suppress_always_allow_rule: bool | None = None
    """Do not offer to always allow similar calls."""
    default_to_no: bool | None = None
    """Offer the refusal first."""
    matched_ask_rule: MatchedAskRule | None = None
    title: str | None = None
    display_name: str | None = None
    """The tool's name for people."""
    description: str | None = None
    """What the call does, for people."""
    agent_id: str | None = None
    """The subagent that wants to use the tool; unset on the main thread."""
    requires_user_interaction: bool | None = None
    """Only a person can answer: the tool itself is a question."""
    mcp_server: McpServerSource | None = None
    """Of a tool that an MCP server offers."""
    server_policy_ask_only: bool | None = None
    plugin: Json = None
    server_prompt: Json = None
    computer_folder: ComputerFolder | None = None

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        """Read the request; never raises. Suggestions of any shape are kept."""
        ask = super().from_wire(data)
        ask.permission_suggestions = permission_updates_from_wire(data.get("permission_suggestions"))
        return ask

    def to_wire(self) -> JsonObject:
        wire = super().to_wire()
        if self.permission_suggestions is not None:
            wire["permission_suggestions"] = [update.to_dict() for update in self.permission_suggestions]
        return wire

    def read_answer(self, payload: JsonObject) -> PermissionResult | None:
        """The decision; None for an answer that counts as invalid."""
        return permission_result_from_wire(payload)


class HookCallback(Received):
    """A hook is due. Answered with a `HookOutput` or an `AsyncHookOutput`."""

    subtype: ClassVar[Literal["hook_callback"]] = "hook_callback"
    callback_id: str
    """The id under which the callback was registered."""
    input: HookInput
    tool_use_id: str | None = None
    """The tool call that the event is about; a random id for events that are about none."""

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        id, hook_input, tool_use_id = data.get("callback_id"), data.get("input"), data.get("tool_use_id")
        ask = cls(
            id if isinstance(id, str) else "",
            hook_input_from_wire(hook_input if is_object(hook_input) else {}),
            tool_use_id if isinstance(tool_use_id, str) else None,
        )
        ask._raw = data
        return ask

    def to_wire(self) -> JsonObject:
        wire: JsonObject = {"subtype": self.subtype, "callback_id": self.callback_id}
        wire["input"] = self.input.to_wire()
        return wire if self.tool_use_id is None else wire | {"tool_use_id": self.tool_use_id}

    def read_answer(self, payload: JsonObject) -> HookAnswer:
        """What the hook says."""
        return hook_output_from_wire(payload)


class McpMessage(Received, tag_field="subtype", tag="mcp_message"):
    """A JSON-RPC message for an MCP server that runs in the host. Answered with an `McpReply`."""

    subtype: ClassVar[Literal["mcp_message"]] = "mcp_message"
    server_name: str
    message: JsonObject

    @property
    def rpc(self) -> JsonRpcMessage:
        """The message, typed."""
        return jsonrpc_from_wire(self.message)

    def read_answer(self, payload: JsonObject) -> McpReply:
        """The reply of the server."""
        return McpReply.from_wire(payload)


class Elicitation(Received, tag_field="subtype", tag="elicitation"):
    """An MCP server asks the user for something. Answered with an `ElicitationResult`."""

    subtype: ClassVar[Literal["elicitation"]] = "elicitation"
    mcp_server_name: str
    message: str
    mode: str | None = None
    """`form` or `url`."""
    url: str | None = None
    elicitation_id: str | None = None
    """With a URL: what `elicitation_complete` will name."""
    requested_schema: JsonObject | None = None
    """With a form: the JSON Schema of the content."""
    property_order: list[str] | None = None
    """The order in which the server lists the form's fields."""
    title: str | None = None
    display_name: str | None = None
    description: str | None = None

    def read_answer(self, payload: JsonObject) -> ElicitationResult:
        """What the user said."""
        return ElicitationResult.from_wire(payload)


class RequestUserDialog(Received, tag_field="subtype", tag="request_user_dialog"):
    """A question in a dialog of a kind that the host said it has. Answered with a `DialogResult`."""

    subtype: ClassVar[Literal["request_user_dialog"]] = "request_user_dialog"
    dialog_kind: str
    payload: Json = None
    tool_use_id: str | None = None

    def read_answer(self, payload: JsonObject) -> DialogResult:
        """How the dialog ended."""
        return DialogResult.from_wire(payload)


class OauthTokenRefresh(Received, tag_field="subtype", tag="oauth_token_refresh"):
    """The agent needs a fresh access token. Answered with an `OauthToken`."""

    subtype: ClassVar[Literal["oauth_token_refresh"]] = "oauth_token_refresh"
    kind: str | None = None
    token_state: str | None = None
    """What became of the present token: `refused` or `not_refused`."""
    refused_call: str | None = None
    """Who refused it: `model`, `connector` or `other`."""

    def read_answer(self, payload: JsonObject) -> OauthToken:
        """The token, or why there is none."""
        return OauthToken.from_wire(payload)


class HostAuthTokenRefresh(Received, tag_field="subtype", tag="host_auth_token_refresh"):
    """The agent needs a fresh token of the host's own. Answered with a `HostAuthToken`."""

    subtype: ClassVar[Literal["host_auth_token_refresh"]] = "host_auth_token_refresh"
    status: Json = None

    def read_answer(self, payload: JsonObject) -> HostAuthToken:
        """The token, or none."""
        return HostAuthToken.from_wire(payload)


class RemoteControlWorkSecret(Received, tag_field="subtype", tag="remote_control_work_secret"):
    """The agent needs the secret of a remotely controlled session. Answered with a `WorkSecret`."""

    subtype: ClassVar[Literal["remote_control_work_secret"]] = "remote_control_work_secret"
    session_id: str

    def read_answer(self, payload: JsonObject) -> WorkSecret:
        """The secret, or none."""
        return WorkSecret.from_wire(payload)


class _OpaqueAsk(Received):
    subtype: str
    """The name of the request; empty where it has none, or none that is text."""
    fields: JsonObject
    """All but the name."""

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        subtype = data.get("subtype")
        if isinstance(subtype, str):
            ask = cls(subtype, {key: value for key, value in data.items() if key != "subtype"})
        else:
            ask = cls("", dict(data))
        ask._raw = data
        return ask

    def to_wire(self) -> JsonObject:
        return {"subtype": self.subtype, **self.fields}

    def read_answer(self, payload: JsonObject) -> JsonObject:
        """The answer as it is: nothing is known of it."""
        return payload


class UiAsk(_OpaqueAsk):
    """Something for the prompt line or the clipboard of a host with a screen; its fields are undocumented."""


class RemoteAsk(_OpaqueAsk):
    """Traffic of a remote session that a local host leaves unanswered; its fields are undocumented."""


class UnknownAsk(_OpaqueAsk):
    """A request that has no class of its own; "unsupported" is the answer that lets the agent continue."""


Ask: TypeAlias = (
    CanUseTool
    | HookCallback
    | McpMessage
    | Elicitation
    | RequestUserDialog
    | OauthTokenRefresh
    | HostAuthTokenRefresh
    | RemoteControlWorkSecret
    | UiAsk
    | RemoteAsk
    | UnknownAsk
)
"""Any request of the agent to the host."""

UI_SUBTYPES: Final = (
    "ui_copy",
    "ui_prompt_read",
    "ui_prompt_fill",
    "ui_prompt_paint",
    "ui_prompt_suggest",
    "ui_read_selection",
)
"""What comes as a `UiAsk`."""

REMOTE_SUBTYPES: Final = (
    "remote_tool_call",
    "remote_plumbing_call",
    "remote_tools_probe",
    "remote_tools_reannounce",
)
"""What comes as a `RemoteAsk`."""

ASKS: Final[Mapping[str, type[Ask]]] = (
    {
        str(kind.subtype): kind
        for kind in (
            CanUseTool,
            HookCallback,
            McpMessage,
            Elicitation,
            RequestUserDialog,
            OauthTokenRefresh,
            HostAuthTokenRefresh,
            RemoteControlWorkSecret,
        )
    }
    | dict.fromkeys(UI_SUBTYPES, UiAsk)
    | dict.fromkeys(REMOTE_SUBTYPES, RemoteAsk)
)
"""The class of each subtype."""


def ask_from_wire(data: JsonObject) -> Ask:
    """Read the `request` of a control request that came from the agent; never raises.

    A subtype with no class gives an `UnknownAsk`. What is missing or mistyped takes its default or an empty
    value; `raw` has it all.
    """
    subtype: object = data.get("subtype")
    kind = ASKS.get(subtype, UnknownAsk) if isinstance(subtype, str) else UnknownAsk
    return kind.from_wire(data)


class ElicitationResult(Received):
    """What the user says to a question of an MCP server."""

    action: ElicitationAction
    content: JsonObject | None = None
    """The filled-in form, with `accept`."""


class DialogResult(Received):
    """How a dialog ended."""

    behavior: str = "completed"
    """`completed`, or `cancelled` where there is no answer."""
    result: Json = None

    def to_wire(self) -> JsonObject:
        return {"behavior": self.behavior} | ({} if self.behavior == "cancelled" else {"result": self.result})


class McpReply(Received):
    """Carries the reply of an MCP server; a notification is answered too, with a reply that means nothing."""

    mcp_response: JsonObject

    @classmethod
    def of(cls, reply: JsonRpcReply) -> Self:
        """Wrap a reply."""
        return cls(reply.to_wire())

    @classmethod
    def to_notification(cls) -> Self:
        """What the agent expects for a message that has no reply."""
        return cls({"jsonrpc": "2.0", "result": {}, "id": 0})

    @property
    def rpc(self) -> JsonRpcMessage:
        """The reply, typed."""
        return jsonrpc_from_wire(self.mcp_response)


class _Secret(Received):
    def __repr__(self) -> str:
        """Hides the secret, so that no log or traceback shows it."""
        return f"{type(self).__name__}(…)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []


class OauthToken(_Secret, rename="camel"):
    """An access token, or why there is none."""

    access_token: str | None
    reason: str | None = None
    """`signed_out`, `identity_changed`, `transient` or `refresh_failed`."""


class HostAuthToken(_Secret, rename="camel"):
    """A token of the host's own."""

    auth_token: str | None


class WorkSecret(_Secret):
    """The secret of a remotely controlled session."""

    work_secret: str | None
