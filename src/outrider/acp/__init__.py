"""Serves agents to editors and notebooks over the Agent Client Protocol.

Stands on sessions, stores and approvals, none of which know the protocol. Needs the extra `acp`.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.acp._server import Source as Source
    from outrider.acp._server import serve as serve
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
