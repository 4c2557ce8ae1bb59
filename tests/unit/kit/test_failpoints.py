from __future__ import annotations

import pytest

from trainmaster.kit import failpoints

pytestmark = pytest.mark.unit


def test_a_point_that_is_not_armed_does_nothing() -> None:
    failpoints.hit("some.point")
    failpoints.arm("other.point=error")
    failpoints.hit("some.point")


def test_an_armed_error_is_raised_from_the_nth_hit_on() -> None:
    assert failpoints.arm("a.b=error(disk gone)@3; c.d=sleep(0)") == ["a.b", "c.d"]
    failpoints.hit("a.b")
    failpoints.hit("c.d")
    failpoints.hit("a.b")
    for _ in range(2):
        with pytest.raises(failpoints.Failpoint, match="disk gone"):
            failpoints.hit("a.b")
    failpoints.disarm_all()
    failpoints.hit("a.b")


def test_a_call_is_armed_for_the_length_of_a_block() -> None:
    calls: list[int] = []
    with failpoints.calling("a.b", lambda: calls.append(1), nth=2):
        for _ in range(3):
            failpoints.hit("a.b")
    failpoints.hit("a.b")
    assert calls == [1, 1]


@pytest.mark.parametrize("text", ["a.b", "a.b=explode", "a b=kill", "a.b=kill@x", "a.b=error(", "A.B=kill"])
def test_a_text_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="want name=kill"):
        failpoints.arm(text)
