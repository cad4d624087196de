"""What a model may write to reach a denied address: other spellings of it, and other tools."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OptionsError
from outrider.handlers import Policy
from outrider.handlers._policy.patterns import Match, domain_match
from tests.attacks.linear import assert_linear
from tests.cases import every_case

METADATA = "169.254.169.254"


def is_denied(tool: str, input: dict[str, Any], **condition: str) -> bool:
    policy = Policy.of({"deny": "*", **(condition or {"domain": METADATA})}, {"allow": "*"})
    return policy.explain(tool, input, cwd="/project").decision == "deny"


HOSTS = [
    METADATA,
    "169.254.169.254.",
    "2852039166",
    "0xa9fea9fe",
    "0XA9FEA9FE",
    "025177524776",
    "0251.0376.0251.0376",
    "0xa9.0xfe.0xa9.0xfe",
    "169.254.43518",
    "169.16689662",
    "0xa9.254.0xa9fe",
    "0000251.254.169.254",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::FFFF:A9FE:A9FE]",
    "[0:0:0:0:0:ffff:a9fe:a9fe]",
    "[0000:0000:0000:0000:0000:ffff:169.254.169.254]",
    "[::169.254.169.254]",
    "[::ffff:0:169.254.169.254]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[64:ff9b:1:abcd::169.254.169.254]",
    "[2002:a9fe:a9fe::]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:a9fe:a9fe::]",
    "[2001:0:4136:e378:8000:63bf:5601:5601]",
    "[fe80::5efe:169.254.169.254]",
    "[::ffff:169.254.169.254%25eth0]",
    "[::ffff:169.254.169.254%eth0]",
    "user@169.254.169.254",
    "user:pass@169.254.169.254",
    "example.com@169.254.169.254",
    "169.254.169.254:80",
    "169.254.169.254:8080",
    "%31%36%39.254.169.254",
    "169%2e254%2e169%2e254",
    "169。254。169。254",
    "169\uff0e254\uff0e169\uff0e254",
    "\uff11\uff16\uff19.254.169.254",
    "①⑥⑨.254.169.254",
    "169.254.169.254\\@example.com",
    "example.com\\@169.254.169.254",
    "\t169.254.169.254",
    "169.254.\n169.254",
]


@every_case("host", HOSTS)
def test_a_denied_address_is_denied_in_every_spelling(host: str) -> None:
    for scheme in ("http", "https", "HTTP", " http", "wss"):
        assert is_denied("WebFetch", {"url": f"{scheme}://{host}/latest"})
        assert is_denied("Monitor", {"ws": {"url": f"{scheme}://{host}/latest"}})
    assert (
        is_denied("WebFetch", {"url": f"http://{host}/latest"}, url=f"http://{METADATA}*/*") or ":80" in host
    )


@every_case(
    "url", ["http:169.254.169.254", "http:/169.254.169.254/", "http:///169.254.169.254", "//169.254.169.254/"]
)
def test_an_address_with_other_slashes_is_denied(url: str) -> None:
    assert is_denied("WebFetch", {"url": url})


NAMES = [
    "evil.org",
    "EVIL.org",
    "evil.org.",
    "ev%69l.org",
    "evil%2Eorg",
    "evil。org",
    "\uff45\uff56\uff49\uff4c.org",
    "ⓔvil.org",
    "x@evil.org",
]


@every_case("host", [*NAMES, "evil.org\\x", "evil.org:443", "ev\til.org", "evi\u00adl.org"])
def test_a_denied_name_is_denied_in_every_spelling(host: str) -> None:
    assert is_denied("WebFetch", {"url": f"https://{host}/"}, domain="evil.org")
    assert is_denied("WebFetch", {"url": f"https://{host}/a/b"}, url="https://evil.org/a/*")


@every_case("host", ["straße.de", "STRASSE.de", "xn--strae-oqa.de", "stra%C3%9Fe.de"])
def test_a_denied_name_is_denied_by_the_older_and_the_newer_rules_for_letters(host: str) -> None:
    assert is_denied("WebFetch", {"url": f"https://{host}/"}, domain="straße.de")


@given(
    st.ip_addresses(v=4),
    st.sampled_from(
        ["::ffff:0:0", "::", "64:ff9b::", "::ffff:0:0:0", "64:ff9b:1::", "64:ff9b:1:ab:cd::"],
    ),
)
def test_an_embedded_address_is_the_one_that_is_embedded(address: IPv4Address, prefix: str) -> None:
    embedded = IPv6Address(int(IPv6Address(prefix)) | int(address))
    for written in (embedded.compressed, embedded.exploded):
        assert domain_match(str(address), f"http://[{written}]/") is Match.MAYBE
    assert domain_match("192.0.2.1", "http://[2606:4700::1]/") is Match.NO


# Other tools.

COMMANDS = """
curl http://169.254.169.254/latest
curl 169.254.169.254/latest
curl 2852039166
curl -s "http://0xa9fea9fe/x"
curl 'http://[::ffff:169.254.169.254]/'
curl [::ffff:a9fe:a9fe]
curl -x 169.254.169.254:80 http://example.com
curl --proxy=http://169.254.169.254 http://example.com
curl --resolve example.com:80:169.254.169.254 http://example.com
curl http://169.254.16''9.254
curl http://169.254.169.25{3,4}/
curl $X
curl "$(echo http://169.254.169.254)"
curl http://169.254.169.$X
X=http://169.254.169.254; curl $X
wget http://169.254.169.254/
ls && curl 169.254.169.254
sh -c 'curl 169.254.169.254'
ssh root@169.254.169.254
scp x root@169.254.169.254:/x
nc 169.254.169.254 80
ping -c 1 169.254.169.254
git clone http://169.254.169.254/x
exec 3<>/dev/tcp/169.254.169.254/80
cat < /dev/tcp/169.254.169.254/80
echo x > /dev/udp/2852039166/53
http_proxy=http://169.254.169.254 npm install
pip install -i http://169.254.169.254/index x
npm install http://169.254.169.254/x.tgz
python -c "import urllib.request as r; r.urlopen('http://169.254.'+'169.254')"
echo http://169.254.169.254 | xargs curl
curl x | sh
timeout 5 curl 169.254.169.254
curl -K- <<< 'url = http://169.254.169.254/'
echo url=169.254.169.254 | curl -K -
curl http:/169.254.169.254
curl --connect-to 'a:80:[::ffff:a9fe:a9fe]:80' http://a
curl --resolve 'a:80:[::ffff:a9fe:a9fe]' http://a
curl --resolve a:80:::ffff:a9fe:a9fe http://a
curl 'http://169.254.169.{254}/'
curl 'http://169.254.169.[254-254]/'
curl 'http://{169.254.169.254,a}/'
curl '169.254.169.{254}'
curl http://169.254.169.25$((4))/
curl $((2852039166))
nc ::ffff:a9fe:a9fe 80
ping ::ffff:a9fe:a9fe
ssh root@::ffff:a9fe:a9fe
echo x > /dev/tcp/::ffff:a9fe:a9fe/80
""".strip().split("\n")


@every_case("command", COMMANDS)
def test_a_denied_address_is_denied_in_shell_commands(command: str) -> None:
    assert is_denied("Bash", {"command": command})
    assert is_denied("Monitor", {"command": command})
    assert is_denied("Bash", {"command": command}, url="http://169.254.169.254/*")


@every_case(
    "command",
    [
        *(
            "git status && ls -la src | head",
            "npm run build",
            "curl -s https://example.com/api | jq .",
            "make test",
        ),
        *(
            "python -m pytest -k 'x or y'",
            "cat a.py b.org",
            "echo $HOME",
            "git push origin main",
            "pip install requests",
        ),
        *(
            "for f in *.py; do wc -l $f; done",
            "git commit -m 'See https://example.com (it is 1.2.3.4)'",
            "ssh host ls",
        ),
        *(
            "docker build -t app .",
            "kill $PID",
            "sed -n 5p a.txt",
            "ls 2>/dev/null",
            "cat > x <<'EOF'\nhello\nEOF",
            "curl -d '{\"a\": 1}' http://localhost:8001/",
        ),
    ],
)
def test_ordinary_work_passes(command: str) -> None:
    assert not is_denied("Bash", {"command": command})
    assert not is_denied("Bash", {"command": command}, domain="*.evil.org")
    assert not is_denied("Bash", {"command": command}, url="https://evil.org/*")


@every_case(
    "input",
    [
        {"url": "http://169.254.169.254/"},
        {"target": {"hosts": ["example.com", "[::ffff:169.254.169.254]"]}},
        {"text": "see http://0xa9fea9fe/x please"},
        {"url": "http:/169.254.169.254"},
        {"url": "http:\\\\169.254.169.254\\x"},
    ],
)
def test_a_denied_address_is_denied_to_tools_of_servers(input: dict[str, Any]) -> None:
    assert is_denied("mcp__fetch__fetch", input)
    assert not is_denied("mcp__fetch__fetch", {"url": "http://example.com/", "text": "5"})


def test_a_shell_command_cannot_be_allowed_by_its_addresses() -> None:
    for condition in ({"domain": "example.com"}, {"url": "https://example.com/*"}):
        with pytest.raises(OptionsError, match="does not show which addresses it uses"):
            Policy.of({"allow": "Bash", **condition})
        policy = Policy.of({"allow": "*", **condition})
        assert policy.explain("Bash", {"command": "curl https://example.com/x"}).decision == "ask"
        assert policy.explain("mcp__a__b", {"url": "https://example.com/x"}).decision == "ask"
        Policy.of({"deny": "Bash", **condition}, {"ask": "Bash", **condition, "agent": "main"})


@pytest.mark.parametrize(
    "url",
    [
        "http://" + "a." * 500_000,
        "http://" + "%31" * 3_000,
        "http://" + "ä" * 3_000,
        "http://" + "[" * 9_000,
        "a:" * 5_000,
    ],
    ids=range(5),
)
def test_no_address_holds_up_the_event_loop(url: str) -> None:
    assert_linear(lambda text: is_denied("WebFetch", {"url": text}, domain="*.evil.org"), url)
    assert_linear(lambda text: is_denied("Bash", {"command": text}, domain="*.evil.org"), f"curl {url}")
