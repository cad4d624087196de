"""What `outrider migrate` changes in Python, and what it says to look at."""

from __future__ import annotations

import ast
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.app._migrate.code import applied, read_code
from outrider.app._migrate.rules import RULES, SENTENCES, Counterpart
from tests.cases import every_case

THERE: Counterpart = {
    "": frozenset(
        (
            *("ClaudeAgentOptions", "ClaudeSDKClient", "CLIJSONDecodeError", "Transport", "TextBlock"),
            *(
                "create_sdk_mcp_server",
                "list_sessions",
                "query",
                "types",
                "testing",
                "_errors",
                "__version__",
            ),
        )
    ),
    "types": frozenset({"ClaudeAgentOptions", "HookEvent", "TextBlock"}),
    "testing": frozenset({"run_session_store_conformance"}),
    "_errors": frozenset({"MessageParseError"}),
}


def changed(text: str) -> str:
    return applied(text, read_code(text, THERE).edits)


def found(text: str) -> list[tuple[int, str]]:
    return [(each.line, each.rule) for each in read_code(text, THERE).findings]


IMPORTS = {
    "import claude_agent_sdk": "import outrider.compat as claude_agent_sdk",
    "import claude_agent_sdk as sdk": "import outrider.compat as sdk",
    "import claude_agent_sdk  as\tsdk # why": "import outrider.compat  as\tsdk # why",
    "import os, claude_agent_sdk, sys": "import os, outrider.compat as claude_agent_sdk, sys",
    "import claude_agent_sdk.types": "import outrider.compat as claude_agent_sdk",
    "import claude_agent_sdk.types as t": "import outrider.compat.types as t",
    "from claude_agent_sdk import query": "from outrider.compat import query",
    "from  claude_agent_sdk  import  query": "from  outrider.compat  import  query",
    "from\\\n claude_agent_sdk import query": "from\\\n outrider.compat import query",
    "from claude_agent_sdk import query as q, TextBlock": "from outrider.compat import query as q, TextBlock",
    "from claude_agent_sdk import *": "from outrider.compat import *",
    "from claude_agent_sdk import (\n    query,  # one\n\n    TextBlock,\n)": (
        "from outrider.compat import (\n    query,  # one\n\n    TextBlock,\n)"
    ),
    "from claude_agent_sdk.types import HookEvent": "from outrider.compat.types import HookEvent",
    "from claude_agent_sdk import types": "from outrider.compat import types",
    "from claude_agent_sdk._errors import MessageParseError": (
        "from outrider.compat._errors import MessageParseError"
    ),
    "from claude_agent_sdk.testing import run_session_store_conformance": (
        "from outrider.compat.testing import run_session_store_conformance"
    ),
    # What is public is in another place.
    "from claude_agent_sdk.client import ClaudeSDKClient": "from outrider.compat import ClaudeSDKClient",
    "from claude_agent_sdk.query import query": "from outrider.compat import query",
    "from claude_agent_sdk._internal.transport import Transport as T": (
        "from outrider.compat import Transport as T"
    ),
    "from claude_agent_sdk.testing.conformance import run_session_store_conformance": (
        "from outrider.compat.testing import run_session_store_conformance"
    ),
    # Wherever they are.
    "def f():\n\tfrom claude_agent_sdk import query": "def f():\n\tfrom outrider.compat import query",
    "try:\n    import claude_agent_sdk as s\nexcept ImportError:\n    s = None": (
        "try:\n    import outrider.compat as s\nexcept ImportError:\n    s = None"
    ),
    "if TYPE_CHECKING: from claude_agent_sdk import query": (
        "if TYPE_CHECKING: from outrider.compat import query"
    ),
    "'é😀'; import claude_agent_sdk as é": "'é😀'; import outrider.compat as é",
    "x = 1\x0c\nimport claude_agent_sdk as s": "x = 1\x0c\nimport outrider.compat as s",
    "a = '''\n'''; import claude_agent_sdk as s; b = 2": "a = '''\n'''; import outrider.compat as s; b = 2",
}

