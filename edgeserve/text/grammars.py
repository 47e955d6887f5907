"""From what is asked to llguidance's grammars: every kind of constraint, checked."""

from __future__ import annotations

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark

from edgeserve.errors import ConstraintError
from edgeserve.text.json_schema import enforceable_schema, whitespace
from edgeserve.text.lark_schemas import with_enforceable_schemas
from edgeserve.text.patterns import refused_pattern
from edgeserve.types import Constraint, Relaxed


def grammar_of(constraint: Constraint) -> tuple[str, tuple[Relaxed, ...]]:
    """A grammar, and what of the constraint it leaves out. Raises ConstraintError."""
    text = constraint.text
    match constraint.kind:
        case "json_schema":
            schema, relaxed = enforceable_schema(text, lenient=constraint.lenient)
            return LLMatcher.grammar_from_json_schema(schema, overrides=whitespace()), relaxed
        case "regex":
            reason = refused_pattern(text)
            if reason is not None:
                raise ConstraintError("regex", reason)
            return LLMatcher.grammar_from_regex(text), ()
        case "lark":
            grammar, relaxed = with_enforceable_schemas(text, lenient=constraint.lenient)
            return LLMatcher.grammar_from_lark(grammar), relaxed
        case "gbnf":
            return LLMatcher.grammar_from_lark(_lark_of_gbnf(text)), ()


def _lark_of_gbnf(text: str) -> str:
    try:
        return gbnf_to_lark(text)
    except GbnfToLarkError as error:
        raise ConstraintError("gbnf", str(error)) from None
    except RecursionError:
        raise ConstraintError("gbnf", "is nested too deeply") from None
    except Exception as error:  # the converter's own checks are few
        raise ConstraintError("gbnf", f"cannot be read: {type(error).__name__}: {error}") from None
