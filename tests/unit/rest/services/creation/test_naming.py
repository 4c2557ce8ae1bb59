"""Names: the guide's form, one for every create, and user ids that fit into them."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta

import pytest

from trainmaster.rest.services.creation import naming

pytestmark = pytest.mark.unit

NOW = datetime(2026, 11, 15, 20, 59, 59, 900_000, tzinfo=UTC)


def test_a_name_is_the_user_and_the_second() -> None:
    assert naming.build_job_name("alice", NOW) == "alice-job-20261115205959"
    assert naming.get_latest_script("alice") == "alice-train-script"
    assert naming.get_job_script("alice-job-20261115205959") == "alice-job-20261115205959-script"


def test_many_in_one_second_get_the_next_free_ones() -> None:
    seconds = naming.Seconds()
    names = [naming.build_job_name("a", seconds.take("n", "a", NOW)) for _ in range(3)]
    assert names == ["a-job-20261115205959", "a-job-20261115210000", "a-job-20261115210001"]
    assert seconds.take("n", "b", NOW) == seconds.take("m", "a", NOW) == NOW.replace(microsecond=0)
    assert seconds.take("n", "a", NOW + timedelta(hours=1)) == NOW.replace(microsecond=0) + timedelta(hours=1)


def test_a_second_that_the_server_refuses_is_left_behind() -> None:
    seconds = naming.Seconds()
    taken = [seconds.take("n", "a", NOW, (1 << attempt) - 1) for attempt in range(4)]
    steps = [(after - before).total_seconds() for before, after in itertools.pairwise(taken)]
    assert steps == [2, 4, 8]


@pytest.mark.parametrize("user", ["a", "alice", "team-7", "a" * 29])
def test_these_are_user_ids(user: str) -> None:
    assert naming.is_user(user)


@pytest.mark.parametrize(
    ("user", "near"),
    [
        ("Alice", "alice"),
        ("alice.smith@example.com", "alice-smith-example-com"),
        ("7up", "up"),
        ("a" * 30, "a" * 29),
        ("-a", "a"),
        ("a-", "a"),
        ("a\n", "a"),
        ("", ""),
        ("김철수", ""),
        ("../../etc", "etc"),
    ],
)
def test_what_is_no_user_id_gets_a_proposal(user: str, near: str) -> None:
    assert not naming.is_user(user)
    assert naming.suggest_user(user) == near


def test_the_longest_user_id_fits_into_a_pod_name() -> None:
    name = naming.build_job_name("a" * naming.USER_LENGTH, NOW)
    assert len(f"{name}-node-0-9-abcde") == 63
    assert re.fullmatch(r"[a-z0-9-]+", name)


def test_everybody_has_a_user_id_that_is_their_own() -> None:
    assert naming.make_user("ann") == "ann"
    names = [
        "1ann",
        "2ann",
        "Ann",
        "ann.b",
        "ann-b-",
        "12345",
        "auth0|7f3",
        "3f2b8c1e-9a1d-4a53-8f5e-1a2b3c4d5e6f",
        "a" * 40,
        "é",
    ]
    made = [naming.make_user(name) for name in names]
    assert all(naming.is_user(one) and len(one) <= 27 for one in made), made
    assert len(set(made)) == len(names)