STRINGS = {
    'import_module("claude_agent_sdk")': 'import_module("outrider.compat")',
    "importlib.import_module('claude_agent_sdk.types')": "importlib.import_module('outrider.compat.types')",
    'pytest.importorskip(r"""claude_agent_sdk""")': 'pytest.importorskip(r"""outrider.compat""")',
    "types.ModuleType('claude_agent_sdk')": "types.ModuleType('outrider.compat')",
    "__import__('claude_agent_sdk', fromlist=['x'])": "__import__('outrider.compat', fromlist=['x'])",
    "__import__('claude_agent_sdk', {}, {}, ('x',))": "__import__('outrider.compat', {}, {}, ('x',))",
    "find_spec(name='claude_agent_sdk')": "find_spec(name='outrider.compat')",
    "mp.setattr('claude_agent_sdk.query', fake)": "mp.setattr('outrider.compat.query', fake)",
    "@mock.patch('claude_agent_sdk.ClaudeSDKClient.query')\ndef f(): pass": (
        "@mock.patch('outrider.compat.ClaudeSDKClient.query')\ndef f(): pass"
    ),
    "patch.dict('sys.modules', {'claude_agent_sdk': x})": "patch.dict('sys.modules', {'outrider.compat': x})",
    "patch.multiple(('claude_agent_sdk', 1))": "patch.multiple(('outrider.compat', 1))",
    "setitem(sys.modules, 'claude_agent_sdk', x)": "setitem(sys.modules, 'outrider.compat', x)",
    "patch('claude_agent_sdk.client.ClaudeSDKClient.query')": (
        "patch('outrider.compat.ClaudeSDKClient.query')"
    ),
    "patch('claude_agent_sdk.query.query')": "patch('outrider.compat.query')",
    "patch('claude_agent_sdk.types.TextBlock')": "patch('outrider.compat.types.TextBlock')",
    "sys.modules['claude_agent_sdk']": "sys.modules['outrider.compat']",
    "sys.modules.pop('claude_agent_sdk', None)": "sys.modules.pop('outrider.compat', None)",
    "'claude_agent_sdk' in sys.modules": "'outrider.compat' in sys.modules",
}

LEFT = (
    "import claude_agent_sdk_extras",
    "from my.claude_agent_sdk import query",
    "from . import claude_agent_sdk",
    "from .claude_agent_sdk import query",
    "import outrider.compat as claude_agent_sdk",
    "from claude_agent_sdk._internal.query import Query",
    "import claude_agent_sdk._internal.client",
    "from claude_agent_sdk._internal import query",
    "patch('claude_agent_sdk.client')",
    "patch('claude_agent_sdk._internal.query.Query')",
    "# import claude_agent_sdk",
    "x = 'claude_agent_sdk'",
    "print('claude_agent_sdk.query')",
    "logging.getLogger('claude_agent_sdk')",
    "mock.patch('claude_agent_sdk._internal.client.Query')",
    "mock.patch('claude_agent_sdk' '.query')",
    "import_module('claude_agent\\x5fsdk')",
    "import_module(f'claude_agent_sdk.{name}')",
    # It would give `outrider`.
    "__import__('claude_agent_sdk')",
    "__import__('claude_agent_sdk.types', fromlist=[])",
    "import claude_agent_sdk . types",
    "import claude_agent_\N{FULLWIDTH LATIN SMALL LETTER S}dk",
    "def f(x: 'claude_agent_sdk.TextBlock'): pass",
    "def broken(:\n    import claude_agent_sdk",
    "import claude_agent_sdk\0",
)


@every_case("before", [*IMPORTS, *STRINGS])
def test_the_name_is_replaced_and_nothing_else(before: str) -> None:
    assert changed(before) == {**IMPORTS, **STRINGS}[before]


@every_case("text", LEFT)
def test_what_is_not_the_module_is_left_alone(text: str) -> None:
    assert changed(text) == text


@pytest.mark.parametrize("kind, table", [("import", IMPORTS), ("string", STRINGS)], ids=["import", "string"])
def test_changes_are_counted_by_kind(kind: str, table: dict[str, str]) -> None:
    for before in table:
        assert [edit.kind for edit in read_code(before, THERE).edits] == [kind]


