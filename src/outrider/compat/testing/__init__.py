"""Checks for session stores of your own."""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.compat.testing.session_store_conformance import (
        run_session_store_conformance as run_session_store_conformance,
    )
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
