"""What is hidden, what is left alone, and that neither depends on the text around it."""

from __future__ import annotations

import copy
import json
import pickle
import re
import string
import subprocess
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.redaction import DEFAULT, MASK, Redaction, is_secret_key, mask, mask_argv, mask_json, preview
from tests.cases import every_case

BODY = "k3yBody0123456789abcdefXYZ"
"""The part of a planted secret that must never be seen."""

PEM = f"-----BEGIN RSA PRIVATE KEY-----\nMIIE-{BODY}\n{BODY}==\n-----END RSA PRIVATE KEY-----"

BY_SHAPE = {
    f"sk-ant-api03-{BODY}_-x": "sk-ant-***",
    f"sk-proj-{BODY}": "sk-proj-***",
    f"sk-{BODY}": "sk-***",
    "sk-abcdefghijklmnopqrst": "sk-***",
    f"sk_live_{BODY}": "sk_live_***",
    f"ghp_{BODY}": "ghp_***",
    f"github_pat_11AAA_{BODY}": "github_pat_***",
    f"glpat-{BODY}": "glpat-***",
    f"xoxb-123-456-{BODY}": "xoxb-***",
    "AKIAIOSFODNN7EXAMPLE": "AKIA***",
    f"AIza{BODY}0123456789": "AIza***",
    f"hf_{BODY}": "hf_***",
    f"npm_{BODY}": "npm_***",
    f"eyJhbGciOiJI.eyJzdWIi.{BODY}": "eyJ***",
    f"Bearer {BODY}": "Bearer ***",
    "bearer abc123": "bearer ***",
    "Basic dXNlcjpwYXNzd29yZA==": "Basic ***",
    f"https://user:{BODY}@host/path": "https://user:***@host/path",
    f"postgres://u:p@ss{BODY}@db:5432/x?y=1": "postgres://u:***@db:5432/x?y=1",
    f"https://{BODY}@host/path": "https://***@host/path",
    f"redis://:{BODY}@h:6379/0": "redis://:***@h:6379/0",
    f"amqps://u:p/a/{BODY}@h/%2F": "amqps://u:***@h/%2F",
    f"amqps://u:p/a@{BODY}@h": "amqps://u:***@h",
    f"https://a.blob.core.windows.net/c/b?sv=2020&sig={BODY}%3D": "?sv=2020&sig=***",
    f"https://b.s3.amazonaws.com/k?X-Amz-Signature={BODY}": "?X-Amz-Signature=***",
    f"curl -sS -u me:{BODY} https://h": "curl -sS -u me:*** https://h",
    f"curl --user 'me:{BODY}' https://h": "curl --user 'me:***' https://h",
    f"ya29.a0Af-{BODY}": "ya29.***",
    f"pypi-AgEIcHl{BODY}": "pypi-***",
    f"SG.{BODY}.{BODY}": "SG.***",
    f"hvs.{BODY}": "hvs.***",
    PEM: "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY-----\n{BODY}": "-----BEGIN PRIVATE KEY-----***",
}