SDK = "from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, create_sdk_mcp_server, query\n"
LOOK: dict[str, list[tuple[str, int]]] = {
    "internal": [
        ("from claude_agent_sdk._internal.query import Query", 2),
        ("import claude_agent_sdk._internal.client", 2),
        ("import claude_agent_sdk as s\ns._internal.client", 3),
        ("patch('claude_agent_sdk._internal.client.Query')", 2),
    ],
    "unknown-name": [
        ("from claude_agent_sdk import query, Nonsense", 2),
        ("import claude_agent_sdk as s\n\ns.Nonsense", 4),
        ("from claude_agent_sdk.types import Nonsense", 2),
        ("from claude_agent_sdk import types as t\nt.Nonsense", 3),
    ],
    "older-package": [("from claude_code_sdk.types import X", 2), ("import claude_code_sdk", 2)],
    "private-attribute": [
        ("client = ClaudeSDKClient()\nclient._transport.write('')", 3),
        ("async def f():\n  async with ClaudeSDKClient() as c:\n    c._query", 4),
        ("def f(c: ClaudeSDKClient):\n  return c._query", 3),
        ("import outrider.compat\nc = outrider.compat.ClaudeSDKClient()\nc._query", 4),
        ("if c := ClaudeSDKClient(): c._query", 2),
        ("c: ClaudeSDKClient = make()\nc._query", 3),
        ("async def f():\n  c = await ClaudeSDKClient()\n  c._query", 4),
        ("class A:\n  def f(self):\n    self.c = ClaudeSDKClient()\n    self.c._query", 5),
    ],
    "server-instance": [
        ("config = create_sdk_mcp_server('x')\nconfig['instance'].run()", 3),
        ("create_sdk_mcp_server('x')['instance']", 2),
    ],
    "bundled": [
        ("import claude_agent_sdk as s\nPath(s.__file__)", 3),
        ("path = here / '_bundled' / 'claude'", 2),
    ],
    "string": [
        ("logging.getLogger('claude_agent_sdk')", 2),
        ("HIDDEN = ['os', 'claude_agent_sdk']", 2),
        ("import_module(f'claude_agent_sdk.{name}')", 2),
        ("sdk = __import__('claude_agent_sdk')", 2),
    ],
    "subclass": [
        ("from claude_agent_sdk import TextBlock\n\n@dataclass\nclass A(TextBlock): x: int = 0", 5),
        ("import claude_agent_sdk as s\nclass A(s.TextBlock):\n  def __init__(self): pass", 3),
        ("from claude_agent_sdk.types import TextBlock\nclass A(Mixin, TextBlock): pass", 3),
    ],
    "code-in-string": [("TEMPLATE = '''\nfrom claude_agent_sdk import query\n'''", 2)],
    "distribution": [
        ("raise RuntimeError('Try: pip install -U claude-agent-sdk.')", 2),
        ("version('claude-agent-sdk')", 2),
        ("pins = ['claude-agent-sdk[otel]>=0.1']", 2),
    ],
    "error-text": [("if 'JSON message exceeded' in str(error): pass", 2)],
    "spelling": [("import claude_agent_sdk . types", 2), ("patch('claude_agent_sdk' '.query')", 2)],
    "buffer-size": [
        ("ClaudeAgentOptions(\n  max_buffer_size=10\n)", 3),
        ("options = ClaudeAgentOptions()\noptions.max_buffer_size = 10", 3),
    ],
    "unlikely-error": [
        ("import claude_agent_sdk as s\ntry: pass\nexcept (OSError, s.CLIJSONDecodeError): pass", 4),
    ],
    "own-limit": [
        ("async def f():\n  c = ClaudeSDKClient()\n  await asyncio.wait_for(c.query('x'), 3)", 4),
        ("async def f():\n  with anyio.fail_after(3):\n    async for m in query(prompt=''): pass", 3),
    ],
    "own-reaper": [("os.kill(pid, 9)", 2), ("subprocess.run(['pkill', 'claude'])", 2)],
    "early-break": [
        ("async def f():\n  async for m in query(prompt=''):\n    if m: break", 3),
        ("async def f():\n  async for m in query(prompt=''):\n    return m", 3),
        ("async def f():\n  async for m in query(prompt=''):\n    try: pass\n    except OSError: break", 3),
    ],
}
FINE = (
    "self._transport.write('')",
    "config['instance']",
    "async def f():\n  async for m in query(prompt=''):\n    for x in m: break",
    "async def f():\n  async for m in others():\n    break",
    "async def f():\n  await asyncio.wait_for(sleep(1), 3)",
    "def f(x: 'claude_agent_sdk.TextBlock') -> 'claude_agent_sdk.TextBlock': pass",
    "try: pass\nexcept OSError: pass",
    "version('claude-agent-sdk-extras')",
    "from .types import Nonsense",
    "import claude_agent_sdk as s\ns.types.HookEvent, s.__doc__, s.query",
    "here / '_bundle'",
    "from claude_agent_sdk import TextBlock\nclass A(TextBlock):\n  x: int = 0\n  def f(self): pass",
    "@dataclass\nclass A(ClaudeAgentOptions): x: int = 0",
    "@dataclass\nclass A(TextBlock): pass",
)


