"""A client of the Messages API that looks at the bytes."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from outrider.testing import MessagesApi

DEADLINE = 20.0


@contextmanager
def connected(api: MessagesApi) -> Generator[HTTPConnection, None, None]:
    address = urlsplit(api.url)
    connection = HTTPConnection(str(address.hostname), address.port, timeout=DEADLINE)
    try:
        yield connection
    finally:
        connection.close()


def post(
    connection: HTTPConnection, path: str = "/v1/messages", headers: dict[str, str] | None = None, **body: Any
) -> None:
    """Send a request that looks like one of the main conversation, but for what is given."""
    whole = {"model": "some-model", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]} | body
    connection.request("POST", path, json.dumps(whole), headers or {})


def ask(api: MessagesApi, path: str = "/v1/messages", **more: Any) -> tuple[int, Any]:
    """The status and the body of the answer to one request."""
    with connected(api) as connection:
        post(connection, path, **more)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def next_event(response: HTTPResponse) -> dict[str, Any]:
    """One event of a stream, as soon as it is there."""
    name = response.readline().removeprefix(b"event: ").strip().decode()
    data: dict[str, Any] = json.loads(response.readline().removeprefix(b"data: "))
    assert response.readline() == b"\n"
    assert data["type"] == name
    return data


def events(response: HTTPResponse) -> list[dict[str, Any]]:
    """What is left of a stream."""
    chunks = response.read().split(b"\n\n")
    return [json.loads(chunk.partition(b"data: ")[2]) for chunk in chunks if chunk]


def stream(api: MessagesApi, **more: Any) -> list[dict[str, Any]]:
    """The events of the answer to one request."""
    with connected(api) as connection:
        post(connection, stream=True, **more)
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        return events(response)


def deltas(streamed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["delta"] for event in streamed if event["type"] == "content_block_delta"]