BY_NAME = {
    "API_KEY=hunter2": "API_KEY=***",
    "export ANTHROPIC_API_KEY='hunter2 and more'": "export ANTHROPIC_API_KEY='***'",
    'AWS_SECRET_ACCESS_KEY="hunter2"': 'AWS_SECRET_ACCESS_KEY="***"',
    "GITHUB_TOKEN=hunter2;": "GITHUB_TOKEN=***;",
    "MYSQL_PWD=hunter2": "MYSQL_PWD=***",
    "PGPASSWORD=hunter2 psql": "PGPASSWORD=*** psql",
    "password: hunter2": "password: ***",
    "(password=hunter2)": "(password=***)",
    "password=hunter(2)x": "password=***",
    "{'accessToken': 'hunter2', 'n': 5}": "{'accessToken': '***', 'n': 5}",
    '{"client_secret":"hunt\\"er2","n":5}': '{"client_secret":"***","n":5}',
    '{"password": "hunter2': '{"password": "***',
    '"cookies": ["hunter2", "b"]': '"cookies": [***]',
    "https://h/x?api_key=hunter2&page=2": "https://h/x?api_key=***&page=2",
    "Authorization: Bearer hunter2": "Authorization: Bearer ***",
    "Authorization: hunter2 hunter2\nHost: h": "Authorization: ***\nHost: h",
    "curl -H 'x-api-key: hunter2' https://h": "curl -H 'x-api-key: ***' https://h",
    "Set-Cookie: sid=hunter2; Path=/": "Set-Cookie: ***",
    "claude --api-key hunter2 --model x": "claude --api-key *** --model x",
    "Invalid API key: hunter2": "Invalid API key: ***",
    "//registry.npmjs.org/:_authToken=hunter2": "//registry.npmjs.org/:_authToken=***",
    r'{"out": "A=1\nAPI_KEY=hunter2\nB=2"}': r'{"out": "A=1\nAPI_KEY=***\nB=2"}',
    "\x1b[31mAPI_KEY=hunter2\x1b[0m": "\x1b[31mAPI_KEY=***",
    "password=sk-ant-hunter2": "password=sk-ant-***",
    "Options(api_key=b'hunter2', model='x')": "Options(api_key=b'***', model='x')",
    "Options(api_key=SecretStr('hunter2'), model='x')": "Options(api_key=SecretStr('***'), model='x')",
    'Config { api_key: Some("hunter2"), n: 1 }': 'Config { api_key: Some("***"), n: 1 }',
    "Options(credentials=('me', 'hunter2'), n=1)": "Options(credentials=(***), n=1)",
    'password = """hunter2"""\nn = 1': 'password = """***"""\nn = 1',
    "[('Authorization', 'Token hunter2'), ('a', 'b')]": "[('Authorization', 'Token ***'), ('a', 'b')]",
    "[(b'a', b'b'), (b'x-api-key', b'hunter2')]": "[(b'a', b'b'), (b'x-api-key', b'***')]",
    '[["x-api-key", "hunter2"], ["a", "b"]]': '[["x-api-key", "***"], ["a", "b"]]',
    '[["a", "b"], ["x-api-key", "hunter2"]]': '[["a", "b"], ["x-api-key", "***"]]',
    r'{"log": "[[\"x-api-key\", \"hunter2\"]]"}': r'{"log": "[[\"x-api-key\", \"***\"]]"}',
    '[{"name": "API_KEY", "value": "hunter2"}]': '[{"name": "API_KEY", "value": "***"}]',
    '{\n  "Key": "password",\n  "Value": "hunter2"\n}': '{\n  "Key": "password",\n  "Value": "***"\n}',
    "os.environ['API_KEY'] = 'hunter2'": "os.environ['API_KEY'] = '***'",
    "Server=h;Uid=sa;Pwd=hunter2;": "Server=h;Uid=sa;Pwd=***;",
    "machine h login me password hunter2": "machine h login me password ***",
    "machine h\n  login me\n  password hunter2\n": "machine h\n  login me\n  password ***\n",
    "<user>me</user><password>hunter2 &amp; hunt</password>": "<user>me</user><password>***</password>",
    '> Cookie: a=1; session="hunter2"; b=hunter2\nHost: h': "> Cookie: ***\nHost: h",
    "Ocp-Apim-Subscription-Key: hunter2": "Ocp-Apim-Subscription-Key: ***",
    "SECRET_KEY_BASE=hunter2": "SECRET_KEY_BASE=***",
    "_auth=hunter2": "_auth=***",
}