@every_case("rule", LOOK)
def test_what_to_look_at_is_found_before_and_after_the_change(rule: str) -> None:
    for text, line in LOOK[rule]:
        assert found(SDK + text) == [(line, rule)]
        assert found(changed(SDK + text)) == [(line, rule)]


@every_case("text", FINE)
def test_what_only_looks_like_it_is_not_reported(text: str) -> None:
    assert found(SDK + text) == []


def test_a_program_that_does_not_use_the_sdk_has_nothing_to_be_looked_at() -> None:
    assert found("os.kill(1, 2)\nf(max_buffer_size=1)\n'JSON message exceeded'\n") == []


def test_every_rule_is_shown_to_find_something() -> None:
    assert LOOK.keys() == {*(rule.name for rule in RULES), "spelling"}


def test_every_finding_has_a_sentence_that_says_what_was_found() -> None:
    for rule, cases in LOOK.items():
        for text, _ in cases:
            (finding,) = read_code(SDK + text, THERE).findings
            assert finding.text[-1] == "."
            assert "{" not in finding.text
            assert finding.found in finding.text or "{found}" not in SENTENCES[rule]


def test_a_public_name_is_told_for_a_private_one() -> None:
    (finding,) = read_code("from claude_agent_sdk._internal.query import Query", THERE).findings
    assert "`ClaudeSDKClient` does what it does." in finding.text


def test_what_python_cannot_read_is_reported_with_its_line() -> None:
    assert found("import claude_agent_sdk\nx = (\n") == [(2, "syntax")]
    assert found("(" * 500 + ")" * 500)[0][1] == "syntax"


def test_deep_expressions_are_read() -> None:
    assert found(f"{SDK}async def f():\n  async for m in query():\n    x = {'+'.join('1' * 1500)}") == []


# Whatever a program looks like.

PIECES = st.sampled_from(
    [
        *(text for text in (*IMPORTS, *STRINGS, *LEFT) if "*" not in text and "\0" not in text),
        "x = 1  # claude_agent_sdk",
        "'''\r\nimport claude_agent_sdk'''",
        "é = 'ü'",
        "",
        "\x0c",
    ]
)


@settings(deadline=None, max_examples=150)
@given(st.lists(PIECES, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]), st.randoms(use_true_random=False))
def test_a_change_keeps_the_lines_and_the_syntax_and_is_made_once(
    pieces: list[str], end: str, random: random.Random
) -> None:
    joined = [f"{piece}; y = 2" if random.random() < 0.2 else piece for piece in pieces]
    text = "".join(piece.replace("\n", end) + end for piece in joined)
    after = changed(text)
    assert changed(after) == after
    assert after.count("\n") == text.count("\n")
    assert after.count("\r") == text.count("\r")
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        assert after == text
    else:
        ast.parse(after)


@settings(deadline=None, max_examples=100)
@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert not read_code(text, THERE).edits
