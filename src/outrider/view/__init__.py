"""Shows live and stored sessions in a browser: `outrider view`, or `app` in a service of yours.

Needs the extra `view`. Names are loaded on first use.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.view._app import View as View
    from outrider.view._app import Viewable as Viewable
    from outrider.view._app import app as app
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
