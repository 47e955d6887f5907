"""Constraints: what is enforced holds for any answer, and what cannot be enforced is refused.

Answers here are drawn from the masks alone, every allowed token as likely as the others: hotter
than any temperature.
"""

from __future__ import annotations

import json
import re
import time
from random import Random
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from edgeserve.errors import ConstraintError, InvalidRequestError
from edgeserve.text.constraint import ConstraintCompiler
from edgeserve.text.matcher import Matcher
from edgeserve.types import Constraint, SamplingParams

from .engine_harness import tiny_constraints, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
SCHEMA = Constraint.json_schema


def compiled(constraint: Constraint):
    return tiny_constraints().compile(constraint)


def allowed_by(mask: np.ndarray) -> list[int]:
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist()


def answer(matcher: Matcher, seed: int = 0, most: int = 400) -> str | None:
    """Any text that the matcher lets end; None where it took too long. It is steered to its end
    after some tokens, by what closes things."""
    random, ids = Random(seed), []
    while len(ids) < most:
        allowed = allowed_by(matcher.masks(())[0])
        assert allowed, matcher.failure
        ending = [i for i in allowed if i in TOKENIZER.stop_ids]
        if ending and (len(ids) > 20 or random.random() < 0.5):
            return TOKENIZER.decode_continuation(ids)
        closing = [i for i in allowed if TOKENIZER.token_bytes(i) in (b'"', b"}", b"]")]
        choice = random.choice(closing if closing and len(ids) > 20 else allowed)
        assert choice not in TOKENIZER.stop_ids or not ids or len(allowed) >= 1
        if choice in TOKENIZER.stop_ids:
            return TOKENIZER.decode_continuation(ids)
        matcher.accept(choice)
        ids.append(choice)
    return None


def check_holds(schema: object, seeds: int = 3) -> int:
    """Answers that ended; each is what the schema describes."""
    count = 0
    for seed in range(seeds):
        text = answer(compiled(SCHEMA(schema)).matcher(), seed)
        if text is not None:
            jsonschema.validate(json.loads(text), schema)  # type: ignore[arg-type]
            count += 1
    return count


# --- what is enforced ----------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "the name", 'q"\\', "é 😊", "root ::="])


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def made(properties: dict[str, Any], extra: object, every: bool) -> dict[str, Any]:
        names = list(properties)
        required = names if every else names[::2]
        found = {"type": "object", "properties": properties, "required": required}
        return found if extra is None else {**found, "additionalProperties": extra}

    extras = st.sampled_from([None, False, {"type": "integer"}])
    return st.builds(made, st.dictionaries(NAMES, inner, max_size=3), extras, st.booleans())


LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": ["string", "null"]},
            {"type": "boolean", "title": "yes or no", "default": True},
            {"type": "string", "pattern": "^[a-c]{2,4}$"},
            {"type": "string", "pattern": "b+c", "description": "not anchored"},
            {"type": "string", "format": "date"},
            {"type": "number", "minimum": -2.5, "exclusiveMaximum": 7},
            {"$comment": "anything"},
        ]
    ),
    st.builds(lambda low, size: {"type": "string", "minLength": low, "maxLength": low + size},
              st.integers(0, 4), st.integers(0, 4)),
    st.builds(lambda low, size: {"type": "integer", "minimum": low, "maximum": low + size},
              st.integers(-30, 300), st.integers(0, 200)),
    st.builds(lambda values: {"enum": values},
              st.lists(st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=4)),
                       min_size=1, max_size=4)),
    st.builds(lambda value: {"const": value}, st.one_of(st.text(max_size=5), st.just({"k": [1]}))),
)  # fmt: skip
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        objects(inner),
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least,
                                        "maxItems": least + 2}, inner, st.integers(0, 2)),
        st.builds(lambda first, rest: {"type": "array", "prefixItems": first, "items": rest},
                  st.lists(inner, min_size=1, max_size=2), st.one_of(st.just(False), inner)),
        st.builds(lambda choices: {"anyOf": choices}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=5,
)  # fmt: skip


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(SCHEMAS, st.integers(0, 99))
def test_any_answer_is_what_the_schema_describes(schema: dict[str, Any], seed: int) -> None:
    text = answer(compiled(SCHEMA(schema)).matcher(), seed)
    assume(text is not None)
    jsonschema.validate(json.loads(str(text)), schema)


