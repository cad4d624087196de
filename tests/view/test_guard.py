"""Attacks on the viewer: who is let in, and what another site can do."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from outrider import Approvals, Sessions
from outrider.errors import OptionsError
from outrider.view import View, app
from tests.cases import every_case
from tests.view.sample import SESSION, Writer, text, use
from tests.view.serving import client

PAGES = (
    "/",
    f"/s/{SESSION}",
    f"/s/{SESSION}/rows",
    f"/s/{SESSION}/export",
    f"/s/{SESSION}/outline",
    f"/s/{SESSION}/changes",
    f"/s/{SESSION}/find",
    f"/s/{SESSION}/timeline",
    "/watch/sessions",
)


@every_case("path", PAGES)
def test_without_the_token_nothing_is_shown(view: View, path: str) -> None:
    stranger = client(view, is_in=False)
    for address in (path, f"{path}?token=", f"{path}?token={'x' * 43}", f"{path}?token=é"):
        answer = stranger.get(address)
        assert answer.status_code == 401
        assert "cent" not in answer.text
        assert "set-cookie" not in answer.headers
    stranger.cookies.set("outrider-view-000000000000", "x")
    assert stranger.get(path).status_code == 401


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(view: View) -> None:
    answer = client(view, is_in=False).get(f"/?token={view.token}&days=7")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?days=7")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert view.token not in cookie


def test_an_address_with_the_token_leads_nowhere_else(view: View) -> None:
    answer = client(view, is_in=False).get(f"http://127.0.0.1:8450//evil.example/?token={view.token}")
    assert answer.headers.get("location", "/").startswith("/")
    assert not answer.headers.get("location", "/").startswith("//")


def test_two_viewers_do_not_take_each_others_cookies(config: Path) -> None:
    first, second = (app(Sessions(config=config)) for _ in range(2))
    one = client(first)
    other = client(second)
    for name, value in one.cookies.items():
        other.cookies.set(name, value)
    assert (one.get("/").status_code, other.get("/").status_code) == (200, 200)
    stranger = client(second, is_in=False)
    for name, value in one.cookies.items():
        stranger.cookies.set(name, value)
    assert stranger.get("/").status_code == 401


@every_case(
    "host",
    ["evil.example", "evil.example:8450", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0", ""],
)
def test_a_name_that_was_bound_to_this_machine_is_refused(view: View, host: str) -> None:
    looking = client(view)
    answer = looking.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert "Sessions" not in answer.text


@every_case("host", ["localhost:1", "127.0.0.1:8450", "[::1]:8450", "LOCALHOST"])
def test_its_own_names_are_not(view: View, host: str) -> None:
    assert client(view).get("/", headers={"host": host}).status_code == 200


@every_case(
    "origin",
    [
        None,
        "null",
        "https://evil.example",
        "http://127.0.0.1:9",
        "http://127.0.0.1.evil.example:8450",
        "file://127.0.0.1:8450",
    ],
)
def test_a_decision_from_another_site_is_refused(tmp_path: Path, origin: str | None) -> None:
    approvals = Approvals(tmp_path / "approvals.db")
    view = app(approvals, approve=True)
    headers = {} if origin is None else {"origin": origin}
    answer = client(view).post("/approvals/x", data={"decision": "allow"}, headers=headers)
    assert answer.status_code == 403


def test_nothing_can_be_changed_unless_approving_is_switched_on(view: View, tmp_path: Path) -> None:
    quiet = app(Approvals(tmp_path / "approvals.db"))
    for one in (view, quiet):
        looking = client(one)
        headers = {"origin": "http://127.0.0.1:8450"}
        answer = looking.post("/approvals/x", data={"decision": "allow"}, headers=headers)
        assert answer.status_code == (403 if one is quiet else 404)
        for path in PAGES:
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                answer = looking.request(method, path, content=b"{}", headers=headers)
                assert answer.status_code == 405, (method, path)


def test_a_body_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    looking = client(app(Approvals(tmp_path / "approvals.db"), approve=True))
    headers = {"origin": "http://127.0.0.1:8450"}
    assert looking.post("/approvals/x", content=b"x" * (1 << 21), headers=headers).status_code == 413

    def endless() -> Any:
        yield b"x"

    assert looking.post("/approvals/x", content=endless(), headers=headers).status_code == 413


@every_case("path", [*PAGES[:4], "/static/view.js", "/nothing"])
def test_every_answer_forbids_what_is_not_ours(view: View, path: str) -> None:
    headers = client(view).get(path).headers
    policy = headers["content-security-policy"]
    if path.endswith("export"):
        assert policy == "sandbox"
        assert headers["content-disposition"].startswith("attachment")
    else:
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


@every_case(
    "path",
    [
        "/static/../_app.py",
        "/static/..%2f_app.py",
        "/static/%2e%2e/_app.py",
        "/static/%2fetc%2fpasswd",
        "/s/..%2f..%2f..%2fetc%2fpasswd",
        "/s/%2fetc%2fpasswd",
        f"/s/{SESSION}?agent=../../../secret",
        f"/s/{SESSION}/rows?agent=..%2f..%2fsecret",
        f"/s/{SESSION}/rows?before=-1",
        f"/s/{SESSION}/rows?before=1e9",
        f"/s/{SESSION}/full?at=",
        f"/s/{SESSION}/picture?at=0&n=99999",
        f"/s/{SESSION}/export?format=exe",
    ],
)
def test_an_address_leads_to_no_other_file(view: View, config: Path, path: str) -> None:
    (config / "secret.jsonl").write_text('{"type":"user","uuid":"x","message":{"content":"TOP SECRET"}}\n')
    answer = client(view).get(path)
    assert answer.status_code in (400, 404)
    assert 'class="login"' in answer.text or path.startswith(("/static", f"/s/{SESSION}/picture"))
    for word in ("TOP SECRET", "root:", "import annotations", "Traceback"):
        assert word not in answer.text


def test_a_subagent_that_is_a_link_is_not_followed(view: View, config: Path) -> None:
    inside = config / "projects" / "-srv-shop" / SESSION / "subagents"
    (config / "elsewhere.jsonl").write_text('{"type":"user","uuid":"x","message":{"content":"TOP SECRET"}}\n')
    (inside / "agent-evil.jsonl").symlink_to(config / "elsewhere.jsonl")
    assert client(view).get(f"/s/{SESSION}?agent=evil").status_code == 404


def test_a_password_instead_of_a_token(config: Path) -> None:
    view = app(Sessions(config=config), password="correct horse", hosts=("*", "view.example"))
    looking = client(view, is_in=False, base="http://192.0.2.7:8450")
    headers = {"origin": "http://192.0.2.7:8450"}
    assert looking.get("/").status_code == 401
    assert looking.get(f"/?token={view.token}").status_code == 401
    assert looking.get("/", headers={"host": "evil.example"}).status_code == 421
    assert looking.get("/", headers={"host": "view.example"}).status_code == 401
    assert looking.post("/login", data={"password": "correct horse"}).status_code == 403
    assert looking.post("/login", data={"password": "wrong"}, headers=headers).status_code == 401
    assert looking.post("/login", data={"password": "correct horse"}, headers=headers).status_code == 303
    assert looking.get("/").status_code == 200


def test_passwords_cannot_be_tried_at_will(config: Path) -> None:
    view = app(Sessions(config=config), password="correct horse")
    looking = client(view, is_in=False)
    headers = {"origin": "http://127.0.0.1:8450"}
    codes = [
        looking.post("/login", data={"password": f"guess {n}"}, headers=headers).status_code for n in range(8)
    ]
    assert codes == [401] * 5 + [429] * 3
    assert looking.post("/login", data={"password": "correct horse"}, headers=headers).status_code == 429


def test_a_short_password_is_refused_and_not_shown() -> None:
    with pytest.raises(OptionsError, match="fewer than 8") as caught:
        app(password="hunter2")
    assert "hunter2" not in str(caught.value)


HOSTILE = (
    '</script><script>window.pwned=1</script>"\'><img src=x onerror="window.pwned=1">'
    "<svg/onload=window.pwned=1> [click](javascript:window.pwned=1) ![x](https://evil.example/p.png) "
    "<https://evil.example> </div></main><style>*{display:none}</style><!--"
)


def hostile() -> Writer:
    """A session in which every text is an attack."""
    w = Writer(cwd=f"/srv/{HOSTILE.replace('/', '')}")
    w.prompt(HOSTILE, 0, gitBranch=HOSTILE)
    w.say(
        {"type": "thinking", "thinking": HOSTILE},
        text(HOSTILE),
        text(f"```{HOSTILE}\n{HOSTILE}\n```\n| {HOSTILE} |\n|---|\n| x |"),
    )
    for number, name in enumerate(
        (
            "Bash",
            "Read",
            "Edit",
            "MultiEdit",
            "Write",
            "TodoWrite",
            "AskUserQuestion",
            "ExitPlanMode",
            "Agent",
            "WebFetch",
            "mcp__a__b",
            HOSTILE,
        )
    ):
        option = {"label": HOSTILE, "description": HOSTILE}
        w.say(
            use(
                f"h{number}",
                name,
                command=HOSTILE,
                description=HOSTILE,
                file_path=HOSTILE,
                old_string=HOSTILE,
                new_string=f"{HOSTILE}x",
                content=HOSTILE,
                edits=[{"old_string": HOSTILE, "new_string": "x"}],
                todos=[{"content": HOSTILE, "status": HOSTILE}],
                questions=[{"question": HOSTILE, "options": [option]}],
                plan=HOSTILE,
                prompt=HOSTILE,
                url="javascript:alert(1)",
                **{HOSTILE: HOSTILE},
            )
        )
        told = {
            "stdout": HOSTILE,
            "stderr": HOSTILE,
            "file": {"content": HOSTILE, "startLine": HOSTILE},
            "answers": {HOSTILE: HOSTILE},
            "structuredPatch": [{"lines": [f"+{HOSTILE}"], "oldStart": HOSTILE}] if number % 2 else HOSTILE,
        }
        image = {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/svg+xml", "data": "PHN2Zy8+"},
        }
        w.result(f"h{number}", [text(HOSTILE), image, {"type": HOSTILE}], error=number % 3 == 2, told=told)
    w.add("system", subtype="informational", content=HOSTILE)
    w.add("system", subtype="compact_boundary", compactMetadata={"trigger": HOSTILE, "preTokens": HOSTILE})
    w.add("system", subtype="api_error", error={"message": HOSTILE, "status": HOSTILE}, retryAttempt=HOSTILE)
    w.prompt([{"type": "image", "source": {"media_type": 'image/png" onload="x', "data": HOSTILE}}])
    w.note("custom-title", customTitle=HOSTILE)
    w.note("tag", tag=HOSTILE)
    return w


def write_hostile(config: Path) -> None:
    folder = config / "projects" / "-hostile"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{SESSION}.jsonl").write_bytes(hostile().data())
    inside = folder / SESSION / "subagents"
    inside.mkdir(parents=True, exist_ok=True)
    (inside / "agent-x.jsonl").write_bytes(hostile().data())
    told = {"agentType": HOSTILE, "description": HOSTILE, "toolUseId": "h8"}
    (inside / "agent-x.meta.json").write_text(json.dumps(told))


@every_case(
    "path",
    [
        "/",
        f"/s/{SESSION}",
        f"/s/{SESSION}/outline",
        f"/s/{SESSION}/rows?agent=x&all=1",
        f"/s/{SESSION}/changes",
        f"/s/{SESSION}/find?q=onerror",
        "/?q=window",
        f"/?q={HOSTILE}&project={HOSTILE}&branch={HOSTILE}",
    ],
)
def test_nothing_that_an_agent_wrote_is_markup(tmp_path: Path, path: str) -> None:
    from html.parser import HTMLParser

    write_hostile(tmp_path)
    answer = client(app(Sessions(config=tmp_path))).get(path.replace("#", "%23"))
    assert answer.status_code == 200

    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.problems: list[object] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag in ("style", "iframe", "object", "embed", "base") or (
                tag == "script" and dict(attrs).get("src") != "/static/view.js"
            ):
                self.problems.append(tag)
            for name, value in attrs:
                if name.startswith("on") or name == "style":
                    self.problems.append((tag, name))
                if name in ("href", "src", "action") and not (value or "").startswith(("/", "?", "#")):
                    self.problems.append((tag, name, value))
                if name in ("href", "src", "action") and (value or "").startswith("//"):
                    self.problems.append((tag, name, value))

    reader = Reader()
    reader.feed(answer.text)
    assert reader.problems == []
    assert "evil.example" not in answer.text or 'evil.example"' not in answer.text


def test_secrets_are_masked_unless_they_are_asked_for(tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "abcdefghij" * 5
    w = Writer()
    w.prompt(f"use {secret}", 0)
    w.say(
        text(f"I use {secret}"),
        use("c1", "Bash", command=f"export KEY={secret}"),
        use("c2", "mcp__a__b", api_key=secret, note=f"it is {secret}"),
    )
    w.result("c1", f"ok {secret}", told={"stdout": f"ok {secret}", "stderr": ""})
    w.result("c2", json.dumps({"token": secret}))
    folder = tmp_path / "projects" / "-srv-shop"
    folder.mkdir(parents=True)
    (folder / f"{SESSION}.jsonl").write_bytes(w.data())
    masked = client(app(Sessions(config=tmp_path)))
    for path in (
        "/",
        f"/s/{SESSION}",
        f"/s/{SESSION}/outline",
        "/?q=use",
        f"/s/{SESSION}/export?format=html",
        f"/s/{SESSION}/full?at=0",
    ):
        assert secret not in masked.get(path).text, path
    assert secret in client(app(Sessions(config=tmp_path), redact=False)).get(f"/s/{SESSION}").text


@every_case(
    "name, input, result",
    [
        ("Read", {"file_path": "x"}, "<system-reminder>" * 200_000),
        ("Bash", {"command": "x"}, "\x1b]" * 300_000),
        (
            "Edit",
            {"file_path": "x.py", "old_string": "a\nb\n" * 30_000, "new_string": "b\na\n" * 30_000},
            "ok",
        ),
        (
            "Edit",
            {
                "file_path": "x",
                "old_string": ("a" * 190 + "b\n") * 300,
                "new_string": ("a" * 190 + "c\n") * 300,
            },
            "ok",
        ),
        ("mcp__a__b", {"deep": "x"}, "[" * 100_000),
        ("Write", {"file_path": "x.json", "content": "[" * 500_000}, "ok"),
    ],
)
def test_no_text_keeps_the_server_busy(tmp_path: Path, name: str, input: dict[str, str], result: str) -> None:
    # Each of these would take minutes with the square of its length; the test's timeout is the limit.
    w = Writer()
    w.prompt("go", 0)
    w.say(use("c1", name, **input))
    w.result("c1", result)
    folder = tmp_path / "projects" / "-srv-shop"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{SESSION}.jsonl").write_bytes(w.data())
    looking = client(app(Sessions(config=tmp_path)))
    page = looking.get(f"/s/{SESSION}").text
    assert len(page) < 400_000
    for whole in re.findall(r'data-full="([^"]+)"', page)[:1]:
        assert looking.get(unescape(whole)).status_code == 200


def test_approvals_that_cannot_be_read_do_not_hide_the_sessions(config: Path, tmp_path: Path) -> None:
    path = tmp_path / "approvals.db"
    path.write_bytes(b"this is no database, and was never one" * 100)
    looking = client(app(Sessions(config=config), Approvals(path)))
    assert looking.get("/").status_code == 200
    assert looking.get("/approvals").status_code == 502