HARMLESS = [
    "",
    "input_tokens: 5, output_tokens=7",
    '{"max_tokens": 1024, "token_count": 3, "tokens": 12, "usage": {"cache_read_input_tokens": 9}}',
    '{"tokenSource": "none", "apiKeySource": "ANTHROPIC_API_KEY", "credential_expires_at": null}',
    "session_id=0f8fad5b-d9cb-469f-a165-70867728950e uuid: 7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "/home/me/secrets/token.txt /usr/lib/node_modules/@anthropic-ai/claude-code/cli.js",
    "PWD=/home/me OLDPWD=/tmp HOME=/home/me PATH=/usr/bin:/bin",
    "token: expired",
    "pass --token to log in",
    "password: required, secret: missing",
    "Authorization: failed for this account",
    '{"password": "", "token": null, "secret": true}',
    "next_page_token=abc123 cost_per_token=0.01 time_to_first_token: 5",
    "http://localhost:8080/path@x mailto:me@example.org git@github.com:a/b ssh://git@host/x",
    "http://localhost:3000?user=me@example.org",
    "task-0123456789abcdef risk-0123456789abcdef sk-learn disk-image-0123456789",
    "Basic usage and bearer authentication, Bearer tokens",
    "WWW-Authenticate: Bearer realm=x",
    '{"required": ["password", "email"]}',
    '[{"name": "accept", "value": "x"}, {"name": "API_KEY"}]',
    "<token> is missing; usage: x --token <token>",
    "docker run -u 1000:1000 img --user root:root; curl -sS https://h -o x",
    "login as admin: password authentication failed",
    "http://[::1]:8080/x@y https://h:8443/a@b registry.example.com:5000/app@sha256:0123",
    "sig=9 sig: SIGTERM ?sig=short",
    "cd /tmp; PWD=/home/me",
    "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
    "secret::Type token::new()",
    "model: claude-sonnet-4-5-20250929 toolu_01A09q90qw90lq917835lq9 msg_01XFDUDYJgAACzvnptvVoYEL",
    "signature: EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk",
]

SECRETS = """
    api_key apiKey API_KEY x-api-key X-Goog-Api-Key OPENAI_APIKEY ANTHROPIC_API_KEY --api-key token
    GITHUB_TOKEN accessToken refresh_token refreshTokens sessionToken x-auth-token secret client_secret
    clientSecret SECRETS AWS_SECRET_ACCESS_KEY password PGPASSWORD db.password passwd passphrase credential
    credentials Authorization Proxy-Authorization cookie Set-Cookie privateKey private_key AccountKey
    MYSQL_PWD userPwd DB_PASS SMTP_PW API_KEY_2 TOKEN_PROD
"""
SECRET_NAMES = SECRETS.split()

OTHERS = """
    tokens input_tokens max_tokens maxTokens token_count tokenSource token_type tokenizer apiKeySource key
    keys session_id sessionId uuid path name PWD OLDPWD pwd secretary password_required_by signature nextToken
    page_token progressToken cookie_policy tests_pass BYPASS author authored credential_expires_at AWS_REGION
"""
HARMLESS_NAMES = OTHERS.split()

ATTACKS = [
    *"a1-_.\\\"' =:@&{[]}\n\té",
    *(
        "://",
        "://a:",
        "://u:@",
        "=>",
        "\\n",
        "***",
        "\x1b[1m",
        "api ",
        "api key",
        "secret ",
        "value",
        "1value",
    ),
    *(
        "sk-",
        "sk-a",
        "sk-ant-",
        "eyJ",
        "eyJaaaaa.",
        "eyJaaaaa-",
        "Bearer ",
        "Basic ",
        "basic a",
        "AKIA",
        "AIza-",
    ),
    *(
        "ghp_",
        "xoxb-",
        "password=",
        'password="',
        'password=\\"',
        "password: [",
        "Cookie: ",
        "token ",
        "--token ",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN A ",
        "-----",
        "a:",
        ":a",
        "a=",
        "a\\",
        '\\"',
        "\\'\"",
        "token:",
    ),
    *(
        "curl ",
        "curl -u a:",
        "login a ",
        "login a password ",
        "<token>",
        "<a></",
        "('token',",
        "[['token', ",
        "[[",
        '"name":"token",',
        "token=(",
        "token=('",
        "token=SecretStr(",
        "token=b'",
        "'Cookie: a",
        ";pwd=",
        "&sig=a",
        "SG.a",
        "token='''",
        "['token']",
        "://a:b/",
        'token:"\\',
        'token="\n',
        "token=)",
        "token=\\",
        "1meyJ",
        "https://aaaaaaaaaaaaaaaaaaaaaaaaa",
        "a.b-c_d",
    ),
]


