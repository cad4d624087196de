"""Defines the inputs of all hook events, and the answers of hooks, as typed values.

Does not register or call hooks: `outrider.handlers` does.
"""

from outrider.wire.hooks._inputs import *
from outrider.wire.hooks._outputs import *
