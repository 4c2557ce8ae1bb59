"""A TrainJob's whole life, on our embedded server in virtual time and on a real Kubernetes control plane."""

from __future__ import annotations

from collections.abc import Callable

from tests.flow.stage import CLUSTER, EMBEDDED, Stage, is_finished, make_trainjob, only_on, scripted
from trainmaster.api.conditions import find_condition, is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOB_SETS, JOBS, PODS, SERVICES, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.client.contract import DeleteOptions
from trainmaster.jobs.kinds import find_place
from trainmaster.kit.clock import parse_time


def fail_always(pod: Object, run: int) -> int:
    return 1


def run_on(pod: Object, run: int) -> int:
    return -1


def get_attempt(pod: Object) -> int:
    return int(pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"])


def fail_once(pod: Object, run: int) -> int:
    """Rank 1 fails in the first attempt, in which rank 0 would run for ever; then both succeed."""
    if get_attempt(pod) > 0:
        return 0
    return 1 if pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "1" else -1


def has_ready_pods(job: Object) -> bool:
    return bool(job.get("status", {}).get("ready") == 2)


async def test_a_job_runs_to_completion_through_the_whole_chain(stage: Stage) -> None:
    await stage.submit()
    trainjob = await stage.wait_for(TRAIN_JOBS, "first", is_finished)
    condition = trainjob["status"]["conditions"][0]
    assert (condition["type"], condition["reason"]) == ("Complete", "AllJobsCompleted")
    assert condition["message"] == "jobset completed successfully"
    counts = {"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}
    assert trainjob["status"]["jobsStatus"] == [counts]
    assert "waiting" not in trainjob["status"]
    pods = await stage.list_all(PODS)
    assert sorted(pod["spec"]["hostname"] for pod in pods) == ["first-node-0-0", "first-node-0-1"]
    assert {pod["spec"]["subdomain"] for pod in pods} == {"first"}
    assert [service["metadata"]["name"] for service in await stage.list_all(SERVICES)] == ["first"]
    reasons = await stage.list_event_reasons()
    assert reasons.count("SuccessfulCreate") == 2
    assert {"Scheduled", "Completed", "AllJobsCompleted"} <= set(reasons)


@scripted(run_on)
async def test_while_it_runs_a_job_has_no_condition(stage: Stage) -> None:
    await stage.submit()
    trainjob = await stage.wait_for(
        TRAIN_JOBS,
        "first",
        lambda job: [entry["ready"] for entry in job.get("status", {}).get("jobsStatus", [])] == [1],
    )
    assert "conditions" not in trainjob["status"]


@scripted(fail_once)
async def test_a_failing_rank_restarts_the_whole_gang_and_the_job_recovers(stage: Stage) -> None:
    await stage.submit()
    trainjob = await stage.wait_for(TRAIN_JOBS, "first", is_finished)
    assert is_true(list_conditions(trainjob), "Complete")
    assert "failure" not in trainjob["status"], "it has recovered; the event stays"
    jobset = (await stage.list_all(JOB_SETS))[0]
    assert jobset["status"]["restarts"] == 1
    assert [get_attempt(pod) for pod in await stage.list_all(PODS)] == [1, 1]


@only_on(EMBEDDED, "upstream's JobSet manager may remove the Pods before a cache on a cluster has shown them")
@scripted(fail_once)
async def test_every_attempt_that_fails_says_who_failed_first(stage: Stage) -> None:
    await stage.submit()
    failing = await stage.wait_for(TRAIN_JOBS, "first", lambda job: job.get("status", {}).get("failure"))
    assert (failing["status"]["failure"]["rank"], failing["status"]["failure"]["exitCode"]) == (1, 1)
    assert "conditions" not in failing["status"]
    await stage.wait_for(TRAIN_JOBS, "first", is_finished)
    texts = [event["message"] for event in await stage.list_all(EVENTS) if event["reason"] == "RankFailed"]
    assert len(texts) == 1 and texts[0].startswith("first failure: rank 1 of job first-node-0 (Pod ")


@scripted(fail_always)
async def test_after_six_restarts_the_job_has_failed_and_says_which_job(stage: Stage) -> None:
    await stage.submit()
    trainjob = await stage.wait_for(TRAIN_JOBS, "first", is_finished)
    condition = trainjob["status"]["conditions"][0]
    assert (condition["type"], condition["reason"]) == ("Failed", "ReachedMaxRestarts")
    text = "jobset failed due to reaching max number of restarts (first failed job: first-node-0)"
    assert condition["message"].startswith(f"{text}; first failure: rank ")
    assert "ended with exit code 1; its last words:\nstep 3\nValueError: run " in condition["message"]
    failure = trainjob["status"]["failure"]
    assert (failure["attempt"], failure["job"], failure["exitCode"]) == (6, "first-node-0", 1)
    assert failure["pod"] in condition["message"]
    assert (await stage.list_all(JOB_SETS))[0]["status"]["restarts"] == 6
    # Seven attempts of two Pods; a Pod may not have got as far as running when the other one failed.
    assert 7 <= len(stage.node.started) <= 14


async def test_a_finished_job_is_left_in_peace(stage: Stage) -> None:
    await stage.submit()
    await stage.wait_for(TRAIN_JOBS, "first", is_finished)
    await stage.come_to_rest()
    before = await stage.list_versions()
    await stage.come_to_rest()
    assert await stage.list_versions() == before


@only_on(EMBEDDED, "the pause is our own JobSet controller's; upstream's restarts at once")
@scripted(fail_always)
async def test_a_pause_between_restarts_is_shown_on_the_trainjob(stage: Stage) -> None:
    await stage.submit()
    trainjob = await stage.wait_for(TRAIN_JOBS, "first", lambda job: job.get("status", {}).get("waiting"))
    assert trainjob["status"]["waiting"]["reason"] == "RestartBackOff"
    assert "restart 2 of 6" in trainjob["status"]["waiting"]["message"]


@only_on(EMBEDDED, "as before")
@scripted(fail_always)
async def test_the_first_restart_comes_at_once_and_the_others_after_one_two_four_seconds(stage: Stage) -> None:
    await stage.submit()
    pauses: list[int] = []
    for attempt in range(1, 7):
        jobset = await stage.wait_for(JOB_SETS, "first", has_restarted(attempt))
        restarting = find_condition(list_conditions(jobset), "RestartingJobSet")
        failure = (await stage.wait_for(TRAIN_JOBS, "first", has_failed_before(attempt)))["status"]["failure"]
        assert restarting is not None
        moments = [parse_time(text) for text in (restarting["lastTransitionTime"], failure["finishedAt"])]
        pauses.append(round((moments[0] - moments[1]).total_seconds()))
    assert pauses == [0, 1, 2, 4, 8, 16]


def has_restarted(times: int) -> Callable[[Object], bool]:
    return lambda jobset: bool(jobset.get("status", {}).get("restarts") == times)


def has_failed_before(attempt: int) -> Callable[[Object], bool]:
    return lambda job: bool((job.get("status", {}).get("failure") or {}).get("attempt") == attempt - 1)


@scripted(run_on)
async def test_deleting_a_job_takes_everything_along(stage: Stage) -> None:
    await stage.submit()
    await stage.wait_for(JOB_SETS, "first", lambda jobset: jobset.get("status", {}).get("replicatedJobsStatus"))
    await stage.client.delete(TRAIN_JOBS, "first", stage.namespace, DeleteOptions())

    async def is_gone() -> bool:
        names = [name for gvr, name in await stage.list_versions() if gvr != CONFIG_MAPS.plural]
        configs = [obj["metadata"]["name"] for obj in await stage.list_all(CONFIG_MAPS)]
        return names == [] and "first-runtime-snapshot" not in configs

    await stage.eventually(is_gone)


@scripted(run_on)
async def test_a_suspended_job_has_no_pods_until_it_is_resumed_and_none_after_it_is_suspended_again(
    stage: Stage,
) -> None:
    await stage.submit(make_trainjob(suspend=True))
    suspended = await stage.wait_for(TRAIN_JOBS, "first", lambda job: is_true(list_conditions(job), "Suspended"))
    condition = suspended["status"]["conditions"][0]
    assert (condition["reason"], condition["message"]) == ("Suspended", "TrainJob is suspended")
    await stage.come_to_rest()
    assert await stage.list_all(PODS) == []
    await stage.edit(TRAIN_JOBS, "first", {"spec": {"suspend": False}})
    await stage.wait_for(JOBS, "first-node-0", has_ready_pods)
    resumed = await stage.wait_for(TRAIN_JOBS, "first", lambda job: not is_true(list_conditions(job), "Suspended"))
    condition = resumed["status"]["conditions"][0]
    assert (condition["reason"], condition["message"]) == ("Resumed", "TrainJob is resumed")
    await stage.edit(TRAIN_JOBS, "first", {"spec": {"suspend": True}})
    job = await stage.wait_for(JOBS, "first-node-0", lambda job: is_true(list_conditions(job), "Suspended"))
    await stage.eventually(lambda: is_empty(stage))
    assert "failed" not in job["status"]


async def is_empty(stage: Stage) -> bool:
    return await stage.list_all(PODS) == []


@scripted(lambda pod, run: -1 if get_attempt(pod) == 0 else 0)
async def test_a_pod_deleted_by_hand_counts_as_a_failure_and_restarts_the_gang(stage: Stage) -> None:
    await stage.submit()
    await stage.wait_for(JOBS, "first-node-0", has_ready_pods)
    pod = (await stage.list_all(PODS))[0]
    await stage.client.delete(PODS, pod["metadata"]["name"], stage.namespace, DeleteOptions())
    trainjob = await stage.wait_for(TRAIN_JOBS, "first", is_finished)
    assert is_true(list_conditions(trainjob), "Complete")
    assert (await stage.list_all(JOB_SETS))[0]["status"]["restarts"] == 1


async def test_what_admission_refuses_of_a_jobset_is_said_on_the_trainjob(stage: Stage) -> None:
    runtime = make_runtime({"failurePolicy": {"restartStrategy": "InPlaceRestart"}})
    await stage.client.create(TRAINING_RUNTIMES, runtime, stage.namespace)
    job = make_trainjob()
    job["spec"]["runtimeRef"] = {"name": "own", "kind": "TrainingRuntime"}
    await stage.submit(job)
    trainjob = await stage.wait_for(TRAIN_JOBS, "first", lambda job: job.get("status", {}).get("waiting"))
    text = "InPlaceRestart restart strategy cannot be set when InPlaceRestart feature gate is disabled"
    assert trainjob["status"]["waiting"]["reason"] == "Refused"
    assert text in trainjob["status"]["waiting"]["message"]
    await stage.eventually(lambda: has_event(stage, "TrainJobResourcesCreationFailed"))


async def has_event(stage: Stage, reason: str) -> bool:
    return reason in await stage.list_event_reasons()


@only_on(CLUSTER, "the embedded server does not let such a TrainJob in; the operator brings no webhook")
async def test_a_job_waits_for_its_runtime_says_so_and_starts_once_it_exists(stage: Stage) -> None:
    job = make_trainjob()
    job["spec"]["runtimeRef"] = {"name": "own", "kind": "TrainingRuntime"}
    await stage.submit(job)
    trainjob = await stage.wait_for(TRAIN_JOBS, "first", lambda job: job.get("status", {}).get("waiting"))
    assert trainjob["status"]["waiting"]["reason"] == "RuntimeNotFound"
    text = f'TrainingRuntime "own" does not exist in namespace {stage.namespace}; create it, or use one of those'
    assert trainjob["status"]["waiting"]["message"].startswith(text)
    await stage.client.create(TRAINING_RUNTIMES, make_runtime({}), stage.namespace)
    trainjob = await stage.wait_for(TRAIN_JOBS, "first", is_finished)
    assert is_true(list_conditions(trainjob), "Complete")
    assert "waiting" not in trainjob["status"]


@only_on(CLUSTER, "the embedded server starts every job as a gang and makes no PodGroup")
async def test_a_job_that_needs_a_kind_which_the_cluster_has_not_waits_and_says_which(stage: Stage) -> None:
    runtime = make_runtime({})
    runtime["spec"]["podGroupPolicy"] = {"coscheduling": {"scheduleTimeoutSeconds": 100}}
    await stage.client.create(TRAINING_RUNTIMES, runtime, stage.namespace)
    job = make_trainjob()
    job["spec"]["runtimeRef"] = {"name": "own", "kind": "TrainingRuntime"}
    await stage.submit(job)
    trainjob = await stage.wait_for(TRAIN_JOBS, "first", lambda job: job.get("status", {}).get("waiting"))
    assert trainjob["status"]["waiting"]["reason"] == "Refused"
    assert "scheduling.x-k8s.io" in trainjob["status"]["waiting"]["message"]
    await stage.eventually(lambda: has_event(stage, "TrainJobResourcesCreationFailed"))
    assert await stage.list_all(JOB_SETS) == []


async def test_a_foreign_jobset_of_the_same_name_is_left_alone_and_named(stage: Stage) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "foreign:1"}]}
    jobs = [{"name": "w", "template": {"spec": {"template": {"spec": pod}}}}]
    foreign = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "first", "namespace": stage.namespace},
        "spec": {"suspend": True, "replicatedJobs": jobs},
    }
    made = await stage.client.create(JOB_SETS, foreign, stage.namespace)
    await stage.submit()
    trainjob = await stage.wait_for(TRAIN_JOBS, "first", lambda job: job.get("status", {}).get("waiting"))
    text = 'a JobSet "first" exists that does not belong to this TrainJob; delete or rename one of the two'
    assert trainjob["status"]["waiting"] == {
        "reason": "NameConflict",
        "message": text,
        "since": trainjob["status"]["waiting"]["since"],
    }
    after = (await stage.list_all(JOB_SETS))[0]
    assert (after["metadata"]["uid"], after["spec"]) == (made["metadata"]["uid"], made["spec"])
    await stage.client.delete(JOB_SETS, "first", stage.namespace, DeleteOptions())
    trainjob = await stage.wait_for(TRAIN_JOBS, "first", is_finished)
    assert is_true(list_conditions(trainjob), "Complete")


