"""An address is allowed only if every program would read it in the same way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OptionsError
from outrider.handlers._policy.patterns import (
    Match,
    check_domain_pattern,
    check_url_pattern,
    domain_match,
    url_match,
)
from tests.cases import every_case


@every_case(
    "pattern, url, expected",
    [
        ("example.com", "https://example.com", Match.YES),
        ("example.com", "https://example.com/a?b#c", Match.YES),
        ("example.com", "http://EXAMPLE.com:8080/", Match.YES),
        ("Example.COM", "https://example.com./", Match.YES),
        ("example.com", "https://www.example.com/", Match.NO),
        ("example.com", "https://example.com.evil.org/", Match.NO),
        ("example.com", "https://evilexample.com/", Match.NO),
        ("*.example.com", "https://a.b.example.com/", Match.YES),
        ("*.example.com", "https://example.com/", Match.NO),
        ("*.example.com", "https://evil.org/.example.com", Match.NO),
        ("*.example.com", "https://evil.org?x.example.com", Match.NO),
        ("example.com", "https://example.com@evil.org/", Match.NO),
        ("evil.org", "https://example.com@evil.org/", Match.MAYBE),
        ("example.com", "https://user:pass@example.com/", Match.MAYBE),
        ("example.com", "https://example.com\\@evil.org/", Match.MAYBE),
        ("example.com", "https://example.com\\.evil.org/", Match.MAYBE),
        ("example.com", "https://exa\nmple.com/", Match.MAYBE),
        ("example.com", "https://example.com/\u2028", Match.MAYBE),
        ("example.com", "https://ex\u0430mple.com/", Match.NO),
        ("xn--exmple-4nf.com", "https://ex\u0430mple.com/", Match.MAYBE),
        ("127.0.0.1", "http://127.0.0.1/", Match.YES),
        ("127.0.0.1", "http://2130706433/", Match.MAYBE),
        ("127.0.0.1", "http://0x7f000001/", Match.MAYBE),
        ("127.0.0.1", "http://127.1/", Match.MAYBE),
        ("10.*", "http://10.0.0.1/", Match.YES),
        ("example.com", "example.com", Match.MAYBE),
        ("example.com", "None", Match.MAYBE),
        ("example.com", "", Match.MAYBE),
        ("example.com", "https://[::1", Match.MAYBE),
        ("example.com", "https://example.com:x/", Match.MAYBE),
        ("*", "https://example.com/", Match.YES),
        ("evil.org", "https://ev%69l.org/", Match.MAYBE),
        ("*.example.com", "https://evil.org%2f.example.com/", Match.MAYBE),
        ("evil.org", "https://evil.org\\x/", Match.MAYBE),
        ("evil.org", "https://evil.org\u3002/", Match.MAYBE),
        ("b\u00fccher.de", "https://xn--bcher-kva.de/", Match.YES),
        ("*.b\u00fccher.de", "https://a.b\u00fccher.de/", Match.MAYBE),
        ("example.com", "file://example.com/etc/passwd", Match.MAYBE),
        ("example.com", "//example.com/", Match.MAYBE),
        ("example.com", "wss://example.com/", Match.YES),
        ("example.com", "https://" + "\u00e4" * 100_000, Match.MAYBE),
    ],
)
def test_a_host_is_meant_by_its_name(pattern: str, url: str, expected: Match) -> None:
    assert domain_match(pattern, url) is expected


@every_case(
    "pattern, url, expected",
    [
        ("https://example.com", "https://example.com/any/path?x", Match.YES),
        ("https://example.com/", "https://example.com", Match.YES),
        ("https://example.com/", "https://example.com/a", Match.NO),
        ("https://example.com/docs/*", "https://example.com/docs/a/b?c=d", Match.YES),
        ("https://example.com/docs/*", "https://example.com/admin", Match.NO),
        ("https://example.com/docs/*", "https://example.com/docs/../admin", Match.MAYBE),
        ("https://example.com/docs/*", "https://example.com/docs/%2e%2e/admin", Match.MAYBE),
        ("https://example.com/admin/*", "https://example.com/%61dmin/x", Match.MAYBE),
        ("https://example.com/*", "http://example.com/a", Match.NO),
        ("http*://example.com/*", "http://example.com/a", Match.YES),
        ("https://example.com/*", "https://example.com:444/a", Match.YES),
        ("https://example.com:444/*", "https://example.com:444/a", Match.YES),
        ("https://example.com:444/*", "https://example.com/a", Match.NO),
        ("https://example.com:443/*", "https://example.com/a", Match.YES),
        ("https://*.example.com/*", "https://evil.org/.example.com/x", Match.NO),
        ("https://*.example.com/*", "https://a.example.com/x", Match.YES),
        ("https://example.com/*", "https://example.com@evil.org/", Match.NO),
        ("https://example.com/*", "nonsense", Match.MAYBE),
    ],
)
def test_a_url_is_meant_part_by_part(pattern: str, url: str, expected: Match) -> None:
    assert url_match(pattern, url) is expected


@pytest.mark.parametrize("pattern", ["https://example.com", "example.com/a", "example.com:80", ""])
def test_what_is_no_domain_is_refused(pattern: str) -> None:
    with pytest.raises(OptionsError) as caught:
        check_domain_pattern("`domain`", pattern)
    assert caught.value.hint


@pytest.mark.parametrize(
    "pattern", ["example.com", "example.com/*", "https:/x", "https://", "http://[::1]/*", "*", ""]
)
def test_what_is_not_made_like_a_url_is_refused(pattern: str) -> None:
    with pytest.raises(OptionsError) as caught:
        check_url_pattern("`url`", pattern)
    assert caught.value.hint


@given(st.text(st.sampled_from("example.comvil:/@\\#?%[]\n \u0430"), max_size=40))
def test_any_text_can_be_looked_at(text: str) -> None:
    for url in (text, f"https://{text}", f"https://example.com{text}"):
        assert domain_match("example.com", url) in Match
        assert url_match("https://example.com/*", url) in Match


@given(st.text(st.sampled_from("evil.org@\\:/#?"), min_size=1, max_size=20))
def test_what_follows_a_host_can_make_it_another_but_then_it_is_not_allowed(rest: str) -> None:
    url = f"https://example.com{rest}"
    if domain_match("example.com", url) is Match.YES:
        assert rest[0] in ":/#?."
