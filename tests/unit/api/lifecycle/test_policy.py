"""The installation's policy, from the strings of a ConfigMap."""

from __future__ import annotations

import pytest

from trainmaster.api.lifecycle.policy import RetentionPolicy, read_policy

pytestmark = pytest.mark.unit


def read(**data: str) -> RetentionPolicy:
    reading = read_policy({"data": data})
    assert not reading.errors
    return reading.policy


def test_without_a_config_map_nothing_is_ever_deleted() -> None:
    assert read_policy(None).policy == read_policy({}).policy == RetentionPolicy()


@pytest.mark.parametrize(
    ("data", "ttl"),
    [
        ({"jobRetentionPolicy": "delete_on_completion"}, 0),
        ({"jobRetentionPolicy": "delete_on_completion", "ttlSecondsAfterFinished": "86400"}, 86400),
        ({"ttlSecondsAfterFinished": "0"}, 0),
        ({"ttlSecondsAfterFinished": " 60\n"}, 60),
        ({"jobRetentionPolicy": "retain"}, None),
    ],
    ids=["delete", "delete later", "zero", "with blanks", "retain"],
)
def test_the_default_ttl_is_what_the_two_keys_say_together(data: dict[str, str], ttl: int | None) -> None:
    assert read(**data).ttl == ttl


def test_limits_and_enforcement_are_read() -> None:
    policy = read(
        ttlSecondsAfterFinished="5",
        ttlEnforced="true",
        successfulJobsHistoryLimit="3",
        failedJobsHistoryLimit="0",
    )
    assert policy == RetentionPolicy(5, enforced=True, keep_successful=3, keep_failed=0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"jobRetentionPolicy": "keep"}, "must be delete_on_completion or retain"),
        ({"ttlSecondsAfterFinished": "-1"}, "must be a whole number of seconds from 0 to 2147483647"),
        ({"ttlSecondsAfterFinished": "1.5"}, "must be a whole number of seconds from 0 to 2147483647"),
        ({"ttlSecondsAfterFinished": "2147483648"}, "must be a whole number of seconds from 0 to 2147483647"),
        ({"ttlSecondsAfterFinished": "٣"}, "must be a whole number of seconds from 0 to 2147483647"),
        ({"ttlEnforced": "yes"}, 'must be "true" or "false"'),
        ({"ttlEnforced": "true"}, "needs something to enforce"),
        ({"successfulJobsHistoryLimit": "many"}, "must be a whole number"),
        ({"jobRetentionPolicy": "retain", "ttlSecondsAfterFinished": "5"}, "remove one of the two"),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else "",
)
def test_a_bad_value_has_no_effect_and_is_named(data: dict[str, str], message: str) -> None:
    reading = read_policy({"data": data})
    assert message in str(reading.errors[-1])
    assert reading.policy == RetentionPolicy()
