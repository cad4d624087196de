"""Reads and writes the JSON-RPC 2.0 messages inside `mcp_message` requests and their answers.

Does not know the methods of MCP: `outrider.handlers` does.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from outrider.wire._tolerant import convert_leniently, is_object
from outrider.wire._value import Json, JsonObject, Value

PARSE_ERROR: Final = -32700
"""The message was no JSON."""
INVALID_REQUEST: Final = -32600
"""The message was no request."""
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
        """The message as sent."""
        return _message(id=self.id, method=self.method) | _optional(params=self.params)


class JsonRpcNotification(Value):
    """A call that wants no reply."""

    method: str
    params: Json = None
    """An object or a list; anything else is an error of the sender. Unset: none were sent."""

    def to_wire(self) -> JsonObject:
        """The message as sent."""
        return _message(method=self.method) | _optional(params=self.params)


class JsonRpcSuccess(Value):
    """The reply to a request that was carried out."""

    id: JsonRpcId | None
    result: Json

    def to_wire(self) -> JsonObject:
        """The message as sent."""
        return _message(id=self.id, result=self.result)


class JsonRpcError(Value):
    """The reply to a request that failed."""

    id: JsonRpcId | None
    """None where the request was so broken that its id could not be read."""
    code: int
    message: str
    data: Json = None

    def to_wire(self) -> JsonObject:
        """The message as sent."""
        error = {"code": self.code, "message": self.message} | _optional(data=self.data)
        return _message(id=self.id, error=error)


class JsonRpcInvalid(Value):
    """An object that is no JSON-RPC message."""

    raw: JsonObject
    """The object as received."""

    def to_wire(self) -> JsonObject:
        """The object as received."""
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