TREE = {
    "type": "object",
    "properties": {
        "value": {"$ref": "#/$defs/value"},
        "more": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
    },
    "required": ["value"],
    "additionalProperties": False,
    "$defs": {"value": {"enum": ["one", "two", 3]}},
}
HARD = {
    "recursive reference": TREE,
    "enum through a reference, with a sibling": {
        "$ref": "#/definitions/a~1b",
        "description": "sibling",
        "definitions": {"a/b": {"enum": ["x", "y"]}},
    },
    "reference beside what narrows it": {
        "$ref": "#/$defs/text",
        "maxLength": 3,
        "$defs": {"text": {"type": "string"}},
    },
    "any of, beside siblings": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}},
            {"required": ["a"]},
        ]
    },
    "one of what excludes each other": {
        "oneOf": [
            {"type": "object", "properties": {"k": {"const": n}}, "required": ["k"]}
            for n in ("a", "b")
        ]
    },
    "tuple of an older draft": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": [{"type": "integer"}, {"type": "boolean"}],
        "additionalItems": False,
        "minItems": 2,
    },
    "exclusive bound of draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "integer",
        "minimum": 3,
        "exclusiveMinimum": True,
        "maximum": 5,
    },
    "a pattern for names": {
        "type": "object",
        "patternProperties": {"^a": {"type": "integer"}},
        "additionalProperties": False,
    },
    "nothing else": {"type": "object", "additionalProperties": False},
    "long texts": {"type": "string", "maxLength": 10**6},
    "many items": {"type": "array", "maxItems": 10**6},
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": 3, "maximum": 90},
    "annotations": {
        "title": "t", "description": "d", "default": 1, "examples": [2], "$id": "http://x.org/y",
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": "c",
        "deprecated": True, "readOnly": True, "type": "boolean",
    },
    "bounds of 64 bits": {"type": "integer", "minimum": 2**63 - 3, "maximum": 2**64 - 1},
    "bounds of 53 bits": {"type": "integer", "exclusiveMinimum": 2**53 - 4, "maximum": 2**53 - 1},
    "bounds of floats": {"type": "number", "minimum": -0.25, "exclusiveMaximum": 0.125},
    "digits and words": {"type": "string", "pattern": r"^\d\w\s$"},
}  # fmt: skip


@pytest.mark.parametrize("name", HARD)
def test_hard_schemas_hold(name: str) -> None:
    assert check_holds(HARD[name], seeds=8) > 0
    assert compiled(SCHEMA(HARD[name])).relaxed == ()


@pytest.mark.parametrize("most", [1000, 4000])
def test_long_texts_may_be_as_long_as_they_say(most: int) -> None:
    matcher = compiled(SCHEMA({"type": "string", "maxLength": most})).matcher()
    byte = {TOKENIZER.token_bytes(i): i for i in range(TOKENIZER.vocab_size - 1, -1, -1)}
    for char in [b'"', *[b"a"] * most]:
        matcher.accept(byte[char])
    assert allowed_by(matcher.masks(())[0]) == [byte[b'"']]


def test_digits_in_a_schema_are_those_of_javascript() -> None:
    matcher = compiled(SCHEMA({"type": "string", "pattern": r"^\d$"})).matcher()
    for token in allowed_by(matcher.masks(())[0])[:1]:
        matcher.accept(token)
    mask = matcher.masks(())[0]
    assert {TOKENIZER.token_bytes(i) for i in allowed_by(mask)} == {b"%d" % n for n in range(10)}


