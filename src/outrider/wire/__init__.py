"""Converts bytes to typed values and back: framing, decoding, encoding, messages, content blocks.

Control requests and their answers are in `outrider.wire.control`, hooks in `outrider.wire.hooks`, permissions
in `outrider.wire.permissions`, inputs and outputs of built-in tools in `outrider.wire.tools`. Import those
directly: this package does not load them. Nothing here does I/O.
"""

from outrider.wire._blocks import *
from outrider.wire._decoding import FRAME_TYPES as FRAME_TYPES
from outrider.wire._decoding import decode as decode
from outrider.wire._decoding import decode_block as decode_block
from outrider.wire._decoding import frame_from_wire as frame_from_wire
from outrider.wire._encoding import encode as encode
from outrider.wire._encoding import to_wire as to_wire
from outrider.wire._encoding import user_message as user_message
from outrider.wire._framing import DEFAULT_LIMIT as DEFAULT_LIMIT
from outrider.wire._framing import Framer as Framer
from outrider.wire._framing import FrameReader as FrameReader
from outrider.wire._messages import *
from outrider.wire._system import *
from outrider.wire._value import Frame as Frame
from outrider.wire._value import Json as Json
from outrider.wire._value import JsonObject as JsonObject
from outrider.wire._value import Number as Number
from outrider.wire._value import Value as Value
