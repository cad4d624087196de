"""Sessions as Markdown and HTML to read, and as JSON that is the session."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OptionsError
from outrider.transcripts import Bundle
from outrider.transcripts._copies import imported
from outrider.transcripts._export import formats
from outrider.transcripts._export.formats import fenced
from outrider.transcripts._export.turns import exported
from outrider.wire import JsonObject
from tests.cases import every_case
from tests.transcripts.keeping import KEY, bundle
from tests.transcripts.lines import SESSION, answer, boundary, line, prompt, title
from tests.transcripts.made_up import transcripts

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SECRET = "sk-ant-api03-abcdefghijklmnop"


def said(*blocks: JsonObject, kind: str = "assistant") -> Bundle:
    """A session in which these blocks were said."""
    entries = [prompt("u1", None, "Begin")]
    for number, block in enumerate(blocks, 2):
        message = {"role": kind, "id": "m1", "content": [block]}
        entries.append(line(kind, f"u{number}", f"u{number - 1}", message=message))
    return Bundle(session_id=SESSION, project=KEY, entries=entries)


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def call(given: Any, name: str = "Bash") -> JsonObject:
    return {"type": "tool_use", "id": "call-1", "name": name, "input": given}


# Markdown


def test_markdown_tells_the_session_in_its_order() -> None:
    shown = exported(bundle())
    parts = ["# Titled", SESSION, "/srv/project", "> Begin", "**Tool: Bash**", '"command": "run u2"']
    parts += [
        "*Result:*",
        "output u3",
        "answer u6",
        "> Go on",
        "answer u8",
        "## Subagents",
        "### Look (Explore, first)",
    ]
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)
    assert "Subagent: Look (Explore, first)" in shown
    assert shown.endswith("\n")


def test_a_call_without_a_result_says_so() -> None:
    assert "*No result.*" in exported(said(call({})))


def test_what_was_said_before_a_compaction_is_there() -> None:
    entries = [
        prompt("u1", None, "Before"),
        answer("u2", "u1"),
        boundary("u3", "u2"),
        prompt("u4", "u3", "Summary of it", isCompactSummary=True),
        prompt("u5", "u4", "After"),
    ]
    shown = exported(Bundle(session_id=SESSION, project=KEY, entries=entries))
    assert [shown.index(words) for words in ("> Before", "## Summary", "> After")] == sorted(
        shown.index(words) for words in ("> Before", "## Summary", "> After")
    )


@given(st.text(alphabet="`~ \nab", max_size=60))
def test_a_fence_is_longer_than_any_in_the_code(code: str) -> None:
    first, *inside, last = fenced(code).split("\n")
    assert first == last
    assert set(first) == {"`"}
    assert "\n".join(inside) == code
    assert all(first not in line for line in inside)


@every_case(
    "words, expected",
    [
        ("```python\nopen", "```python\nopen\n```"),
        ("~~~~\n```\nopen", "~~~~\n```\nopen\n~~~~"),
        ("```\nclosed\n```", "```\nclosed\n```"),
        ("````\n```\nopen", "````\n```\nopen\n````"),
        ("# Heading", "### Heading"),
        ("##### Deep", "###### Deep"),
        ("```\n# code\n```", "```\n# code\n```"),
        ("<!-- open", "&lt;!-- open"),
        ("<script>", "&lt;script>"),
        ("List<T>, `List<T>`, a < b", "List&lt;T>, `List<T>`, a < b"),
        ("Not a heading\n===", "Not a heading\n\\==="),
    ],
)
def test_markdown_of_the_agent_cannot_swallow_what_follows(words: str, expected: str) -> None:
    shown = exported(said(text(words)))
    assert shown.endswith(f"\n\n{expected}\n")


def test_a_prompt_cannot_pass_for_another_turn() -> None:
    shown = exported(
        Bundle(session_id=SESSION, project=KEY, entries=[prompt("u1", None, "x\n## Agent\n```")])
    )
    assert "\n> x\n> #### Agent\n> ```\n> ```\n" in shown
    assert re.findall("(?m)^## .*", shown) == ["## User · 2026-03-01 12:00:00 UTC"]


def test_a_title_is_one_line_without_meaning() -> None:
    entries = [prompt("u1"), title("a\n# *b* <i>|")]
    shown = exported(Bundle(session_id=SESSION, project=KEY, entries=entries))
    assert shown.startswith("# a \\# \\*b\\* \\<i\\>\\|\n")


# HTML


class Reader(HTMLParser):
    """Sees whether all elements are closed, and which there are."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes += attrs
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


