"""Large Jobs: what is remembered from one look to the next changes no plan, and nobody is woken for nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.unit.controllers.job.stage import NAME, Stage
from tests.unit.controllers.world import NOW
from trainmaster.api.labels import CONTROLLER_UID
from trainmaster.api.resources import JOBS, PODS
from trainmaster.controllers.job.claims import gather, gather_own
from trainmaster.controllers.job.facts import SMALL, PodFactsMemo
from trainmaster.controllers.job.reconciler import build_controller
from trainmaster.engine.request import Request
from trainmaster.kit.steps import finish_steps
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit

SIZE = SMALL + 8


@pytest.mark.parametrize("seed", range(5))
def test_a_controller_that_remembers_plans_the_same_as_one_that_does_not(seed: int) -> None:
    stage = Stage(completions=SIZE, parallelism=SIZE, backoffLimit=1000)
    remembering, chance = build_controller(), random.Random(seed)
    for _ in range(30):
        stage.seconds += 5
        pods = chance.sample(stage.pods, 3)
        for pod in pods:
            act = chance.randrange(5)
            if act == 0:
                stage.end_pod(pod, chance.randrange(2))
            elif act == 1:
                stage.delete(pod)
            elif act == 2:
                stage.vanish(pod)
            elif act == 3:
                stage.merge(PODS, pod["metadata"]["name"], {"metadata": {"labels": {CONTROLLER_UID: "other"}}})
            else:
                stage.start_pods()
        request = Request("default", NAME)
        want = build_controller().reconcile(stage, request, Now(NOW), ())
        assert remembering.reconcile(stage, request, Now(NOW), ()) == want
        stage.look()


def test_what_happens_between_two_steps_of_a_pass_is_left_to_the_next_pass() -> None:
    """Pods end and disappear while the pass counts, and while it creates more."""
    stage = Stage(completions=600, parallelism=600, backoffLimit=1000)
    pods = iter(stage.pods)
    stage.edit(completions=1000, parallelism=1000)
    acts: dict[int, Callable[[], object]] = {
        2: lambda: stage.end_pod(next(pods), 0),
        4: lambda: stage.vanish(next(pods)),
        9: lambda: stage.end_pod(next(pods), 0),
        11: lambda: stage.end_pod(next(pods), 1),
    }
    in_steps = build_controller().reconcile_in_steps
    assert in_steps is not None
    steps, taken = in_steps(stage, Request("default", NAME), Now(NOW), ()), 0
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
            acts.pop(taken, lambda: None)()
            taken += 1
    assert not acts, "the pass takes more steps than that"
    stage.carry_out(end.value.value.all_writes)
    assert stage.status["active"] == 1000
    stage.settle()
    stage.wait(700)
    assert (stage.status["active"], stage.status["failed"], stage.status["succeeded"]) == (998, 2, 2)


def test_only_the_versions_of_the_last_look_are_kept() -> None:
    memo, old, new = PodFactsMemo(), *([{"metadata": {"uid": str(n)}} for n in range(SIZE)] for _ in range(2))
    first = finish_steps(memo.read("job", old))
    assert all(mine is theirs for mine, theirs in zip(finish_steps(memo.read("job", old)), first, strict=True))
    assert all(facts.pod.raw is pod for facts, pod in zip(finish_steps(memo.read("job", new)), new, strict=True))
    assert all(mine is not theirs for mine, theirs in zip(finish_steps(memo.read("job", old)), first, strict=True))


def test_what_pods_of_a_large_job_report_is_gathered_and_of_a_small_one_not() -> None:
    large, small = Stage(completions=SIZE, parallelism=SIZE), Stage()
    assert gather(large, large.pods[0]) > 0
    assert gather(small, small.pods[0]) == 0


def test_a_large_job_does_not_wake_itself_with_its_own_counts() -> None:
    stage = Stage(completions=SIZE, parallelism=SIZE)
    assert gather_own(stage, stage.job) > 0


@pytest.mark.parametrize("change", [{"spec": {"suspend": True}}, {"status": {"conditions": [
    {"type": "FailureTarget", "status": "True"}]}}], ids=["suspended", "about to end"])  # fmt: skip
def test_a_large_job_that_somebody_suspends_or_that_ends_is_looked_at_at_once(change: dict[str, object]) -> None:
    stage = Stage(completions=SIZE, parallelism=SIZE)
    assert gather_own(stage, stage.merge(JOBS, NAME, change)) == 0


def test_a_pass_that_leaves_pods_to_make_asks_for_the_next_one() -> None:
    stage = Stage(completions=1200, parallelism=1200)
    assert [plan.requeue_after for plan in stage.plans[:3]] == [0.0, 0.0, None]


def test_many_like_events_are_one() -> None:
    stage = Stage(completions=1200, parallelism=1200)
    texts = [note.message for note in stage.notes]
    assert len(texts) == 10 + 3, "ten, and one for the rest of each pass"
    assert texts[10:] == [f"(combined from similar events): Created pod: {name}" for name in _list_last(stage)]


def _list_last(stage: Stage) -> list[str]:
    creates = [plan.writes[-1] for plan in stage.plans[:3]]
    return [write.obj["metadata"]["name"] for write in creates]  # type: ignore[union-attr]  # creates