@every_case("text", BY_SHAPE)
@every_case("around", ["{}", "before {} after", "={}", "({})", '"{}"', "\n{}\n", "\x1b[31m{} "])
def test_a_secret_is_known_by_its_shape(text: str, around: str) -> None:
    masked = mask(around.format(text))
    assert BY_SHAPE[text] in masked
    assert BODY not in masked
    assert mask(masked) == masked


def test_a_token_after_an_escaped_line_break_is_found() -> None:
    assert mask(rf"one\nsk-{BODY}\ttwo") == rf"one\nsk-{MASK}\ttwo"


@every_case("text", BY_NAME)
def test_a_secret_is_known_by_its_name(text: str) -> None:
    masked = mask(text)
    assert masked.startswith(BY_NAME[text])
    assert "hunt" not in masked
    assert mask(masked) == masked


@every_case("text", HARMLESS)
def test_harmless_text_is_left_alone(text: str) -> None:
    assert mask(text) == text


@pytest.mark.parametrize("depth", range(5))
def test_json_in_json_is_masked_and_stays_json(depth: int) -> None:
    text = json.dumps({"api_key": 'a"b\\', "n": 5, "password": f"{BODY}\n", "last": "seen"})
    for _ in range(depth):
        text = json.dumps(text)
    text = mask(text)
    value: object = text
    for _ in range(depth + 1):
        value = json.loads(str(value))
    assert value == {"api_key": MASK, "n": 5, "password": MASK, "last": "seen"}


@every_case("name", SECRET_NAMES)
def test_a_name_says_secret(name: str) -> None:
    assert is_secret_key(name)


@every_case("name", HARMLESS_NAMES)
def test_a_name_says_nothing(name: str) -> None:
    assert not is_secret_key(name)


def test_json_is_masked_by_name_and_by_shape() -> None:
    value: dict[str, object] = {
        "credentials": {"accessToken": "x", "list": ["y", 5, True, None]},
        "headers": [{"name": "X-Api-Key", "value": "z"}, {"name": "Accept", "value": "*/*"}],
        "password": 1234,
        "note": f"use sk-ant-{BODY}",
        f"sk-ant-{BODY}": 1,
        "usage": {"input_tokens": 5},
        "empty": {"token": ""},
    }
    before = copy.deepcopy(value)
    assert mask_json(value) == {
        "credentials": {"accessToken": MASK, "list": [MASK, MASK, True, None]},
        "headers": [{"name": "X-Api-Key", "value": MASK}, {"name": "Accept", "value": "*/*"}],
        "password": MASK,
        "note": "use sk-ant-***",
        "sk-ant-***": 1,
        "usage": {"input_tokens": 5},
        "empty": {"token": ""},
    }
    assert value == before


def test_headers_and_environments_are_masked_however_they_are_written() -> None:
    value: dict[str, object] = {
        "pairs": [["X-Api-Key", "x"], ("Cookie", 5), ["accept", "*/*"], ["token", "a", "b"]],
        "environment": [{"Name": "DB_PASSWORD", "Value": "x"}, {"key": "secret", "value": "x"}],
        "required": ["password", "email"],
    }
    assert mask_json(value) == {
        "pairs": [["X-Api-Key", MASK], ["Cookie", MASK], ["accept", "*/*"], ["token", "a", "b"]],
        "environment": [{"Name": "DB_PASSWORD", "Value": MASK}, {"key": "secret", "value": MASK}],
        "required": ["password", "email"],
    }


