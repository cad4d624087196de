"""Has the names of the reference SDK's module `types`.

`_types` and `outrider.wire` define them.
"""

# ruff: noqa: F403 - each name is said once, where it is defined

from outrider.compat._types.hooks import *
from outrider.compat._types.messages import *
from outrider.compat._types.options import *