EMPTY = {"img", "meta", "br", "hr"}
KNOWN = re.compile(
    "html|head|meta|title|style|body|article|header|h1|d[ldt]|section|p|time|div|details|summary|b|span|pre"
    "|code|img"
)
OF_MARKDOWN = re.compile("h[3-6]|em|strong|s|[uo]l|li|blockquote|hr|br|table|thead|tbody|tr|th|td")
ATTRIBUTES = {"class", "alt", "src", "start", "style"}


def check(page: str) -> None:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert [tag for tag in reader.seen if not (KNOWN.fullmatch(tag) or OF_MARKDOWN.fullmatch(tag))] == []
    body = page[page.index("<body>") :]
    reader = Reader()
    reader.feed(body.removesuffix("</html>\n"))
    assert {name for name, _ in reader.attributes} <= ATTRIBUTES
    assert all(
        value.startswith("text-align:") for name, value in reader.attributes if name == "style" and value
    )
    sources = [value or "" for name, value in reader.attributes if name == "src"]
    assert all(value.startswith("data:image/") for value in sources)


def test_html_is_a_page_with_all_of_it() -> None:
    page = exported(bundle(), "html")
    check(page)
    assert page.startswith('<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">')
    assert page.endswith("</article>\n</body>\n</html>\n")
    for words in (
        "<title>Titled</title>",
        "<h1>Titled</h1>",
        "Begin",
        "run u2",
        "output u3",
        "answer u8",
        "Subagent: Look",
        "Look deeper",
    ):
        assert words in page
    assert page.count("Subagent: Look<") == 1


MARKDOWN = """\
# Found
*It* is in `cache.py`:

```python
def leak(): pass
```

| file | size |
|---|--:|
| a | 1 |

See [the page](https://example.org), [not this](javascript:alert(1)) ![nor this](https://example.org/x.png)
"""


def test_html_shows_markdown_of_the_agent_as_it_is_meant() -> None:
    page = exported(said(text(MARKDOWN)), "html")
    check(page)
    for words in (
        "<h3>Found</h3>",
        "<em>It</em>",
        '<span class="k">def</span>',
        '<td style="text-align:right">1</td>',
        # Nothing leads out of the page.
        "[the page](https://example.org), [not this](javascript:alert(1)) ![nor this](https://",
    ):
        assert words in page
    # What a person typed is shown as typed.
    asked = Bundle(session_id=SESSION, project=KEY, entries=[prompt("u1", None, MARKDOWN)])
    assert "# Found\n*It* is" in exported(asked, "html")


def test_html_says_what_a_turn_took_and_cost() -> None:
    usage = {"input_tokens": 1000, "output_tokens": 234}
    message = {"role": "assistant", "id": "m1", "content": [text("Hello")], "usage": usage}
    at = "2026-03-01T12:00:{}.500Z".format
    entries = [
        prompt("u1", None, "Hi", timestamp=at("01")),
        line("assistant", "u2", "u1", message=message, timestamp=at("02")),
        line("assistant", "u3", "u2", message={**message, "content": [call({})]}, timestamp=at("03")),
        {"type": "cost-state", "totalCostUSD": 0.0123},
        prompt("u4", "u3", "On", timestamp=at("10")),
        line("assistant", "u5", "u4", message={**message, "id": "m2"}, timestamp=at("12")),
    ]
    page = exported(Bundle(session_id=SESSION, project=KEY, entries=entries), "html")
    assert '<p class="cost">2.0 s · 1,234 tokens · $0.0123</p>' in page
    assert '<p class="cost">2.0 s · 1,234 tokens</p>' in page
    assert "<dt>Cost</dt><dd>$0.0123</dd>" in page


def test_without_its_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    formats._markdown.cache_clear()
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    with pytest.raises(OptionsError, match=re.escape("pip install 'outrider[export]'")):
        exported(bundle(), "html")


