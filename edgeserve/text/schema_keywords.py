"""JSON Schema's keywords by what becomes of them: enforced, passed over, or refused."""

from __future__ import annotations

ANNOTATIONS = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "example",
        "$schema",
        "$id",
        "id",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$anchor",
        "$vocabulary",
        "discriminator",
        "nullable",
        "externalDocs",
        "xml",
        "contentMediaType",
        "contentEncoding",
        "contentSchema",
        "$defs",
        "definitions",
    }
)
"""They hold no value to anything (definitions are followed from where they are referred to)."""

SCHEMA_MAPS = frozenset({"properties", "patternProperties"})
SCHEMA_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SCHEMAS = frozenset({"items", "additionalProperties"})
COUNTS = frozenset(
    {
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
    }
)
NUMBERS = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
    }
)
TYPES = frozenset(
    {
        "string",
        "number",
        "integer",
        "boolean",
        "null",
        "object",
        "array",
    }
)
FORMATS = frozenset(
    {
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uuid",
        "uri",
    }
)

UNLESS_IDLE = {"uniqueItems": False, "unevaluatedProperties": True, "unevaluatedItems": True}
"""Refused, but with the value that asks for nothing."""

KEPT = frozenset(
    {
        "type",
        "properties",
        "required",
        "enum",
        "const",
        "items",
        "prefixItems",
        "additionalProperties",
        "anyOf",
        "$ref",
        "$defs",
        "allOf",
    }
)
"""What is never left out of a lenient schema, so that names, types, required and enum hold."""
