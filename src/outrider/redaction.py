"""Finds secrets in text and JSON, and hides them in everything that Outrider shows or records.

A secret is found by its *shape* (`sk-ant-…`, `Bearer …`, a JWT, a private key, a password in a URL), by its
*name* (`API_KEY=…`, `"accessToken": "…"`, `Authorization: …`), or by its *value*, if that is known
(`with_values`). It becomes `***`, after the part that tells its kind (`sk-ant-***`). Masking twice changes
nothing. Every pattern takes linear time, and a long text is searched in slices, so that masking in a thread
does not hold up an event loop.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from json import dumps
from typing import TYPE_CHECKING, Final, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "DEFAULT",
    "MASK",
    "Redaction",
    "is_secret_key",
    "mask",
    "mask_argv",
    "mask_json",
    "preview",
    "preview_value",
]


# What is a secret.

# Names are compared in lower case without separators, by their end: GITHUB_TOKEN, x-api-key and accessToken
# are secret, token_count, tokenSource and apiKeySource are not. "tokens" alone is a count and is left out.
_SECRET_NAMES = """
    token accesstokens apitokens authtokens refreshtokens secret secrets password passwords passwd passphrase
    passcode credential credentials authorization cookie cookies apikey apikeys accesskey secretkey privatekey
    signingkey encryptionkey masterkey accountkey authkey subscriptionkey secretkeybase clientkeydata
    amzsignature googsignature otlpheaders otlptracesheaders
"""
_HARMLESS_NAMES = """
    pertoken pagetoken nexttoken continuationtoken firsttoken eostoken bostoken padtoken stoptoken canceltoken
    cancellationtoken progresstoken
"""
_SECRET_ENDS, _HARMLESS_ENDS = tuple(_SECRET_NAMES.split()), tuple(_HARMLESS_NAMES.split())
HEADER_ENDS = ("authorization", "cookie", "cookies")
NAME_TAIL = 64
"""Only so much of a name is looked at; no name that people use is longer."""

# A name followed by one of these is a sentence ("token: expired", "pass --token to …"), not a pair.
_PROSE = """
    a an and are as at be but by can cannot check could denied does empty error expired failed false for from
    has have if in incorrect invalid is it may missing must no none not null of on option or please rejected
    required requires revoked run set should string the this to true undefined unknown unset use value was
    when which with wrong you your