def test_tool_descriptions_change_no_constraint() -> None:
    plain = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    odd = 'a "quote",\nroot ::= "x"\n😊'
    described = {
        **plain,
        "description": odd,
        "properties": {"q": {**plain["properties"]["q"], "description": odd}},
    }  # type: ignore[index]
    for seed in range(4):
        a, b = (compiled(SCHEMA(schema)).matcher() for schema in (plain, described))
        assert answer(a, seed) == answer(b, seed)


def test_blanks_do_not_go_on_for_ever() -> None:
    byte = {TOKENIZER.token_bytes(i): i for i in range(TOKENIZER.vocab_size - 1, -1, -1)}
    matcher = compiled(Constraint.json_object()).matcher()
    for char in "{\n\n" + " " * 20:
        matcher.accept(byte[char.encode()])
    assert byte[b" "] not in allowed_by(matcher.masks(())[0])


# --- what is refused -----------------------------------------------------------------------------

REFUSED = {
    "lookahead": ({"properties": {"a": {"type": "string", "pattern": "(?=a)b"}}}, "pattern", "#/properties/a"),  # noqa: E501
    "open groups": ({"type": "string", "pattern": "(((("}, "pattern", "#"),
    "many copies": ({"type": "string", "pattern": "a{100000}"}, "pattern", "#"),
    "copies of copies": ({"type": "string", "pattern": "(a{500}){500}"}, "pattern", "#"),
    "external reference": ({"items": {"$ref": "http://x.y/z"}}, "$ref", "#/items"),
    "reference to nothing": ({"$ref": "#/$defs/none"}, "$ref", "#"),
    "reference to itself": ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "", "#/$defs/a"),  # noqa: E501
    "values without an end": ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["x"]}}}, "", "#/$defs/a"),  # noqa: E501
    "root without an end": ({"type": "array", "minItems": 1, "items": {"$ref": "#"}}, "", "#"),
    "empty enum": ({"properties": {"a/b": {"enum": []}}}, "enum", "#/properties/a~1b"),
    "not": ({"not": {"type": "string"}}, "not", "#"),
    "if": ({"anyOf": [{"if": {}}]}, "if", "#/anyOf/0"),
    "unique": ({"type": "array", "uniqueItems": True}, "uniqueItems", "#"),
    "unknown keyword": ({"type": "array", "maxitems": 3}, "maxitems", "#"),
    "unknown type": ({"type": "text"}, "type", "#"),
    "one of what overlaps": ({"properties": {"a": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}}, "oneOf", "#/properties/a"),  # noqa: E501
    "too many remainders": ({"type": "integer", "multipleOf": 10**6 + 3}, "multipleOf", "#"),
    "no divisor": ({"type": "integer", "multipleOf": 0}, "multipleOf", "#"),
    "false": (False, "", "#"),
    "contradiction": ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum", "#"),
    "integers past 64 bits": ({"items": {"type": "integer", "minimum": 10**30, "maximum": 10**31}}, "minimum", "#/items"),  # noqa: E501
    "an integer that no float is": ({"type": "integer", "minimum": 2**53 + 1}, "minimum", "#"),
    "a bound that is let through": ({"type": "number", "exclusiveMinimum": 1, "maximum": 1.1}, "exclusiveMinimum", "#"),  # noqa: E501
    "and the one above": ({"minimum": -15.2, "exclusiveMaximum": -15}, "exclusiveMaximum", "#"),
    "a pattern cut short": ({"type": "string", "pattern": "a\\"}, "pattern", "#"),
    "not a schema": ({"items": 3}, "", "#/items"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_enforced_is_refused_by_keyword_and_path(name: str) -> None:
    schema, keyword, path = REFUSED[name]
    with pytest.raises(ConstraintError) as caught:
        compiled(SCHEMA(schema))
    assert (caught.value.keyword, caught.value.path) == (keyword, path)
    assert path in str(caught.value)
    assert keyword in str(caught.value)
    assert isinstance(caught.value, InvalidRequestError)


DEEP = 60_000
TEXTS = {
    "open groups": Constraint.regex("(((("),
    "lookahead": Constraint.regex("(?=a)b"),
    "cut short": Constraint.regex("a\\\\\\"),
    "many copies": Constraint.regex("a{100000}"),
    "nested groups": Constraint.regex("(" * DEEP + "a" + ")" * DEEP),
    "nothing matches": Constraint.regex(r"[^\s\S]"),
    "undefined rule": Constraint.lark("start: foo"),
    "no start": Constraint.lark('foo: "a"'),
    "rule of itself": Constraint.lark("start: start"),
    "nested": Constraint.lark("start: " + "(" * DEEP + '"a"' + ")" * DEEP),
    "open": Constraint.lark("start: " + "[" * DEEP),
    "no grammar": Constraint.lark("}{"),
    "gbnf, undefined rule": Constraint.gbnf("root ::= foo"),
    "gbnf, no root": Constraint.gbnf('foo ::= "a"'),
    "gbnf, nested": Constraint.gbnf("root ::= " + "(" * DEEP + '"a"' + ")" * DEEP),
    "gbnf, no grammar": Constraint.gbnf("}{"),
    "schema in a grammar": Constraint.lark('start: a\na: %json {"not": {}}'),
    "deep schema": SCHEMA('{"items":' * DEEP + "{}" + "}" * DEEP),
    "deep value": SCHEMA('{"const":' + "[" * DEEP + "]" * DEEP + "}"),
    "no JSON": SCHEMA("{"),
    "infinity": SCHEMA('{"minimum": 1e999}'),
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_cannot_be_compiled_is_an_error_at_once(name: str) -> None:
    began = time.process_time()
    with pytest.raises(ConstraintError):
        compiled(TEXTS[name])
    assert time.process_time() - began < 5.0  # a second, and room for a busy machine


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint.lark('start: start "a" | "b"'),
        Constraint.lark('start: "(" start ")" | ""'),
        Constraint.gbnf('root ::= root "a" | "b"'),
        Constraint.gbnf('root ::= "(" root ")" | [a-z]{1,3} # a comment'),
    ],
)
def test_recursion_of_any_side_is_followed(constraint: Constraint) -> None:
    pattern = r"ba*|\(*[a-z]{0,3}\)*"
    texts = [answer(compiled(constraint).matcher(), seed) for seed in range(10)]
    ended = [text for text in texts if text is not None]
    assert ended
    assert all(re.fullmatch(pattern, text) for text in ended)
    assert all(text.count("(") == text.count(")") for text in ended)