@scripted(run_on)
async def test_a_jobset_deleted_by_hand_is_made_anew(stage: Stage) -> None:
    await stage.submit()
    first = await stage.wait_for(JOB_SETS, "first", lambda jobset: True)
    await stage.client.delete(JOB_SETS, "first", stage.namespace, DeleteOptions(propagation="Background"))
    second = await stage.wait_for(
        JOB_SETS, "first", lambda jobset: jobset["metadata"]["uid"] != first["metadata"]["uid"]
    )
    assert second["spec"] == first["spec"]


@scripted(run_on)
async def test_a_restart_that_is_asked_for_replaces_the_gang_and_counts_on(stage: Stage) -> None:
    await stage.submit()
    await stage.wait_for(JOBS, "first-node-0", has_ready_pods)
    before = await stage.wait_for(JOB_SETS, "first", bool)
    await stage.edit(TRAIN_JOBS, "first", {"metadata": {"annotations": {"trainmaster.dev/restart": "1"}}})
    after = await stage.wait_for(
        JOB_SETS, "first", lambda jobset: jobset["metadata"]["uid"] != before["metadata"]["uid"]
    )
    assert after["metadata"]["annotations"]["trainmaster.dev/first-attempt"] == "1"
    await stage.wait_for(JOBS, "first-node-0", has_ready_pods)
    pods = await stage.list_all(PODS)
    assert len(pods) == 2
    assert {place.attempt for pod in pods if (place := find_place(pod)) is not None} == {1}
    job = await stage.wait_for(TRAIN_JOBS, "first", lambda job: "waiting" not in job["status"])
    assert not list_conditions(job)
    assert await stage.eventually(lambda: has_event(stage, "Restarting"))


def make_runtime(template: Object) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "train:1"}]}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"metadata": {"labels": labels}, "spec": {"backoffLimit": 0, "template": {"spec": pod}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "own"},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {**template, "replicatedJobs": [{"name": "node", "template": job}]}},
        },
    }