def test_json_too_deep_to_look_into_is_hidden_whole() -> None:
    deep: list[object] = [BODY]
    for _ in range(100_000):
        deep = [deep]
    value: object = {"a": deep}
    assert mask_json(value) == MASK


def test_a_command_line_is_masked() -> None:
    argv = ["claude", "--token", "-abc", "--password", "--verbose", "--api-key=a b", "FOO_TOKEN=a b", "-v"]
    argv += ["--max-tokens", "5", "--mcp-config", '{"env": {"LINEAR_API_KEY": "x"}}', "--env=SECRET=y", "a=b"]
    assert mask_argv(argv) == [
        *("claude", "--token", "***", "--password", "--verbose", "--api-key=***", "FOO_TOKEN=***", "-v"),
        *(
            "--max-tokens",
            "5",
            "--mcp-config",
            '{"env": {"LINEAR_API_KEY": "***"}}',
            "--env=SECRET=***",
            "a=b",
        ),
    ]


def test_a_preview_is_short_and_never_cuts_a_secret_open() -> None:
    assert preview("short") == "short"
    assert preview("x" * 300) == "x" * 200 + "…"
    assert preview(b"caf\xc3\xa9 \xff") == "café �"
    for position in range(150, 210):
        assert BODY[:4] not in preview("x" * position + f" sk-ant-{BODY}" * 9)
    assert len(preview("password=" + "x" * 10_000_000)) < 220


def test_users_add_names_and_patterns_of_their_own() -> None:
    own = DEFAULT.with_keys("ssn", "Patient-ID").with_patterns(
        r"ACME-\d+", re.compile(r"room (?P<secret>\w+)")
    )
    text = "SSN=123 patient_id: 4 at ACME-77 in room 12b, lesson=5, API_KEY=x"
    masked = "SSN=*** patient_id: *** at *** in room ***, lesson=5, API_KEY=***"
    assert own.mask(text) == masked
    assert own.mask(masked) == masked
    assert own.mask_json({"ssn": "1", "a": "ACME-1"}) == {"ssn": MASK, "a": MASK}
    assert own.mask_argv(["--ssn", "1"]) == ["--ssn", MASK]
    assert mask(text) == text.replace("API_KEY=x", "API_KEY=***")


def test_a_pattern_that_matches_nothing_or_only_the_mask_does_no_harm() -> None:
    assert Redaction(patterns=["x*"]).mask("axxb") == "a***b"
    assert Redaction(patterns=[r"\*+", "(?P<secret>b)?c"]).mask("*** c bc") == "*** c ***c"


def test_a_redaction_is_a_value() -> None:
    one = Redaction(keys=["a_b"], patterns=["x"])
    assert one == Redaction(keys=["A-B", "a_b"], patterns=["x", "x"])
    assert hash(one) == hash(Redaction(keys=["A-B"], patterns=["x"]))
    assert one != DEFAULT
    assert one != "x"
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    assert repr(DEFAULT.with_keys("k").with_patterns("hunter2")) == "Redaction(keys=('k',), patterns=<1>)"


def test_the_command_line_of_a_server_is_masked_in_json_and_in_text() -> None:
    server = {"command": "serve", "args": ["--api-key", "hunter2", "-v", "--token", "--port", "80"]}
    hidden = {"command": "serve", "args": ["--api-key", "***", "-v", "--token", "--port", "80"]}
    assert mask_json(server) == hidden
    text, expected = json.dumps(server), json.dumps(hidden)
    for _ in range(3):
        assert mask(text) == expected
        text, expected = json.dumps(text), json.dumps(expected)


