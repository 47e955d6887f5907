"""Whether values of a schema have an end: a reference that leads to itself needs a way out."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, cast

Node = Mapping[str, Any]


def endless_reference(schema: Node) -> str | None:
    """A $ref of a cleaned schema whose values could never be finished, if there is one; the whole
    schema itself only where no other is."""
    definitions = cast(Mapping[str, Node | bool], schema.get("$defs", {}))
    nodes: dict[str, Node | bool] = {"#": schema}
    nodes |= {f"#/$defs/{name}": node for name, node in definitions.items()}
    ending: set[str] = set()
    while True:  # the least fixpoint: each round adds what ends by means of what is known to
        found = {ref for ref in nodes.keys() - ending if _ends(nodes[ref], ending)}
        if not found:
            endless = sorted(nodes.keys() - ending, key=lambda ref: (ref == "#", ref))
            return endless[0] if endless else None
        ending |= found


def _ends(node: Node | bool, ending: Set[str]) -> bool:
    if isinstance(node, bool):
        return True
    if "$ref" in node and node["$ref"] not in ending:
        return False
    if not all(_ends(each, ending) for each in node.get("allOf", ())):
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in node and not any(_ends(each, ending) for each in node[keyword]):
            return False
    if "enum" in node or "const" in node or "type" not in node:
        return True
    types = {node["type"]} if isinstance(node["type"], str) else set(node["type"])
    return bool(
        types - {"object", "array"}
        or ("object" in types and _object_ends(node, ending))
        or ("array" in types and _array_ends(node, ending))
    )


def _object_ends(node: Node, ending: Set[str]) -> bool:
    properties = node.get("properties", {})
    required = (properties.get(name, True) for name in node.get("required", ()))
    return all(_ends(each, ending) for each in required)


def _array_ends(node: Node, ending: Set[str]) -> bool:
    least, first = node.get("minItems", 0), node.get("prefixItems", ())
    if not all(_ends(each, ending) for each in first[:least]):
        return False
    return least <= len(first) or _ends(node.get("items", True), ending)
