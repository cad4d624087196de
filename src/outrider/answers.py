"""What a hook or a permission callback can answer: `allow()`, `deny("…")`, `modify(…)` and the others.

`allow` and `deny` are also at the top.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.handlers import Answer as Answer
    from outrider.handlers import add_context as add_context
    from outrider.handlers import allow as allow
    from outrider.handlers import ask as ask
    from outrider.handlers import block as block
    from outrider.handlers import defer as defer
    from outrider.handlers import deny as deny
    from outrider.handlers import later as later
    from outrider.handlers import modify as modify
    from outrider.handlers import notify as notify
    from outrider.handlers import stop as stop
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
