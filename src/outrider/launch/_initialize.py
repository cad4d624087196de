"""The first request of a streaming session, as far as options alone can say it.

Hooks, and tools of this process, are added by the session, which has what answers for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.launch._places import Init
from outrider.launch._table import ROWS

if TYPE_CHECKING:
    from outrider.options import Options
    from outrider.wire.control import Initialize


def make_initialize(options: Options) -> Initialize:
    """What the agent is told in the `initialize` request."""
    from outrider.wire.control import Initialize

    fields = {row.to.name: row.value(options) for row in ROWS if isinstance(row.to, Init)}
    request = Initialize()
    for name, value in fields.items():
        if value is not None:
            setattr(request, name, value)
    return request
