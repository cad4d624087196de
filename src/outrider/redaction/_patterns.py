"""Owns the names and the shapes of secrets, as patterns, and how they are searched for in a long text.

Hides nothing itself.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Names are compared in lower case without separators, by their end: GITHUB_TOKEN, x-api-key and accessToken
# are secret, token_count, tokenSource and apiKeySource are not. "tokens" alone is a count and is left out.
_SECRET_NAMES = """
    token accesstokens apitokens authtokens refreshtokens secret secrets password passwords passwd passphrase
    passcode credential credentials authorization cookie cookies apikey apikeys accesskey secretkey privatekey
    signingkey encryptionkey masterkey accountkey authkey subscriptionkey secretkeybase clientkeydata
    amzsignature googsignature
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
    """The patterns, compiled on first use: most programs that import Outrider never show an error.

    What keeps them linear: each starts at a boundary that cannot occur within what it consumes, also a run of
    backslashes only at its first one, repeats possessively, and looks ahead over a bounded distance only.
    """

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
    """The next match from a place on, searched for slice by slice.

    One that begins in a slice is seen if what it is known by ends at most a window behind that.
    """
    while len(text) - start > _SLICE + WINDOW:
        found = pattern.search(text, start, start + _SLICE + WINDOW)
        if found is None or found.start() >= start + _SLICE:
            start += _SLICE
        # All of it: it may go on behind the window.
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
