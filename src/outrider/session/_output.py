"""Structured output: from the type that was asked for to its schema, and from what came to a value of it.

What types there are, and how they are read, is known to `outrider.handlers`.
"""

from __future__ import annotations

from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.errors import OptionsError, OutputInvalid
from outrider.options._readers import fault

if TYPE_CHECKING:
    from outrider.handlers import Shape
    from outrider.options import Options
    from outrider.session._result import Result

_NO_TYPES: Final = (str, bytes, FunctionType, BuiltinFunctionType, MethodType, partial)


def output_shape(output: object, options: Options) -> Shape[object]:
    """What is wanted, as far as the agent can be told. Raises `OptionsError` for what has no schema."""
    if options.output_format is not None:
        raise OptionsError(
            "`output` and `output_format` both say what the answer must be",
            hint="Leave `output_format` out: a JSON Schema can be given as `output`, too.",
        )
    if issubclass(type(output), _NO_TYPES) or hasattr(type(output), "__dataclass_fields__"):
        # Some of these would pass: a text is taken for an annotation, and a function for its parameters.
        raise fault("`output`", "a type or a JSON Schema", output, "Give the class itself: `output=Invoice`.")
    from outrider.handlers import Shape

    return Shape.for_output(output)


def shape_output(result: Result[object], shape: Shape[object]) -> None:
    """Make the output of a result that was just made a value of the type that was asked for, or give it the
    error that it is none. What came is then left as it is."""
    if result.output is None:
        # The agent has not come to an answer of the model: a hook ended the turn, or a command of its own.
        return
    from outrider.handlers import Misfit

    try:
        output = shape.convert(result.output)
    except Misfit as misfit:
        error = OutputInvalid(misfit.faults, result=result.message, messages=result.messages)
        msgspec.structs.force_setattr(result, "error", error)
    else:
        msgspec.structs.force_setattr(result, "output", output)