"""
PLAIN_WORDS = frozenset(_PROSE.split())

WINDOW = 8192
"""Characters beyond the shown ones that a preview looks at, and beyond a slice that a search does."""

_SLICE: Final = 32768
"""Characters that one search looks at. No other thread can run while it does: a few milliseconds."""


class Patterns:
    """The patterns, compiled on first use: most programs that import Outrider never show an error. What keeps
    them linear: each starts at a boundary that cannot occur within what it consumes, also a run of
    backslashes only at its first one, repeats possessively, and looks ahead over a bounded distance only."""

    def __init__(self) -> None:
        # A token starts where no word is running, or right after an escaped line break or a colour code.
        start = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=\x1b\[\dm)|(?<=\x1b\[\d\dm)|(?<=\x1b\[\d;\d\dm))"
        # Most places are ruled out by two characters, which is four times as fast as to try each form.
        token = rf"""(?=[sr]k|g[hils]|x[ao]|np|h[fv]|py|ya|SG|A[A-Z]|ey|[Bb][EeAa])(?:
            (sk-ant-)[\w-]{{3,}}+
          | (github_pat_|glpat-|xox[a-z]-|xapp-)[\w-]{{8,}}+
          | {start}(?:
                (sk-(?:proj-|svcacct-|or-v1-)?+)(?:[\w-]{{16,}}+|(?=[\w-]{{0,15}}\d)[\w-]{{8,}}+)
              | ((?:sk|rk)_(?:live|test)_|gh[opsur]_|npm_|hf_|gsk_)[A-Za-z0-9]{{8,}}+
              | (AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}+(?![A-Za-z0-9])
              | (AIza)[\w-]{{30,}}+
              | (ya29\.|hvs\.|SG\.|pypi-|AGE-SECRET-KEY-)[\w.-]{{20,}}+
              | (?<![_-])(eyJ)[\w-]{{5,}}+\.[\w-]{{2,}}+(?:\.[\w-]*+){{0,3}}
              | ((?i:bearer)\s{{1,8}})(?!(?i:authenti|authori|credential|realm|scheme|token))
                    (?:[\w.~+/=-]{{8,}}+|(?=[\w.~+/=-]{{0,7}}\d)[\w.~+/=-]{{3,}}+)
              | ((?i:basic)\s{{1,8}})(?=[A-Za-z0-9+/]{{0,200}}(?:\d|[a-z][A-Z]|={{1,2}}(?![^\s"',;)])))
                    [A-Za-z0-9+/]{{8,}}+={{0,2}}
            )
        )"""
        self.private_key = re.compile(
            r"(-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----)[^-]*+(?:-(?!----)[^-]*+)*+"
        )
        # A slash is in a password only if a port, a path or an address of version 6 cannot be meant.
        self.url_password = re.compile(
            r"""(?<=://)(?:
                    ([^\s/?\#@:"'<>]*+:)(?!\d{1,5}[?\#])[^\s/"'<>](?:[^\s/"'<>@]*+@)++
                  | ([^\s/?\#@:"'<>\[]*+:)(?!\d{1,5}[/?\#])(?:[^\s"'<>/]|/(?!/))
                    (?:(?:[^\s"'<>/@]++|/(?!/))*+@)++
                  | [^\s/?\#@:"'<>*]{20,}+@
                )""",
            re.VERBOSE,
        )
        self.url_signature = re.compile(r"([?&]sig=)[\w%+/=.-]{16,}+")
        self.curl_password = re.compile(
            r"""(curl\s(?:[^\n|;&]{0,200}?\s)?(?:-u|--user|--proxy-user)[ =]["']?[^\s:"']{1,64}+:)[^\s"']++"""
        )
        self.token = re.compile(token, re.VERBOSE | re.ASCII)
        self.prefix = re.compile(
            r"(?i:bearer|basic|digest|token)\s+|sk-ant-|sk-proj-|sk-|github_pat_|glpat-|xox[a-z]-|xapp-"
            r"|(?:sk|rk)_(?:live|test)_|gh[opsur]_|npm_|hf_|gsk_|AKIA|ASIA|AIza|eyJ"
        )
        # name=value, --name value, ["--name", value], {"name": …, "value": …}, (name, value) and
        # [[name, value]], .netrc, XML.
        self.name = re.compile(
            r"""(?<![\w.-])(?<!://)(?:
                    ((?:(?:api|access|secret|private)[ ])?[\w.-]++)
                    (?:\\*+["']\]?)?[ \t]*+(=>|:=|={1,3}+|:(?!:))[ \t]*+
                  | (--[a-z][\w-]*+)[ \t]++(?!-)
                  | (?=[\\"'(\[l<])(?:
                    (?<!\\)\\*+["'](?:name|key)\\*+["']\s?:\s?\\*+["']([\w.-]++)\\*+["']\s?,
                    \s{0,64}+\\*+["']value\\*+["']\s?:\s?
                  | ["'](--[a-z][\w-]*+)\\*+["'],\s?(?=\\*+["'](?!-))
                  | (?:\(|(?<=[\[(,])\[|(?<=[\[(,]\s)\[)b?\\*+["']([\w.-]++)\\*+["'],\s?(?=b?\\*+["'])
                  | login[ \t]++[^\s]++\s++(password)[ \t]++
                  | <([\w.-]++)>(?=[^<\n]{1,512}</)
                    )
                )""",
            re.VERBOSE | re.ASCII | re.IGNORECASE,
        )
        # Before the quote, what tells the kind of a text (b"…"), or makes a value of it (SecretStr('…')).
        self.opening_quote = re.compile(
            r"""(?:[bfru]{1,2}|[a-z_][\w.]{0,63}+\(b?)?(\\*+)(["'])(?:\2\2)?""", re.ASCII | re.IGNORECASE
        )
        self.quote_or_line_end = re.compile(r"(?<!\\)(\\*+)([\"'])|[\r\n]")
        # A closing bracket or a backslash is part of a value only if more of the value follows.
        self.bare_value = re.compile(
            r"""(?: [^\s"'`,;&<>)\]}\\]++ | [)\]}](?![\s"'`,;&<>)\]}\\]|\Z) | \\(?![nrt"'\\]|\Z) )++""",
            re.VERBOSE,
        )
        self.header_value = re.compile(r"[^\r\n\"'\\]++")
        self.rest_of_line = re.compile(r"[^\r\n]++")
        self.flat_list = re.compile(r"\[([^\[\]{}]++)\]|\((?=b?\\*+[\"']|\*{3}\))([^()\[\]{}]++)\)")
        self.qualifier = re.compile(r"(?:\d|value|production|prod|dev|staging|live|base64|b64)++\Z")
        # `pass` only where it is a variable's: tests_pass and first_pass are counts.
        self.short_password = re.compile(r"(?:[_-](?i:pwd)|[a-z]Pwd|[A-Z0-9]_(?:PASS|PW)|\A_auth)\Z")


patterns = cache(Patterns)


@lru_cache(maxsize=1024)
def says_secret(name: str) -> bool:
    """Whether a name is secret by the built-in rules; the same few hundred names come again and again."""
    if patterns().short_password.search(name):
        return name.lower() != "old_pwd"
    folded = patterns().qualifier.sub("", fold(name))
    return folded.endswith(_SECRET_ENDS) and not folded.endswith(_HARMLESS_ENDS)


def fold(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def found_in(pattern: re.Pattern[str], text: str, start: int) -> re.Match[str] | None:
    """The next match from a place on, searched for slice by slice. One that begins in a slice is seen if what
    it is known by ends at most a window behind that."""
    while len(text) - start > _SLICE + WINDOW:
        found = pattern.search(text, start, start + _SLICE + WINDOW)
        if found is None or found.start() >= start + _SLICE:
            start += _SLICE
        # All of it: it may extend beyond the window.
        elif (whole := pattern.match(text, found.start())) is not None:
            return whole
        else:
            start = found.start() + 1
    return pattern.search(text, start)


def replaced(pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str], text: str) -> str:
    if len(text) <= _SLICE + WINDOW:
        return pattern.sub(replacement, text)
    pieces: list[str] = []
    done = 0
    while match := found_in(pattern, text, done):
        pieces += text[done : match.start()], replacement(match)
        done = match.end()
    return "".join((*pieces, text[done:]))


# How secrets are hidden.

MASK = "***"
"""What stands in place of a secret."""

_T = TypeVar("_T")

_LINE = 512
"""Characters before a header that are looked at; it may be quoted if its line is longer."""

_PASSES = 5
"""What is left around a hidden secret may have the shape of another: to mask again must change nothing."""

_WORD: Final = 32
"""Characters that are enough to tell whether a value begins with a plain word."""

SHORTEST_VALUE: Final = 8
"""Known values that are shorter are not looked for: half of a text would be hidden with `dev` or `1234`."""


class Redaction:
    """What to hide: the built-in rules, and what a user adds to them. A value: `with_…` gives a new one.

    `keys` are further names whose values are secret; case and separators do not matter. `patterns` are
    further regular expressions for secrets: all that one matches is hidden, or only its group `secret`.
    `values` are secrets themselves, which are hidden wherever they are, also as JSON or in a URL; those of
    less than 8 characters are left out.
    """

    __slots__ = ("_folded_keys", "_spellings", "keys", "patterns", "values")

    def __init__(
        self,
        *,
        keys: Iterable[str] = (),
        patterns: Iterable[str | re.Pattern[str]] = (),
        values: Iterable[str] = (),
    ) -> None:
        self.keys: tuple[str, ...] = tuple(dict.fromkeys(keys))
        compiled = (re.compile(each) if isinstance(each, str) else each for each in patterns)
        self.patterns: tuple[re.Pattern[str], ...] = tuple(dict.fromkeys(compiled))
        self.values: tuple[str, ...] = tuple(filter(_is_worth_hiding, dict.fromkeys(values)))
        self._folded_keys = frozenset(map(fold, self.keys))
        found = {spelling for value in self.values for spelling in _spellings(value)}
        # The longest first: one may be the beginning of another.
        self._spellings = tuple(sorted(found, key=lambda each: (-len(each), each)))

    def with_keys(self, *names: str) -> Redaction:
        """A redaction that hides the values of these names too."""
        return Redaction(keys=(*self.keys, *names), patterns=self.patterns, values=self.values)

    def with_patterns(self, *patterns: str | re.Pattern[str]) -> Redaction:
        """A redaction that hides what these patterns match too."""
        return Redaction(keys=self.keys, patterns=(*self.patterns, *patterns), values=self.values)

    def with_values(self, *values: str) -> Redaction:
        """A redaction that hides these texts too."""
        new = [value for value in values if value not in self.values]
        if not new:
            return self
        return Redaction(keys=self.keys, patterns=self.patterns, values=(*self.values, *new))

    def is_secret_key(self, name: str) -> bool:
        """Whether a variable, header, field or flag of this name holds a secret."""
        name = name[-NAME_TAIL:]
        return says_secret(name) or (bool(self.keys) and fold(name) in self._folded_keys)

    def mask(self, text: str) -> str:
        """The text with its secrets hidden."""
        # Most errors are made without a text of their own; to compile the patterns takes milliseconds.
        for _ in range(_PASSES if text else 0):
            masked = self._mask_once(text)
            if masked == text:
                break
            text = masked
        return text

    def mask_values(self, text: str) -> str:
        """The text with the known values hidden, and nothing else."""
        for spelling in self._spellings:
            text = text.replace(spelling, MASK)
        return text

    def _mask_once(self, text: str) -> str:
        text = self.mask_values(text)
        for pattern in self.patterns:
            text = pattern.sub(_hide_match, text)
        known = patterns()
        text = replaced(known.private_key, _hide_shape, text)
        text = replaced(known.url_password, _hide_before_host, text)
        for shape in (known.url_signature, known.curl_password, known.token):
            text = replaced(shape, _hide_shape, text)
        return self._mask_pairs(text)

    def preview(self, text: str | bytes, limit: int = 200) -> str:
        """The first `limit` characters of what `mask` makes of a text, which may be very long."""
        # Cut before masking, a secret might be split and not be known any more: cut far behind what is shown.
        window = text[: limit + WINDOW]
        masked = self.mask(window if isinstance(window, str) else window.decode("utf-8", "replace"))
        return masked if len(masked) <= limit and len(window) == len(text) else masked[:limit] + "…"

    def preview_value(self, value: object, limit: int = 200) -> str:
        """The same of a value's `repr`; only its class where that fails, or the value is too deep for one."""
        try:
            text = repr(value)
        except Exception:  # noqa: BLE001
            text = f"<{type(value).__name__}>"
        return self.preview(text, limit)

    def mask_json(self, value: _T) -> _T:
        """A copy of a JSON value with its secrets hidden, by the name they go under and by their shape. All
        of a value that is nested too deeply to look into is hidden."""
        try:
            return cast(_T, self._mask_node(value, secret=False))
        except RecursionError:
            return cast(_T, MASK)

    def secrets_in(self, value: object) -> list[str]:
        """What `mask_json` hides in a JSON value, so that it can be hidden where nothing tells it, too."""
        found: list[str] = []
        waiting = [(value, self.mask_json(value))]
        while waiting:
            original, hidden = waiting.pop()
            if isinstance(original, str) and isinstance(hidden, str):
                found += _between(original, hidden.split(MASK))
            elif isinstance(original, dict) and isinstance(hidden, dict):
                fields, masked = cast(dict[object, object], original), cast(dict[object, object], hidden)
                if len(fields) == len(masked):
                    waiting += zip(fields.values(), masked.values(), strict=True)
            elif isinstance(original, (list, tuple)) and isinstance(hidden, list):
                items = cast("Sequence[object]", original)
                waiting += zip(items, cast(list[object], hidden), strict=False)
        return found

    def mask_argv(self, argv: Sequence[str]) -> list[str]:
        """A command line with its secrets hidden: `--flag value`, `--flag=value`, `KEY=value` or any text."""
        masked: list[str] = []
        expects_secret = False
        for argument in argv:
            is_flag = argument.startswith("--") or (len(argument) == 2 and argument[0] == "-")
            name, equals, value = argument.partition("=")
            if expects_secret and not is_flag:
                masked.append(_hint(argument))
            elif equals and not re.search(r"[^\w.-]", name) and self.is_secret_key(name):
                masked.append(name + equals + _hint(value))
            else:
                masked.append(self.mask(argument))
            expects_secret = argument.startswith("-") and not equals and self.is_secret_key(argument)
        return masked

    def _mask_node(self, value: object, *, secret: bool) -> object:
        if isinstance(value, str):
            return _hint(value) if secret else self.mask(value)
        if isinstance(value, dict):
            fields = cast(dict[object, object], value)
            # {"name": "API_KEY", "value": "…"}, as headers and environments are often written.
            labels = [fields.get(name) for name in ("name", "Name", "key", "Key")]
            labelled = any(
                isinstance(label, str) and self.is_secret_key(self.mask(label)) for label in labels
            )
            masked: dict[object, object] = {}
            for key, child in fields.items():
                shown = self.mask(key) if isinstance(key, str) else key
                named = isinstance(shown, str) and self.is_secret_key(shown)
                masked[shown] = self._mask_node(
                    child, secret=secret or named or (labelled and key in ("value", "Value"))
                )
            return masked
        if isinstance(value, (list, tuple)):
            children = cast("Sequence[object]", value)
            # A command line, as those of servers are written.
            flagged = [False, *map(self._is_secret_flag, children)]
            return [
                self._mask_item(child, secret=secret or (after and not _is_flag(child)))
                for child, after in zip(children, flagged, strict=False)
            ]
        if secret and isinstance(value, (int, float)) and not isinstance(value, bool):
            return MASK
        return value

    def _mask_item(self, value: object, *, secret: bool) -> object:
        """What is in a list: [["x-api-key", "…"], …] is another way to write headers."""
        if isinstance(value, (list, tuple)):
            items = cast("Sequence[object]", value)
            if len(items) == 2 and isinstance(items[0], str) and self.is_secret_key(self.mask(items[0])):
                return [self._mask_node(items[0], secret=secret), self._mask_node(items[1], secret=True)]
            return self._mask_node(items, secret=secret)
        return self._mask_node(value, secret=secret)

    def _is_secret_flag(self, value: object) -> bool:
        return _is_flag(value) and "=" not in (name := cast(str, value)) and self.is_secret_key(name)

    def _mask_pairs(self, text: str) -> str:
        """Hide the values of names: `name=value`, `"name": "value"`, `--name value` and the like."""
        pattern = patterns().name
        pieces: list[str] = []
        done = position = 0
        while match := found_in(pattern, text, position):
            position = match.end()
            name = match[1] or match[match.lastindex or 0]
            # Alone it is a folder; in a connection string (`Uid=sa;Pwd=…`) it is none.
            is_password = name.lower() == "pwd" and text.startswith(";", match.start() - 1)
            if is_password or self.is_secret_key(name):
                start, end = _value_span(text, match)
                if start < end:
                    pieces += text[done:start], _hint(text[start:end])
                    done = position = end
        return "".join((*pieces, text[done:]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Redaction):
            return NotImplemented
        return (
            self._folded_keys == other._folded_keys
            and set(self.patterns) == set(other.patterns)
            and set(self.values) == set(other.values)
        )

    def __hash__(self) -> int:
        return hash((self._folded_keys, frozenset(self.patterns), frozenset(self.values)))

    def __repr__(self) -> str:
        # Patterns are counted, not shown: one may well be a secret in clear.
        values = f", values=<{len(self.values)}>" if self.values else ""
        return f"Redaction(keys={self.keys!r}, patterns=<{len(self.patterns)}>{values})"


def _is_flag(value: object) -> bool:
    return isinstance(value, str) and value.startswith("--")


def _between(text: str, parts: list[str]) -> list[str]:
    """What stood in a text between the parts that are left of it."""
    if len(parts) == 1 or MASK in text or not text.startswith(parts[0]):
        return []
    found: list[str] = []
    start = len(parts[0])
    for number, part in enumerate(parts[1:], 2):
        end = len(text) - len(part) if number == len(parts) else text.find(part or "\0", start)
        if end < start or not text.startswith(part, end):
            return []
        found.append(text[start:end])
        start = end + len(part)
    return found


def _is_worth_hiding(value: str) -> bool:
    return len(value) >= SHORTEST_VALUE and bool(value.strip("*"))


def _spellings(value: str) -> Iterator[str]:
    """The ways in which a known value is written: as it is, line by line, in JSON, in a URL."""
    from urllib.parse import quote

    lines = [line.strip() for line in value.splitlines()]
    # The frame of a key in PEM form is not a secret, and tells what was hidden.
    pieces = [line for line in lines if len(line) >= 2 * SHORTEST_VALUE and not line.startswith("-----")]
    for text in (value, *(pieces if len(lines) > 1 else ())):
        yield text
        yield dumps(text)[1:-1]
        yield dumps(text, ensure_ascii=False)[1:-1]
        yield quote(text, safe="", errors="replace")


def _hint(secret: str) -> str:
    """The mask for a value that is secret as a whole, after the part that tells its kind."""
    if not secret:
        return secret
    kind = patterns().prefix.match(secret)
    return (kind[0] if kind else "") + MASK


def _hide_shape(match: re.Match[str]) -> str:
    """What tells the kind of a secret, and the mask."""
    return (match[match.lastindex] if match.lastindex else "") + MASK


def _hide_before_host(match: re.Match[str]) -> str:
    return _hide_shape(match) + "@"


def _hide_match(match: re.Match[str]) -> str:
    """What a user's pattern leaves of its match."""
    text = match[0]
    group = "secret" if "secret" in match.re.groupindex else 0
    start, end = (index - match.start() for index in match.span(group))
    if start < 0 or start == end or text[start:end] == MASK:
        return text
    return text[:start] + MASK + text[end:]


def _value_span(text: str, name: re.Match[str]) -> tuple[int, int]:
    """Where the value after a name is; an empty span if there is none to hide."""
    known = patterns()
    start = name.end()
    if text.startswith("<", name.start()):
        return start, text.index("</", start)
    if items := known.flat_list.match(text, start):
        return items.span(items.lastindex or 0)
    if opening := known.opening_quote.match(text, start):
        return opening.end(), _closing_quote(text, opening)
    if text.startswith(("[", "{"), start):
        # The fields of an object have names of their own.
        return start, start
    pattern = known.bare_value
    if name[2] == ":" and fold(name[1][-NAME_TAIL:]).endswith(HEADER_ENDS):
        pattern = known.header_value if _may_be_quoted(text, name.start()) else known.rest_of_line
    # First only its first word: to read a line to its end for each name on it would take quadratic time.
    beginning = pattern.match(text, start, start + _WORD)
    words = beginning[0].split(None, 1) if beginning else []
    if words and words[0].lower().rstrip(".!?") in PLAIN_WORDS:
        return start, start
    value = pattern.match(text, start)
    return start, start + len(value[0].rstrip() if value else "")


def _may_be_quoted(text: str, position: int) -> bool:
    """Whether a place may be inside a quoted text, as far as the line before it tells."""
    before = text[max(0, position - _LINE) : position]
    line = before[max(before.rfind("\n"), before.rfind("\r")) + 1 :]
    return len(line) == _LINE or not {'"', "'", "\\"}.isdisjoint(line)


def _closing_quote(text: str, opening: re.Match[str]) -> int:
    """Where a quoted value ends: at a quote escaped as the opening one is, or less, or with the line."""
    depth, quote = len(opening[1]), opening[2]
    end = opening.end()
    for match in patterns().quote_or_line_end.finditer(text, end):
        if match[2] is None:
            return match.start()
        if match[2] == quote:
            # JSON in JSON in JSON escapes its quotes with 0, 1, 3, 7, … backslashes; more are in the value.
            escapes = len(match[1])
            if escapes < depth or escapes % (2 * depth + 2) == depth:
                return match.end() - 1 - min(escapes, depth)
    return len(text)


DEFAULT = Redaction()
"""The built-in rules alone, which all of Outrider uses unless told otherwise."""

mask = DEFAULT.mask
preview = DEFAULT.preview
preview_value = DEFAULT.preview_value
mask_json = DEFAULT.mask_json
mask_argv = DEFAULT.mask_argv
is_secret_key = DEFAULT.is_secret_key
