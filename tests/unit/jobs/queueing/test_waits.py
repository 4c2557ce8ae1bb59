"""Why jobs wait in queues of Kueue, from what the real Kueue 0.19.2 wrote about them (data/)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client, ListOptions, ObjectList
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.models.workloads import QueuedWorkload
from trainmaster.jobs.queueing.names import is_queued
from trainmaster.jobs.queueing.reading import read_states, read_wait
from trainmaster.jobs.queueing.waits import QueueFacts, explain_wait, read_position, read_preemptor
from trainmaster.kit.clock import parse_time

pytestmark = pytest.mark.unit

DATA: dict[str, Object] = json.loads((Path(__file__).parent / "data" / "kueue-0.19.2.json").read_text())
NOW = parse_time("2026-11-19T12:55:25Z")
QUOTA = "insufficient unused quota for cpu in flavor ordinary, 4 more needed"


def make_job(case: str = "waiting_for_quota", *, suspend: bool = True, queue: str = "team") -> TrainJob:
    """The job of that Workload."""
    owner = DATA[case]["metadata"]["ownerReferences"][0]
    meta = {"name": owner["name"], "namespace": "kueue-team", "uid": owner["uid"]}
    meta |= {"labels": {"kueue.x-k8s.io/queue-name": queue}} if queue else {}
    status = {"conditions": [{"type": "Suspended", "status": "True"}]}
    return TrainJob({"kind": "TrainJob", "metadata": meta, "spec": {"suspend": suspend}, "status": status})


@pytest.mark.parametrize(
    ("case", "message", "advice"),
    [
        ("waiting_for_quota", f"couldn't assign flavors to pod set node: {QUOTA}", "it starts by itself when there is"),
        ("preempted", "insufficient unused quota for cpu in flavor ordinary, 3 more needed", "it starts by itself"),
        ("never_fits", "it needs more than the queue can ever have: couldn't assign", "ask for less"),
        ("no_local_queue", "Kueue cannot admit it: LocalQueue nowhere doesn't exist", "`kubectl get localqueues -n "),
        ("no_cluster_queue", "Kueue cannot admit it: ClusterQueue nothing doesn't exist", "have LocalQueue lost name"),
        ("held", "Kueue cannot admit it: LocalQueue held is inactive", "describe localqueue held -n kueue-team`"),
        ("inactive_check", "cannot admit it: ClusterQueue checked is inactive", "describe clusterqueue checked`"),
        ("check_pending", "it has quota, and waits for admission checks: budget is Pending", "admissioncheck budget`"),
        ("check_retry", "budget is Pending (Reset to Pending after eviction. Previously: Retry)", "admissioncheck bud"),
        ("check_rejected", 'deactivated due to AdmissionCheck in Rejected state: "budget" (over budget)', "lets Kueue"),
        ("deactivated", "Kueue does not try it any more: The workload is deactivated", "`kubectl patch workload "),
        ("admitted", "Kueue has admitted it, and is about to start it", ""),
    ],
)  # fmt: skip
def test_each_reason_is_a_sentence_with_what_to_do(case: str, message: str, advice: str) -> None:
    wait = explain_wait(make_job(case), QueueFacts(QueuedWorkload(DATA[case])), NOW)
    assert message in wait.message and wait.message.startswith("in LocalQueue ")
    assert advice in " ".join(wait.unblock) and wait.state.word == "Waiting" and wait.state.reason == "Queued"


def test_the_quota_is_that_of_the_cluster_queue() -> None:
    facts = QueueFacts(QueuedWorkload(DATA["waiting_for_quota"]), "training")
    wait = explain_wait(make_job(), facts, NOW)
    assert wait.message.startswith("in LocalQueue team of ClusterQueue training: ")
    assert "`kubectl describe clusterqueue training` shows the quota and its use" in wait.unblock


def test_who_took_its_place_is_named() -> None:
    preempted, preemptor = QueuedWorkload(DATA["preempted"]), QueuedWorkload(DATA["preemptor"])
    assert read_preemptor(preempted) == (preemptor.uid, preemptor.job_uid)
    others = {preemptor.uid: preemptor.job_label}
    wait = explain_wait(make_job("preempted"), QueueFacts(preempted, others=others), NOW)
    text = "preempted 3m ago by kueue-team/urgent, because of prioritization in the ClusterQueue"
    assert text in wait.facts
    unseen = explain_wait(make_job("preempted"), QueueFacts(preempted), NOW)
    assert any(f"by a job that you may not see, with the uid {preemptor.job_uid}" in fact for fact in unseen.facts)


def test_when_kueue_tries_again_is_said() -> None:
    status = {**DATA["check_retry"]["status"], "requeueState": {"count": 2, "requeueAt": "2026-11-19T12:56:25Z"}}
    wait = explain_wait(
        make_job("check_retry"), QueueFacts(QueuedWorkload({**DATA["check_retry"], "status": status})), NOW
    )
    assert any(fact.startswith("Kueue tries again in 60s") and "after 2 times" in fact for fact in wait.facts)


def test_positions_count_from_one() -> None:
    first, second = (read_position(DATA["pending"], make_job(case)) for case in ("waiting_for_quota", "deactivated"))
    assert first is not None and (first.position, first.length, first.ahead) == (1, 2, ())
    assert second is not None and (second.position, second.ahead) == (2, ("kueue-team/second",))
    assert read_position(DATA["pending"], make_job("held")) is None


class Kueue:
    """An API server with Workloads, of which `refused` may not be read."""

    def __init__(self, *workloads: str, refused: tuple[str, ...] = (), absent: bool = False) -> None:
        self.workloads = [DATA[name] for name in workloads]
        self.refused, self.absent = refused, absent
        self.asked: list[str] = []

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions | None = None) -> ObjectList:
        self._answer(gvr, gvr.plural)
        wanted = options.label_selector if options is not None else ""
        found = [one for one in self.workloads if one["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] in wanted]
        return ObjectList(found, "1")

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        self._answer(gvr, subresource or gvr.plural)
        return DATA["pending"] if subresource else {"spec": {"clusterQueue": "training"}}

    def _answer(self, gvr: GVR, what: str) -> None:
        self.asked.append(f"{gvr.version}/{what}")
        if what in self.refused:
            raise StatusError(403, "Forbidden", "you may not")
        if self.absent:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")


def ask(kueue: Kueue, job: TrainingJob) -> Any:
    return asyncio.run(read_wait(cast(Client, kueue), job, NOW))


def test_a_job_in_no_queue_costs_no_request() -> None:
    kueue = Kueue()
    for job in (make_job(queue=""), make_job(suspend=False)):
        assert not is_queued(job) and ask(kueue, job) is None
        assert asyncio.run(read_states(cast(Client, kueue), [job])) == {}
    assert kueue.asked == []


def test_without_kueue_a_suspended_job_is_suspended() -> None:
    kueue = Kueue(absent=True)
    assert ask(kueue, make_job()) is None and asyncio.run(read_states(cast(Client, kueue), [make_job()])) == {}
    assert kueue.asked == ["v1beta2/workloads", "v1beta1/workloads"] * 2


def test_states_of_all_jobs_of_a_namespace_are_one_request() -> None:
    kueue = Kueue("waiting_for_quota", "held")
    jobs = [make_job(), make_job("held")]
    states = asyncio.run(read_states(cast(Client, kueue), jobs))
    assert [state.sentence for state in states.values()] == [
        f"Queued: in LocalQueue team: couldn't assign flavors to pod set node: {QUOTA}",
        "Queued: in LocalQueue held: Kueue cannot admit it: LocalQueue held is inactive",
    ]
    assert kueue.asked == ["v1beta2/workloads"]


def test_everything_about_one_job_is_asked_for() -> None:
    kueue = Kueue("preempted", "preemptor")
    wait = ask(kueue, make_job("preempted"))
    assert wait.message.startswith("in LocalQueue team of ClusterQueue training: ")
    assert any("by kueue-team/urgent" in fact for fact in wait.facts)


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (("workloads",), "you may not list workloads.kueue.x-k8s.io in namespace kueue-team"),
        (("localqueues",), "its ClusterQueue is not known: you may not get localqueues.kueue.x-k8s.io"),
        (("pendingworkloads",), "its position is not known: you may not get localqueues/pendingworkloads."),
    ],
)
def test_a_right_that_is_missing_is_said_and_ends_nothing(refused: tuple[str, ...], said: str) -> None:
    wait = ask(Kueue("waiting_for_quota", refused=refused), make_job())
    assert any(said in fact for fact in wait.facts) and wait.message.startswith("in LocalQueue team")
    assert wait.position is None or "pendingworkloads" not in refused
