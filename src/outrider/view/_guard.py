"""Lets in only those who may look: a token in the first address, then a cookie; or a password.

A page of another site cannot read or change anything: `Host` must be one of ours (421), `Origin` ours on what
changes something (403), and nothing but our own files is loaded (`Content-Security-Policy`).
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Sequence
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlencode

from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from outrider.errors import OptionsError
from outrider.view._pages.layout import login_page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; "
    "trusted-types rows"
)
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: browsers would send no `Origin` with a form then.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_MOST_BODY: Final = 1 << 20
_LEAST_PASSWORD: Final = 8
_FREE_TRIES: Final = 5
_PAUSE: Final = 10.0
"""Seconds in which no password is looked at, after so many wrong ones."""
_SAFE: Final = ("GET", "HEAD")


class Guard:
    """Stands before the pages."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        password: str | None,
        hosts: Sequence[str] | None,
        is_guarded: bool,
    ) -> None:
        if password is not None and len(password) < _LEAST_PASSWORD:
            # Not shown: it is one.
            raise OptionsError(
                f"The password has fewer than {_LEAST_PASSWORD} characters", hint="Choose a longer one."
            )
        self._app = app
        self.token = token or secrets.token_urlsafe(32)
        self._password = password
        self._hosts = None if hosts is None else {host.lower().strip("[]") for host in hosts}
        self._is_guarded = is_guarded
        self._secret = secrets.token_urlsafe(32)
        # Cookies are shared by all ports of a host: two viewers must not take each other's.
        self._cookie = f"outrider-view-{sha256(self._secret.encode()).hexdigest()[:12]}"
        self._wrong = 0
        self._closed_until = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from starlette.requests import Request

        request = Request(scope, receive)
        is_secure = request.url.scheme == "https"

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                given = {name.lower() for name, _ in headers}
                headers += [
                    (name.encode(), value.encode())
                    for name, value in _HEADERS.items()
                    if name.encode() not in given
                ]
                message["headers"] = headers
            await send(message)

        response = await self._refused(request, is_secure=is_secure)
        await (self._app if response is None else response)(scope, receive, sealed)

    async def _refused(self, request: Request, *, is_secure: bool) -> Response | None:
        """What is answered instead of a page; None for those who may see it."""
        if not self._is_known_host(request.headers.get("host", "")):
            return PlainTextResponse("This server is not known by that name.", 421)
        if request.method not in _SAFE:
            if not self._is_own_origin(request):
                return PlainTextResponse("This must come from a page of this server.", 403)
            length = request.headers.get("content-length", "")
            if not length.isdigit() or int(length) > _MOST_BODY:
                return PlainTextResponse("That is too much.", 413)
        if not self._is_guarded:
            return None
        root = request.scope.get("root_path", "")
        path = request.scope["path"].removeprefix(root)
        if request.method in _SAFE and (token := request.query_params.get("token")) is not None:
            if self._password is None and hmac.compare_digest(token.encode(), self.token.encode()):
                rest = urlencode([item for item in request.query_params.multi_items() if item[0] != "token"])
                return self._let_in(f"{root}{path}{'?' if rest else ''}{rest}", root, is_secure=is_secure)
        elif hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), self._secret.encode()):
            return None
        if path.startswith("/static/") and request.method in _SAFE:
            # What everybody can read who has the package.
            return None
        if self._password is None:
            return HTMLResponse(login_page(root, None), 401)
        if path == "/login" and request.method == "POST":
            return await self._log_in(request, root, is_secure=is_secure)
        return HTMLResponse(login_page(root, ""), 401)

    async def _log_in(self, request: Request, root: str, *, is_secure: bool) -> Response:
        assert self._password is not None
        # Read first: between the check and the count nothing may wait, or many tries at once would pass.
        given = parse_qs((await request.body()).decode("utf-8", "replace")).get("password", [""])[0]
        if monotonic() < self._closed_until:
            return HTMLResponse(login_page(root, "Too many tries. Wait a few seconds."), 429)
        if hmac.compare_digest(sha256(given.encode()).digest(), sha256(self._password.encode()).digest()):
            self._wrong = 0
            return self._let_in(f"{root}/", root, is_secure=is_secure)
        self._wrong += 1
        if self._wrong >= _FREE_TRIES:
            self._closed_until = monotonic() + _PAUSE
        return HTMLResponse(login_page(root, "That is not the password."), 401)

    def _let_in(self, address: str, root: str, *, is_secure: bool) -> Response:
        # Not `//…`, which is another server.
        response = RedirectResponse(f"/{address.lstrip('/')}", 303)
        response.set_cookie(
            self._cookie, self._secret, httponly=True, samesite="strict", secure=is_secure, path=f"{root}/"
        )
        return response

    def _is_known_host(self, host: str) -> bool:
        if self._hosts is None:
            return True
        name = _name_of(host)
        if name in self._hosts:
            return True
        # Nobody can make a name of theirs lead to an address that is none.
        return "*" in self._hosts and _is_address(name)

    def _is_own_origin(self, request: Request) -> bool:
        origin = request.headers.get("origin")
        if origin is None:
            return False
        scheme, _, host = origin.partition("://")
        return scheme in ("http", "https") and host.lower() == request.headers.get("host", "").lower()


def _name_of(host: str) -> str:
    """The name in a `Host`, without the port."""
    host = host.lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