HOSTILE = (
    "</code></pre><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    "&amp;`<b>`**<i>**\n```<u>\n</pre>\n"
)


@pytest.mark.parametrize(
    "kept",
    [
        said(text(HOSTILE)),
        said({"type": "thinking", "thinking": HOSTILE}),
        said(call({HOSTILE: HOSTILE}, HOSTILE)),
        said(
            call({"command": HOSTILE}), {"type": "tool_result", "tool_use_id": "call-1", "content": HOSTILE}
        ),
        said(
            {"type": HOSTILE},
            {"type": "image", "source": {"type": "base64", "media_type": HOSTILE, "data": HOSTILE}},
        ),
        Bundle(
            session_id=SESSION,
            project=KEY,
            entries=[prompt("u1", None, HOSTILE, cwd=HOSTILE), title(HOSTILE)],
        ),
        Bundle(
            session_id=SESSION,
            project=KEY,
            entries=[prompt("u1")],
            parts={HOSTILE: [{"type": "agent_metadata", "description": HOSTILE, "agentType": HOSTILE}]},
        ),
    ],
    ids=["text", "thought", "call", "result", "block", "facts", "agent"],
)
def test_all_of_the_session_is_escaped(kept: Bundle) -> None:
    page = exported(kept, "html")
    check(page)
    assert "<script" not in page
    assert "onerror=alert(1)>" not in page


@given(transcripts())
def test_html_is_sound_whatever_was_said(entries: list[JsonObject]) -> None:
    kept = Bundle(session_id=SESSION, project=KEY, entries=entries)
    check(exported(kept, "html"))
    assert exported(kept, "markdown").startswith("# ")


@pytest.mark.parametrize(
    "media_type, data, is_shown",
    [
        ("image/png", PNG, True),
        ("image/svg+xml", PNG, False),
        ("text/html", PNG, False),
        ("image/png", "not base64!", False),
        ("image/png", "", False),
        ("image/png", 'iVBO" onload="x', False),
    ],
)
def test_pictures_are_shown_if_they_are_some(media_type: str, data: str, is_shown: bool) -> None:
    source = {"type": "base64", "media_type": media_type, "data": data}
    page = exported(said({"type": "image", "source": source}, kind="user"), "html")
    check(page)
    assert (f'src="data:{media_type};base64,{data}"' in page) is is_shown
    assert ("<img" in page) is is_shown


def test_a_call_that_failed_is_marked() -> None:
    result = {"type": "tool_result", "tool_use_id": "call-1", "content": "no", "is_error": True}
    page = exported(said(call({}), result), "html")
    assert '<details class="call failed">' in page
    assert "*Error:*" in exported(said(call({}), result))


# Secrets


def secret_bundle() -> Bundle:
    kept = said(
        text(f"The key is {SECRET}"),
        call({"command": f"curl -H 'x-api-key: {SECRET}'", "password": "hunter2hunter2"}),
        {"type": "tool_result", "tool_use_id": "call-1", "content": f"echo {SECRET}"},
        {"type": "thinking", "thinking": SECRET},
    )
    kept.entries.append(title(f"About {SECRET}"))
    return kept


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_secrets_are_masked_for_readers_unless_they_are_wanted(form: Any) -> None:
    shown = exported(secret_bundle(), form)
    assert SECRET not in shown
    assert "hunter2" not in shown
    assert exported(secret_bundle(), form, redact=False).count(SECRET) >= 4


def test_json_is_the_session_unless_secrets_are_to_be_masked() -> None:
    assert imported(exported(secret_bundle(), "json")) == secret_bundle()
    masked = exported(secret_bundle(), "json", redact=True)
    assert SECRET not in masked
    assert imported(masked).session_id == SESSION


# JSON


def test_json_is_lossless() -> None:
    assert imported(exported(bundle(), "json")) == bundle()
    told = json.loads(exported(bundle(), "json"))
    assert (told["format"], told["version"]) == ("outrider-session", 1)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
lists = st.lists(
    st.dictionaries(st.text(max_size=5), values, max_size=4).map(lambda fields: {**fields, "type": "x"}),
    max_size=5,
)


@given(lists, st.dictionaries(st.sampled_from(["subagents/agent-a", "subagents/w/agent-b"]), lists))
def test_what_is_exported_is_what_is_imported(
    entries: list[JsonObject], parts: dict[str, list[JsonObject]]
) -> None:
    kept = Bundle(session_id=SESSION, project=KEY, entries=entries, parts=parts)
    assert imported(exported(kept, "json")) == kept


def test_lone_surrogates_and_huge_numbers_survive() -> None:
    kept = Bundle(session_id=SESSION, project=KEY, entries=[prompt("u1", None, "\ud83d \x00", n=10**40)])
    assert imported(exported(kept, "json")) == kept


def test_what_json_has_no_number_for_is_null() -> None:
    kept = Bundle(
        session_id=SESSION, project=KEY, entries=[prompt("u1", None, n=float("nan"), m=[float("inf")])]
    )
    [entry] = imported(exported(kept, "json")).entries
    assert (entry["n"], entry["m"]) == (None, [None])


@pytest.mark.parametrize("form", ["pdf", "", None, "HTML"])
def test_a_form_that_is_not_known_is_named(form: Any) -> None:
    with pytest.raises(OptionsError, match=re.escape(repr(form))):
        exported(bundle(), form)


@pytest.mark.parametrize("form", ["markdown", "html", "json"])
def test_a_session_with_nothing_in_it_can_be_exported(form: Any) -> None:
    shown = exported(Bundle(session_id=SESSION, project=KEY, entries=[]), form)
    assert SESSION in shown