@every_case("attack", ATTACKS)
def test_time_is_linear(attack: str) -> None:
    mask("warm up")
    before = time.process_time()
    mask(attack * (60_000 // len(attack)))
    mask("token=" + attack * (60_000 // len(attack)))
    # A quadratic pattern takes minutes for this, a linear one a tenth of a second.
    assert time.process_time() - before < 5


def test_patterns_are_compiled_on_first_use() -> None:
    code = "import outrider.errors; from outrider.redaction import patterns as made\n"
    code += "raise SystemExit(made.cache_info().currsize)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


words = st.lists(st.text(string.ascii_letters, min_size=1, max_size=12), max_size=8).map(" ".join)
pieces = st.sampled_from(
    [*BY_SHAPE, *BY_NAME, *HARMLESS, *ATTACKS, *SECRET_NAMES, "required", ",", ";", "<", ")"]
)
bodies = st.text(string.ascii_letters + string.digits, min_size=20, max_size=40).map(
    lambda text: f"{text}9zZ"
)
shapes = st.sampled_from(
    [
        *("sk-ant-api03-{}", "sk-{}", "ghp_{}", "github_pat_{}", "xoxp-{}", "hf_{}", "eyJabcde.{}.sig"),
        *("Bearer {}", "Authorization: Basic {}", "Cookie: sid={}; theme=dark", "https://user:{}@host"),
        *("curl -u a:{} h", "ya29.{}", "amqp://u:a/{}@h", "https://h/?sig={}"),
        "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----",
    ]
)
pairs = st.sampled_from(
    [
        *("{}={}", "{}: {}", "{} = {}", '"{}": "{}"', "'{}':'{}'", '\\"{}\\": \\"{}\\"', "{}=>'{}'"),
        *(
            "('{}', '{}')",
            "[(b'{}', b'{}')]",
            "{}=Secret('{}')",
            '{{"name":"{}","value":"{}"}}',
            "x['{}']='{}'",
        ),
    ]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | pieces,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | pieces, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.text(), shapes, bodies, st.text())
def test_a_planted_shape_never_survives(before: str, shape: str, body: str, after: str) -> None:
    assert body not in mask(f"{before}\n{shape.format(body)}\n{after}")


@given(st.text(), pairs, st.sampled_from(SECRET_NAMES), bodies, st.text())
def test_a_planted_pair_never_survives(before: str, pair: str, name: str, body: str, after: str) -> None:
    assert body not in mask(f"{before}\n{pair.format(name, body)}\n{after}")


@given(st.lists(words | st.sampled_from(HARMLESS) | st.uuids().map(str) | st.integers().map(str), max_size=6))
def test_harmless_pieces_stay_harmless_together(parts: list[str]) -> None:
    text = "\n".join(parts)
    assert mask(text) == text


@example("sk-ant-api03-k3yBody0123456789abcdefXYZ_-xcurl curl -u a:curl -u a:sk-ant-api03-k3yBody0123456789")
@given(st.lists(pieces | st.text(max_size=6), max_size=10).map("".join))
def test_masking_twice_changes_nothing(text: str) -> None:
    masked = mask(text)
    assert mask(masked) == masked


@given(json_values)
def test_masking_json_twice_changes_nothing(value: object) -> None:
    masked = mask_json(value)
    assert mask_json(masked) == masked


@given(json_values, st.sampled_from(SECRET_NAMES), bodies)
def test_a_secret_planted_in_json_never_survives(value: object, name: str, body: str) -> None:
    planted = {"x": [value, {name: {"deep": [body, f"{body}!"]}}], name: body, "text": f"{name}={body}"}
    assert body not in json.dumps(mask_json(planted))


@given(st.lists(words, max_size=4), st.sampled_from(SECRET_NAMES), bodies, st.lists(words, max_size=4))
def test_a_secret_planted_in_a_command_line_never_survives(
    before: list[str], name: str, body: str, after: list[str]
) -> None:
    flag = name if name.startswith("-") else f"--{name}"
    for planted in ([flag, body], [f"{flag}={body}"], [f"{name}={body}"], [f"--env={name}={body}"]):
        argv = mask_argv([*before, *planted, *after])
        assert body not in " ".join(argv)
        assert len(argv) == len(before) + len(planted) + len(after)
        assert mask_argv(argv) == argv
