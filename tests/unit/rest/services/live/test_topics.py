"""Topics of a stream, and the id that stands for all of them."""

from __future__ import annotations

import pytest

from trainmaster.rest.problems import Problem
from trainmaster.rest.services.live.topics import parse_positions, parse_topics

pytestmark = pytest.mark.unit


def test_a_job_is_named_with_its_namespace_and_its_kind_if_needed() -> None:
    names = ["jobs", "job:ann/a", "job:ann/PyTorchJob/a.b-c", "log:ann/a", "usage:ann/a"]
    jobs, plain, kind, log, usage = parse_topics(names)
    assert (jobs.what, jobs.namespace) == ("jobs", "")
    assert (plain.what, plain.namespace, plain.reference) == ("job", "ann", "a")
    assert kind.reference == "pytorchjobs/a.b-c"
    assert (log.what, log.reference) == ("log", "a")
    assert (usage.what, usage.reference) == ("usage", "a")


def test_a_topic_that_is_asked_for_twice_is_one() -> None:
    assert len(parse_topics(["jobs", "jobs"])) == 1


def test_all_wrong_topics_are_named_and_what_there_is() -> None:
    with pytest.raises(Problem) as error:
        parse_topics(["jobs", "nothing", "log:ann"])
    assert [found.parameter for found in error.value.errors] == ["topic", "topic"]
    assert "job:NAMESPACE/NAME" in error.value.hint and "machine" in error.value.hint


def test_an_id_comes_back_as_it_was_and_without_topics_that_nobody_asks_for() -> None:
    topics = parse_topics(["jobs", "job:ann/a"])
    positions = parse_positions("", topics)
    assert positions.dump() == ""
    positions.note("jobs", "t1.4")
    positions.note("job:ann/a", "u1.00ff")
    positions.note("job:ann/a+", "u1.7.")
    positions.end("job:ann/a")
    again = parse_positions(positions.dump(), topics)
    assert (again.get("jobs"), again.get("job:ann/a+"), again.is_over("job:ann/a")) == ("t1.4", "u1.7.", True)
    fewer = parse_positions(positions.dump(), topics[:1])
    assert fewer.dump() == "jobs=t1.4"


@pytest.mark.parametrize("text", ["x", "jobs=", "jobs=1~", "jobs=1~jobs=2", "é=1", "jobs=1\n", "jobs=" + "1" * 40_000])
def test_an_id_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Problem):
        parse_positions(text, parse_topics(["jobs"]))
