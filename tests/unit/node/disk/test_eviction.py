"""Who has to go because of the disk, as tables."""

from __future__ import annotations

import pytest

from trainmaster.jobs.models.pods import Pod
from trainmaster.node.disk.eviction import (
    MIB,
    Claim,
    PodUse,
    decide_budget,
    decide_claims,
    decide_own_limits,
    decide_pressure,
    read_amounts,
)
from trainmaster.node.host.pressure import decide_thresholds

pytestmark = pytest.mark.unit

SOFT, HARD = 1000 * MIB, 500 * MIB


def _use(uid: str, mib: int = 0, growth: int = 0, **more: object) -> PodUse:
    fields = {"namespace": "ann", "is_tenants": True, **more}
    return PodUse(uid, uid, bytes=mib * MIB, growth=growth * MIB, **fields)  # type: ignore[arg-type]


def _build_pod(*limits: str) -> Pod:
    containers = [
        {"name": f"c{n}", "resources": {"limits": {"ephemeral-storage": one}}} for n, one in enumerate(limits)
    ]
    return Pod({"metadata": {"name": "p"}, "spec": {"containers": [*containers, {"name": "plain"}]}})


def test_limits_of_containers_are_added_up() -> None:
    assert read_amounts(_build_pod("100Mi", "28Mi")) == (128 * MIB, 0)
    assert read_amounts(_build_pod()) == (0, 0)


def test_a_pod_above_its_own_limit_goes_with_upstreams_words() -> None:
    pods = [_use("over", 201, limit=200 * MIB), _use("at", 200, limit=200 * MIB), _use("free", 900)]
    (only,) = decide_own_limits(pods)
    assert only.uid == "over" and not only.is_disruption
    assert only.message == "Pod ephemeral local storage usage exceeds the total limit of containers 200Mi. "


@pytest.mark.parametrize(
    ("free", "pods", "expected"),
    [
        pytest.param(1000, [_use("a", 900, 900)], None, id="there is room"),
        pytest.param(999, [_use("a", 900, 900)], "a", id="below the threshold who grew goes"),
        pytest.param(999, [_use("a", 900, 0)], None, id="who only holds much may stay"),
        pytest.param(499, [_use("a", 900, 0)], "a", id="unless it is nearly out"),
        pytest.param(0, [_use("a", 0, 0)], None, id="who takes nothing never goes"),
        pytest.param(0, [_use("a", 20, 20), _use("b", 10, 30)], "b", id="the largest growth"),
        pytest.param(0, [_use("mine", 90, 90, is_tenants=False), _use("b", 5, 5)], "b", id="the owner's last"),
        pytest.param(0, [_use("mine", 90, 90, is_tenants=False), _use("b", 500, 0)], "mine", id="not before"),
        pytest.param(
            0, [_use("a", 90, 90), _use("b", 20, 20, limit=10 * MIB)], "b", id="over its own limit before others"
        ),
        pytest.param(
            0, [_use("a", 90, 90), _use("b", 20, 20, request=10 * MIB)], "b", id="over its own request before others"
        ),
        pytest.param(0, [_use("a", 90, 90), _use("b", 20, 20, is_over_budget=True)], "b", id="over budget first"),
    ],
)
def test_under_pressure_who_took_it_goes_first(free: int, pods: list[PodUse], expected: str | None) -> None:
    found = decide_pressure(free * MIB, SOFT, HARD, pods)
    assert (None if found is None else found.uid) == expected
    if found is not None:
        assert found.is_disruption
        assert "The node was low on resource: ephemeral-storage. Threshold quantity: 1000Mi" in found.message


def test_over_budget_the_pod_that_grows_goes_and_nobody_elses() -> None:
    pods = [_use("a", 150, 10), _use("b", 20, 40), _use("still", 900, 0), _use("bob", 99, 99, namespace="bob")]
    found = decide_budget("ann", 210 * MIB, 200 * MIB, pods)
    assert found is not None and found.uid == "b" and not found.is_disruption
    assert "namespace ann keeps 210Mi on the disk and may keep 200Mi" in found.message
    assert decide_budget("ann", 200 * MIB, 200 * MIB, pods) is None
    assert decide_budget("ann", 210 * MIB, 200 * MIB, [_use("still", 900, 0)]) is None, "it may tidy up"


def test_whoever_writes_to_a_claim_beyond_its_size_goes() -> None:
    over = Claim("data", "ann", 11 * MIB, 10 * MIB, 1, ("a", "b"))
    assert [one.uid for one in decide_claims([over])] == ["a", "b"]
    assert "PersistentVolumeClaim data holds 11Mi, more than its 10Mi" in decide_claims([over])[0].message
    assert decide_claims([Claim("data", "ann", 11 * MIB, 10 * MIB, 0, ("a",))]) == [], "it may be tidied up"
    assert decide_claims([Claim("data", "ann", 10 * MIB, 10 * MIB, 5, ("a",))]) == []


def test_thresholds_are_relative_on_a_small_disk() -> None:
    assert decide_thresholds(100 * 1024 * MIB, 1024 * MIB) == (1024 * MIB, 512 * MIB)
    assert decide_thresholds(150 * MIB, 1024 * MIB) == (15 * MIB, 15 * MIB // 2)
