"""The fuzzer judges others, so it is judged here: its own values do not kill it, and if it dies it says so."""

from __future__ import annotations

import json
import threading
from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.attacks.fuzz.crew import run_crew
from tests.attacks.fuzz.livez import judge
from tests.attacks.fuzz.outcome import MOST_RSS_MIB, MOST_STALL_SECONDS, Livez, Outcome
from tests.attacks.fuzz.words import MOST_BYTES, _bend_at, to_json

pytestmark = pytest.mark.unit

VALUES: tuple[Any, ...] = (
    {},
    [],
    {"a": [1, None, {"b": "ä\ud800\x00"}, []], "": {"c": -0.0, "d": [True, 2**70, 1e308]}},
    [[], {}, "", 0],
    "x",
)


def nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class Fixed(Random):
    """Rolls what is asked for; chooses the first."""

    def __init__(self, roll: float) -> None:
        self._roll = roll
        super().__init__(1)

    def random(self) -> float:
        return self._roll

    def choice(self, seq: Any) -> Any:
        return seq[0]


@pytest.mark.parametrize("value", VALUES)
def test_json_is_written_as_everybody_writes_it(value: Any) -> None:
    assert to_json(value) == json.dumps(value).encode()


def test_a_value_that_is_too_deep_for_the_usual_writer_is_written_whole() -> None:
    assert to_json(nest(100_000)) == b"[" * 100_000 + b"1" + b"]" * 100_000


def test_a_value_that_stands_in_many_places_comes_to_an_end() -> None:
    value: Any = "x"
    for _ in range(10):
        value = [value] * 50
    assert len(to_json(value)) == MOST_BYTES


def test_a_deep_value_can_be_bent_into_a_text() -> None:
    holder = {"a": nest(100_000)}
    _bend_at(Fixed(0.9), holder, "a")
    assert holder["a"] == "[" * 100_000 + "1" + "]" * 100_000


def test_a_thread_that_dies_stops_the_others_and_is_told() -> None:
    stop = threading.Event()

    def die() -> None:
        raise RecursionError("too deep")

    lost = run_crew({"7:0": lambda: None, "7:1": lambda: assert_true(stop.wait(60)), "7:2": die}, stop, 60)
    assert [text.splitlines()[0] for text in lost] == ["thread 7:2 died: Traceback (most recent call last):"]
    assert "RecursionError: too deep" in lost[0]


def assert_true(value: bool) -> None:
    assert value


def test_a_thread_that_hangs_is_told() -> None:
    stop, release = threading.Event(), threading.Event()
    try:
        lost = run_crew({"7:0": lambda: assert_true(release.wait(60)), "7:1": lambda: None}, stop, 0.0)
        assert lost == ["thread 7:0 hangs"]
        assert stop.is_set()
    finally:
        release.set()


def test_a_run_that_was_clean_has_no_fault() -> None:
    assert make_outcome().list_faults("all is well") == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"lost": ["thread 1 died"]}, "the fuzzer itself: thread 1 died"),
        ({"alive": False}, "the server died"),
        ({"sent": Counter()}, "nothing was sent"),
        ({"rss_mib": MOST_RSS_MIB + 1.0}, "it took 301 MiB, more than 300"),
        ({"livez": Livez()}, "nobody has watched /livez: what was measured means nothing"),
        ({"livez": Livez(asked=9, stall=MOST_STALL_SECONDS + 0.01)}, "others waited 260.0 ms"),
        ({"livez": Livez(asked=9, failed=["503", "silence", "503"])}, "/livez did not answer 200: 503, silence"),
    ],
)
def test_what_must_not_be_is_a_fault(change: dict[str, Any], fault: str) -> None:
    outcome = make_outcome()
    for name, value in change.items():
        setattr(outcome, name, value)
    assert outcome.list_faults("all is well") == [fault]


def test_a_traceback_in_the_log_is_a_fault() -> None:
    assert make_outcome().list_faults("x\nTraceback (most recent call last):\n") == ["the log has a traceback"]


def make_outcome() -> Outcome:
    return Outcome(sent=Counter(json=5), livez=Livez(asked=9, stall=0.1), rss_mib=100.0)


def test_a_livez_that_never_answers_counts_with_the_time_it_was_waited_for() -> None:
    seen = [(9.0, 9.0, ""), (9.0, 9.0, ""), (0.01, 0.005, ""), (30.0, 29.0, "silence"), (0.02, 0.02, "")]
    assert judge(seen) == Livez(asked=3, failed=["silence"], worst=30.0, stall=29.0, p99=30.0)


def test_the_figures_stand_with_their_bounds() -> None:
    text = make_outcome().summarize()
    assert "memory   100 MiB at most (300 allowed)" in text
    assert "stalled 100.0 ms at most (250.0 ms allowed)" in text
