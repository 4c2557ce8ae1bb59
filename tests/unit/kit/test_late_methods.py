"""Dataclasses whose methods are compiled when they are first called behave like all others."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from trainmaster.kit.late_methods import late_methods

pytestmark = pytest.mark.unit

HAS_COMPILER = hasattr(dataclasses, "_create_fn")


def define() -> tuple[type[Any], type[Any], type[Any]]:
    @dataclass(frozen=True, slots=True, order=True)
    class Point:
        x: int
        y: int = 2
        names: list[str] = field(default_factory=list, compare=False)

    @dataclass(frozen=True, slots=True)
    class Named(Point):
        name: str = "here"

        def __post_init__(self) -> None:
            if not self.name:
                raise ValueError("it has no name")

    @dataclass
    class Loose:
        x: int
        next: Loose | None = None

    return Point, Named, Loose


def try_out(ways: AbstractContextManager[None]) -> list[object]:
    """What one sees of the classes from outside, in an order that makes each method the first of its class to run."""
    with ways:
        found = [define() for _ in range(3)]
    (point, named, loose), (other, _, _), (third, third_named, _) = found
    circle = loose(1)
    circle.next = circle
    seen: list[object] = [
        repr(named(1)), repr(point(1, names=["a"])), repr(circle), point(1) == point(1, names=["b"]), point(1) == 1,
        named(1) == point(1), point(1) < point(2), sorted([point(2), point(1)])[0].x, hash(point(1)) == hash(point(1)),
        replace(named(1), y=5), copy.deepcopy(named(3)), loose.__hash__, point.__match_args__, named.__slots__,
        [item.name for item in dataclasses.fields(named)],
    ]  # fmt: skip
    for wrong in (
        lambda: other(),
        lambda: other(1, 2, [], 4),
        lambda: third_named(1, name=""),
        lambda: setattr(third(1), "x", 2),
        lambda: delattr(third_named(1), "name"),
        lambda: third(1) < 1,
    ):
        seen.append(complain(wrong))
    return [str(item) for item in seen]


def complain(wrong: Callable[[], object]) -> str:
    with pytest.raises((TypeError, ValueError, FrozenInstanceError)) as caught:
        wrong()
    return f"{type(caught.value).__name__}: {caught.value}"


def test_late_methods_do_and_say_what_others_do() -> None:
    assert try_out(late_methods()) == try_out(nullcontext())


@pytest.mark.skipif(not HAS_COMPILER, reason="this Python compiles all methods of a class at once")
def test_nothing_is_compiled_before_it_is_called_and_then_it_is_in_place() -> None:
    plain = define()[1]
    with late_methods():
        named = define()[1]
    for name in ("__init__", "__eq__", "__hash__", "__setattr__"):
        assert "compiled" in vars(named)[name].__code__.co_freevars, name
    first = named(1)
    assert first == named(1) and hash(first) == hash(named(1))
    for name in ("__init__", "__eq__", "__hash__"):
        assert inspect.signature(vars(named)[name]) == inspect.signature(vars(plain)[name]), name
        assert vars(named)[name].__qualname__ == vars(plain)[name].__qualname__
        assert vars(named)[name].__code__.co_code == vars(plain)[name].__code__.co_code


@pytest.mark.skipif(not HAS_COMPILER, reason="this Python compiles all methods of a class at once")
def test_a_method_that_is_inherited_is_put_in_place_where_it_is_from() -> None:
    with late_methods():
        base = define()[0]
    child = type("Child", (base,), {})
    assert child(1).x == 1
    assert "__init__" not in vars(child)
    assert list(inspect.signature(base.__init__).parameters) == ["self", "x", "y", "names"]


@pytest.mark.skipif(not HAS_COMPILER, reason="this Python compiles all methods of a class at once")
def test_blocks_that_overlap_leave_nothing_behind() -> None:
    """As of two threads that load something."""
    before = vars(dataclasses)["_create_fn"]
    one, other = late_methods(), late_methods()
    one.__enter__()
    with other:
        one.__exit__(None, None, None)
    assert vars(dataclasses)["_create_fn"] is before


def test_classes_that_are_defined_later_or_after_an_error_are_compiled_at_once() -> None:
    with pytest.raises(ZeroDivisionError), late_methods():
        1 / 0  # noqa: B018
    assert "compiled" not in define()[0].__init__.__code__.co_freevars


def test_a_python_without_that_function_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dataclasses, "_create_fn", raising=False)
    before = dict(vars(dataclasses))
    with late_methods():
        assert vars(dataclasses) == before
    assert vars(dataclasses) == before


@pytest.mark.skipif(not HAS_COMPILER, reason="this Python compiles all methods of a class at once")
def test_no_signature_is_computed_for_a_docstring() -> None:
    with late_methods():
        late = define()[0]
    assert late.__doc__ == "Point"
    assert define()[0].__doc__ != "Point"


@dataclass(frozen=True, slots=True)
class Plain:
    x: int


def test_values_can_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    with late_methods():
        late: type[Any] = dataclass(frozen=True, slots=True)(type("Plain", (), {"__annotations__": {"x": "int"}}))
    late.__module__ = __name__
    monkeypatch.setattr(sys.modules[__name__], "Plain", late)
    assert pickle.loads(pickle.dumps(late(3))) == late(3)