def test_schemas_that_are_no_json_are_refused_when_made() -> None:
    for schema in ({"minimum": float("nan")}, {"enum": [object()]}, 3, None):
        with pytest.raises(ConstraintError):
            SCHEMA(schema)


def test_what_contradicts_an_end_is_refused() -> None:
    for fields in ({"ignore_eos": True}, {"min_tokens": 3}):
        with pytest.raises(InvalidRequestError, match="constraint"):
            SamplingParams(constraint=Constraint.json_object(), **fields)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="a Constraint"):
        SamplingParams(constraint={"type": "object"})  # type: ignore[arg-type]


# --- what is relaxed -----------------------------------------------------------------------------


def test_formats_that_nobody_knows_are_listed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": "int-odd"}}}
    (relaxed,) = compiled(SCHEMA(schema)).relaxed
    assert (relaxed.path, relaxed.keyword) == ("#/properties/a", "format")


def test_lenient_leaves_out_what_it_must_and_keeps_names_types_required_and_enum() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "pattern": "(?=x)y"},
            "b": {"enum": ["u", "v"], "not": {"const": "w"}},
            "c": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
            "d": {"type": "integer", "minimum": 5, "maximum": 3},
        },
        "required": ["a", "b", "c", "d"],
        "additionalProperties": False,
    }
    found = compiled(SCHEMA(schema, lenient=True))
    kept = {"a": {"type": "string"}, "b": {"enum": ["u", "v"]}, "c": {"type": "number"},
            "d": {"type": "integer"}}  # fmt: skip
    for seed in range(5):
        text = answer(found.matcher(), seed)
        if text is not None:
            jsonschema.validate(json.loads(text), {**schema, "properties": kept})
    named = {str(each).partition(":")[0] for each in found.relaxed}
    assert {"#/properties/a/pattern", "#/properties/b/not", "#/properties/c/oneOf"} <= named
    assert named & {"#/properties/d/minimum", "#/properties/d/maximum"}
    with pytest.raises(ConstraintError):
        compiled(SCHEMA(schema))


