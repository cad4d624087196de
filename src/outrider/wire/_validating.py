"""Makes wire values work as pydantic fields, as dataclasses do.

Only pydantic calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from pydantic_core import core_schema

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

    from outrider.wire._value import JsonObject, Value


def schema_of(kind: type[Value], handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
    """A value of that class, or its fields as a dict; it is written as a dict."""
    required = {each.name: each.required for each in msgspec.structs.fields(kind)}
    content = core_schema.typed_dict_schema(
        {
            name: core_schema.typed_dict_field(handler.generate_schema(each.type), required=required[name])
            for name, each in kind.__dataclass_fields__.items()
        },
        cls_name=kind.__name__,
    )

    def read(given: object, to_fields: Callable[[object], JsonObject]) -> Value:
        return given if isinstance(given, kind) else kind(**to_fields(given))

    def written(value: Value) -> JsonObject:
        return vars(value)

    return core_schema.no_info_wrap_validator_function(
        read,
        content,
        serialization=core_schema.plain_serializer_function_ser_schema(written, return_schema=content),
    )
