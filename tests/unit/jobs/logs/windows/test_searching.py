"""The search over all logs of a job: each line once, in their order, bounded in number and time."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.jobs.logs.windows.making import Printer, make_run
from trainmaster.api.formats.patterns import compile_for_lines
from trainmaster.jobs.logs.windows.merged import MergedLog, Wish
from trainmaster.jobs.logs.windows.searching import Hits, search
from trainmaster.shim.log_sink import STDERR

pytestmark = pytest.mark.unit


def never() -> bool:
    return False


def find(log: MergedLog, sought: str, *, is_pattern: bool = False, is_late: Callable[[], bool] = never) -> Hits:
    pattern, fault = compile_for_lines(sought, is_pattern=is_pattern)
    assert pattern is not None, fault
    return search(log, pattern, is_late)


def list_texts(hits: Hits) -> list[str]:
    return [hit.excerpt.decode() for hit in hits.found]


LOG = Printer().print(1, b"Loss NaN\nstep 1\n\x1b[31mER\x1b[0mROR: 2026 stdout\n").print(2, b"step 12\n", STDERR)


@pytest.mark.parametrize(
    ("sought", "is_pattern", "want"),
    [
        pytest.param("loss nan", False, ["Loss NaN"], id="upper and lower case"),
        pytest.param("step 1", False, ["step 1", "step 12"], id="both outputs"),
        pytest.param("step 1$", True, ["step 1"], id="the end of a line"),
        pytest.param(r"^\w+ \w+\z", True, ["Loss NaN", "step 1", "step 12"], id="ends of a text are those of lines"),
        pytest.param("loss", True, [], id="patterns tell cases apart"),
        pytest.param("(?i)loss|12", True, ["Loss NaN", "step 12"], id="alternatives"),
        pytest.param(r"N\s*step", True, [], id="nothing reaches into the next line"),
        pytest.param("error: 2026", False, ["ERROR: 2026 stdout"], id="without colours"),
        pytest.param("2026-11", False, [], id="times are not searched"),
        pytest.param("ste.", False, [], id="a text is no pattern"),
        pytest.param("x*", True, ["Loss NaN", "step 1", "ERROR: 2026 stdout", "step 12"], id="a pattern of nothing"),
    ],
)
def test_lines_are_found(sought: str, is_pattern: bool, want: list[str]) -> None:
    assert list_texts(find(MergedLog([make_run(LOG)]), sought, is_pattern=is_pattern)) == want


@pytest.mark.parametrize("pattern", ["(", "a)(b", "a{2000}", r"(a)\1", "(?=a)"])
def test_what_is_no_pattern_is_told(pattern: str) -> None:
    compiled, fault = compile_for_lines(pattern, is_pattern=True)
    assert compiled is None
    assert fault


def test_a_hit_leads_to_its_line_also_among_many_of_the_same_time() -> None:
    log = MergedLog(
        [make_run(Printer().lines(0, 90_000, each=700)), make_run(Printer().lines(0, 5000, each=9), rank=1)]
    )
    hits = find(log, "9[0-9]*77$", is_pattern=True)
    assert len(hits.found) > 100
    for hit in hits.found[::17]:
        part = log.read(Wish(0, 1, address=hit.address))
        assert part.lines[0].stored.text == hit.excerpt
        assert part.lines[0].address == hit.address


@pytest.mark.parametrize("sought", ["Needle", "NEEDLE", "needle$", "^needle"])
def test_a_hit_is_numbered_among_lines_of_its_time_also_if_earlier_parts_of_the_log_have_none(sought: str) -> None:
    # All in one second, and more than is searched at a time.
    filler = b"".join(b"line %d %s\n" % (number, b"x" * 100) for number in range(20_000))
    log = MergedLog([make_run(Printer().print(1, filler + b"needle\n" + filler + b"\x1b[1mneed\x1b[0mle\n"))])
    hits = find(log, sought, is_pattern=not sought.isalpha())
    assert [(hit.address.number, hit.excerpt) for hit in hits.found] == [(20_000, b"needle"), (40_001, b"needle")]
    part = log.read(Wish(0, 1, address=hits.found[0].address))
    assert part.lines[0].stored.text == b"needle"


@given(
    st.lists(st.sampled_from([b"aa", b"ab", b"", b"b P a", b"ba" * 9000]), max_size=40),
    st.sampled_from(["a", "b$", "^$"]),
)
def test_it_finds_what_a_search_line_by_line_finds(texts: list[bytes], pattern: str) -> None:
    printer = Printer()
    for second, text in enumerate(texts):
        printer.print(second // 3, text + b"\n")
    found = find(MergedLog([make_run(printer)]), pattern, is_pattern=True)
    want = [text for text in texts if re.search(pattern.encode(), text)]
    assert [hit.excerpt[:10] for hit in found.found] == [text[:10] for text in want]


def test_hits_of_all_ranks_and_attempts_are_in_order_and_bounded() -> None:
    runs = [
        make_run(Printer().lines(0, 8000), rank=0),
        make_run(Printer().lines(0, 8000), rank=1),
        make_run(Printer().lines(8000, 8010), attempt=1),
    ]
    hits = find(MergedLog(runs), "line")
    assert (len(hits.found), hits.stopped) == (10_000, "hits")
    assert list_texts(hits)[:3] == ["line 0", "line 0", "line 1"]
    assert [hit.address.rank for hit in hits.found[:3]] == [0, 1, 0]
    few = find(MergedLog(runs), "line 80")
    assert [hit.address.attempt for hit in few.found][-1] == 1
    assert not few.stopped


def test_a_search_that_takes_too_long_says_what_it_found() -> None:
    log = MergedLog([make_run(Printer().lines(0, 60_000, each=100))])
    turns = iter([False, True])
    hits = find(log, "line 12", is_late=lambda: next(turns))
    assert hits.stopped == "time"
    assert hits.found


def test_of_a_long_line_there_is_what_stands_around_the_hit() -> None:
    printer = Printer().print(1, b"x" * 100_000 + b"needle" + b"y" * 100_000 + b"\n")
    (hit,) = find(MergedLog([make_run(printer)]), "needle").found
    assert b"xneedley" in hit.excerpt
    assert len(hit.excerpt) <= 400