def test_lenient_leaves_out_a_bound_that_does_not_hold() -> None:
    loose = {"exclusiveMinimum": 0, "maximum": 0.5}
    schema = {"properties": {"a": {"type": "number", **loose}}}
    relaxed = compiled(SCHEMA(schema, lenient=True)).relaxed
    assert [(each.path, each.keyword) for each in relaxed] == [
        ("#/properties/a", "exclusiveMinimum")
    ]


def test_schemas_in_a_grammar_are_held_to_the_same() -> None:
    grammar = 'start: "%json {" a /%json/ // %json {\na: %json {"type": "boolean", "not": {}}'
    found = compiled(Constraint.lark(grammar, lenient=True))
    assert [str(each).partition(":")[0] for each in found.relaxed] == ["%json 1#/not"]
    assert answer(found.matcher(), 1) in ("%json {true%json", "%json {false%json")


# --- following -----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(SCHEMAS, st.integers(0, 99), st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_masks_do_not_depend_on_what_was_looked_at(
    schema: dict[str, Any], seed: int, looks: list[int]
) -> None:
    """Drafts that are looked along and taken back, forced text and forks leave no trace."""
    random = Random(seed)
    found = compiled(SCHEMA(schema))
    plain, looked = found.matcher(), found.matcher()
    for look in looks:
        mask = plain.masks(())[0]
        allowed = [i for i in allowed_by(mask) if i not in TOKENIZER.stop_ids]
        if not allowed:
            break
        draft = looked.forced()[:look] or [random.choice(allowed)]
        wrong = [random.randrange(TOKENIZER.vocab_size) for _ in range(look)]
        along = looked.masks([*draft, *wrong])
        assert (along[0] == mask).all()
        fresh = plain.fork()
        for at, token in enumerate(draft):
            fresh.accept(token)
            assert (along[at + 1] == fresh.masks(())[0]).all()
        assert looked.num_allowed([*draft, *wrong]) >= len(draft)
        if look % 2:
            looked = looked.fork()
        token = random.choice(allowed)
        plain.accept(token)
        looked.accept(token)


def test_what_is_forced_is_all_that_a_mask_allows() -> None:
    matcher = compiled(SCHEMA({"const": {"the": ["only", "answer"]}})).matcher()
    matcher.accept(allowed_by(matcher.masks(())[0])[0])
    num_forced = 0
    for _ in range(60):
        forced = matcher.forced()
        allowed = allowed_by(matcher.masks(())[0])
        if forced:
            num_forced += 1
            assert allowed == forced[:1]
        if allowed[0] in TOKENIZER.stop_ids:
            break
        matcher.accept(allowed[0])
    assert num_forced >= 5


def test_compiling_again_is_remembered() -> None:
    compiler = ConstraintCompiler(TOKENIZER)
    first = compiler.compile(Constraint.json_object())
    assert compiler.compile(Constraint.json_object()) is first


def test_many_members_are_followed() -> None:
    names = [f"k{index}" for index in range(600)]
    schema = {
        "type": "object",
        "properties": {name: {"type": "null"} for name in names},
        "additionalProperties": False,
    }
    matcher = compiled(SCHEMA(schema)).matcher()
    for token in TOKENIZER.encode_continuation('{"k599":null'):
        matcher.accept(token)
    byte = {TOKENIZER.token_bytes(i): i for i in range(TOKENIZER.vocab_size - 1, -1, -1)}
    assert byte[b"}"] in allowed_by(matcher.masks(())[0])
