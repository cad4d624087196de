"""What hostile text is made of, for the tests of this folder.

Does not check anything.
"""

from __future__ import annotations

import re

FORGED = "FORGED"
"""Stands at the beginning of a line where the text of somebody else has made one."""

POISON = (
    "evil\x1b[31m\x1b]0;owned\x07\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\\x9b2J\x85\x90\x7f\x08\x00"
    "\u2028\u2029\u202e\u2066\u200b\u2060\u00ad\ufeff\u3164\U000e0041"
    f"\r\n{FORGED}\tx\n{FORGED}: a line\r{FORGED}\u2028{FORGED}\x85{FORGED}\x0b{FORGED}"
)
"""Escape codes, C1 controls, a title, a link, what turns text around, what cannot be seen, and lines."""

HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""What may be in nothing that is shown, written down once more: the test must not ask the code."""
