"""`@frozen` gives what `@dataclass(frozen=True, slots=True)` gives."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from edgeserve.frozen import frozen


@frozen
class Ours:
    """A value."""

    name: str
    sizes: tuple[int, ...] = (1,)
    table: Mapping[str, int] = field(default_factory=dict)
    secret: str = field(default="s", repr=False)
    note: str = field(default="", compare=False)
    bias: list[int] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Theirs:
    """A value."""

    name: str
    sizes: tuple[int, ...] = (1,)
    table: Mapping[str, int] = field(default_factory=dict)
    secret: str = field(default="s", repr=False)
    note: str = field(default="", compare=False)
    bias: list[int] | None = field(default=None, hash=False)


@frozen(kw_only=True)
class Checked:
    low: int
    high: int = 9

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"{self.low} > {self.high}")

    def __repr__(self) -> str:
        return f"{self.low}..{self.high}"


@frozen
class Nothing:
    pass


BOTH = pytest.mark.parametrize("kind", [Ours, Theirs])


@BOTH
def test_a_value_prints_its_fields(kind: type) -> None:
    value = kind("a", (2, 3), {"x": 1}, note="n")
    assert repr(value) == (
        f"{kind.__name__}(name='a', sizes=(2, 3), table={{'x': 1}}, note='n', bias=None)"
    )


@BOTH
def test_values_compare_by_the_fields_that_count(kind: type) -> None:
    assert kind("a", note="n") == kind("a", note="m")
    assert kind("a") != kind("b")
    assert kind("a", secret="t") != kind("a")
    assert kind("a", bias=[1]) != kind("a")


def test_values_of_different_classes_differ() -> None:
    assert Ours("a") != Theirs("a")
    assert Nothing() == Nothing()
    assert Nothing() != ()


@BOTH
def test_equal_values_have_equal_hashes(kind: type) -> None:
    values = [kind("a", table=(), note=note, bias=bias) for note, bias in (("n", [1]), ("m", [2]))]
    assert hash(values[0]) == hash(values[1])
    with pytest.raises(TypeError, match="unhashable"):
        hash(kind("a"))


@BOTH
def test_a_field_can_be_neither_set_nor_deleted(kind: type) -> None:
    value = kind("a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        value.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
        del value.name
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):  # CPython's own has a bug
        value.other = 1
    assert value.name == "a"
    assert not hasattr(value, "__dict__")


@BOTH
def test_a_factory_is_called_for_each_value(kind: type) -> None:
    first, second = kind("a"), kind("b")
    assert first.table == second.table == {}
    assert first.table is not second.table


@BOTH
def test_the_dataclass_functions_know_values(kind: type) -> None:
    value = kind("a", table={"x": 1})
    assert [f.name for f in dataclasses.fields(value)][:2] == ["name", "sizes"]
    assert dataclasses.asdict(value)["table"] == {"x": 1}
    assert dataclasses.replace(value, name="b") == kind("b", table={"x": 1})


@BOTH
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))]
)
def test_a_value_survives_copying(kind: type, again: object) -> None:
    value = kind("a", table={"x": 1})
    made = again(value)  # type: ignore[operator]
    assert made == value
    assert made is not value


def test_a_signature_is_the_fields() -> None:
    def of(kind: type) -> list[tuple[str, object, object]]:
        found = inspect.signature(kind).parameters.values()
        return [(p.name, p.kind, p.annotation) for p in found]

    assert of(Ours) == of(Theirs)
    assert inspect.signature(Ours).parameters["sizes"].default == (1,)


@BOTH
def test_wrong_arguments_are_refused(kind: type) -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        kind()
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        kind("a", colour=1)


@BOTH
def test_values_match_by_position(kind: type) -> None:
    match kind("a", (4,)):
        case Ours(name, sizes) | Theirs(name, sizes):
            assert (name, sizes) == ("a", (4,))
        case _:
            pytest.fail("no match")


def test_keyword_only_and_own_methods() -> None:
    assert repr(Checked(low=1)) == "1..9"
    with pytest.raises(ValueError, match="10 > 9"):
        Checked(low=10)
    with pytest.raises(TypeError, match="positional"):
        Checked(1)  # type: ignore[misc]


def test_a_class_keeps_its_name_and_text() -> None:
    assert Ours.__doc__ == "A value."
    assert (Ours.__qualname__, Ours.__module__) == ("Ours", __name__)
