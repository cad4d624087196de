r"""Owns what counts as a secret and how it is hidden in anything that Outrider shows or records.

Does not decide where it is applied: errors, logs and cassettes each call it on their own text.

Three rules find a secret. Its *shape*: `sk-ant-…`, `Bearer …`, a JWT, a private key, a password in a URL.
Its *name*: `API_KEY=…`, `"accessToken": "…"`, `Authorization: …`. Or its *value*, where that is known:
`with_values`. What is hidden becomes `***`, after the part that tells what it was (`sk-ant-***`). To hide
twice is to hide once. Every pattern takes linear time, and a long text is searched in slices, so that a
thread that masks one does not keep an event loop waiting.
"""

from __future__ import annotations

from outrider.redaction._redaction import (
    DEFAULT,
    MASK,
    Redaction,
    is_secret_key,
    mask,
    mask_argv,
    mask_json,
    preview,
    preview_value,
)

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
