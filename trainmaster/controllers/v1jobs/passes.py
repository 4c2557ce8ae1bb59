"""The decisions of one pass over a v1 job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.labels import POD_ATTEMPT
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PODS, SERVICE_ACCOUNTS, SERVICES
from trainmaster.api.v1jobs.frameworks import LAUNCHER, MPI, NEVER, WORKER
from trainmaster.api.v1jobs.replicas import ReplicaSpec
from trainmaster.client.writes import Create
from trainmaster.controllers.failures import FailedPod, choose_failure, read_failed_pod
from trainmaster.controllers.v1jobs import mpi, outcome
from trainmaster.controllers.v1jobs.census import (
    ReplicaCensus,
    count_restarts_in_place,
    is_outdated,
    is_retried,
    list_without_type,
    take_census,
)
from trainmaster.controllers.v1jobs.claims import V1Children
from trainmaster.controllers.v1jobs.cluster import V1ClusterPass
from trainmaster.controllers.v1jobs.contract import V1Cluster
from trainmaster.controllers.v1jobs.draft import V1JobDraft
from trainmaster.controllers.v1jobs.names import build_name
from trainmaster.controllers.v1jobs.outcome import V1Outcome
from trainmaster.controllers.v1jobs.pods import build_pod, build_service, describe_created, sets_restart_policy
from trainmaster.controllers.waiting import PASSING, Waiting, find_annotated
from trainmaster.engine.draft import build_delete, build_patch
from trainmaster.jobs.models.objects import ObjectModel, count
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import FAILED
from trainmaster.jobs.models.v1jobs import PAST_DEADLINE, RESTARTING, RUNNING, SUCCEEDED, V1Job
from trainmaster.kit.timeline import Now

_CONFLICT_SECONDS = 5.0
_OVERWRITTEN = "Restart policy in pod template will be overwritten by restart policy in replica spec"


class V1Pass:
    def __init__(self, job: V1Job, children: V1Children, now: Now, cluster: V1Cluster | None = None) -> None:
        self._job = job
        self._children = children
        self._now = now
        self._census = take_census(job, children.pods)
        self.draft = V1JobDraft(job, now)
        self._cluster = V1ClusterPass(job, children, self.draft, cluster)

    # Jobs that have ended or are suspended

    def clean_up(self) -> None:
        """Deletes Pods, with their Services, as `cleanPodPolicy` says. Unknown policies count as All."""
        policy = self._job.clean_pod_policy
        if policy != "None":
            self._remove([pod for pod in self._children.pods if policy == "Running" and pod.is_over])
        self._cluster.release()

    def _remove(self, kept: Sequence[Pod] = ()) -> None:
        """Deletes what the job owns, except the Pods in `kept` and their Services. Also Services whose Pods are gone,
        because an earlier pass may have been interrupted."""
        names = {pod.name for pod in kept}
        services = {
            name: one
            for name, one in self._children.services.items()
            if name not in names and one.is_owned_by(self._job.uid)
        }
        for pod in self._children.pods:
            if pod.name not in names and pod.is_owned_by(self._job.uid):
                self._delete(pod)
                if pod.name in services:
                    self._delete_service(services.pop(pod.name))
        for service in services.values():
            self._delete_service(service)

    def suspend(self) -> None:
        self.draft.begin()
        self.draft.writes += self._children.list_adoptions()
        self._remove()
        self._cluster.suspend()
        before = self._job.replica_statuses
        if before:
            self.draft.status["replicaStatuses"] = {
                name: {key: value for key, value in entry.items() if key != "active"} for name, entry in before.items()
            }
        self.draft.status.pop("waiting", None)
        self.draft.suspend()

    def wait(self, waiting: Waiting, event: str = "") -> None:
        """Says in the status what prevents the job from running. `event`: the reason of the event, if it is another."""
        draft = self.draft
        draft.begin()
        draft.start()
        before = self._job.waiting
        draft.status["waiting"] = waiting.to_wire(before, self._now.wall)
        if before.get("message") != waiting.message and waiting.reason not in PASSING:
            draft.note(self._job, event or waiting.reason, waiting.message, warning=True)

    # Jobs that run

    def run(self) -> None:
        draft, job = self.draft, self._job
        draft.resume()
        draft.begin()
        draft.writes += self._children.list_adoptions()
        if "startTime" not in draft.status and self._cluster.queued is not None:
            self._enter_queue(self._cluster.queued)
            return
        draft.start()
        draft.status["replicaStatuses"] = {name: group.describe(job) for name, group in self._census.items()}
        draft.status["failure"] = choose_failure(job.failure, list(self._list_failures()))
        outdated = [pod for pod in self._children.pods if is_outdated(job, pod)]
        if outdated:
            self._replace_all(outdated)
            return
        ended = outcome.find_outcome(job, self._census) or self._find_exceeded_limit()
        if ended is not None:
            self._finish(ended)
            return
        self._restore_labels()
        self._replace_failed()
        self._remove_surplus()
        problem = self._cluster.ensure() or self._create_objects() or self._create_missing()
        self._set_progress()
        self._set_waiting(problem)

    def _enter_queue(self, queued: Waiting) -> None:
        """Its time does not start before its PodGroup is admitted, as upstream."""
        problem = self._cluster.ensure()
        if problem is not None:
            self._set_waiting(problem)
        else:
            self.draft.status["waiting"] = queued.to_wire(self._job.waiting, self._now.wall)

    def _replace_all(self, pods: Sequence[Pod]) -> None:
        """A user restarts the job: all Pods end before new ones are created, and failures so far no longer count."""
        job, draft = self._job, self.draft
        draft.status["restarts"] = draft.status["restartingPods"] = None
        text = f"{job.framework.kind} {job.name} is restarting because a user asked for it."
        if not all(pod.is_deleting for pod in pods):
            draft.set(RESTARTING, text)
            draft.note(job, f"{job.framework.kind}{RESTARTING}", text)
        for pod in pods:
            self._delete(pod)
        text = f"a restart was asked for: attempt {job.wanted_attempt} begins when all Pods are gone"
        draft.status["waiting"] = Waiting(RESTARTING, text).to_wire(job.waiting, self._now.wall)

    def _finish(self, ended: V1Outcome) -> None:
        statuses: dict[str, Object] = self.draft.status["replicaStatuses"]
        launchers = self._census[LAUNCHER].pods.values() if LAUNCHER in self._census else ()
        if any(pod.is_over for pod in launchers):
            # As upstream, the workers of an MPIJob are no longer counted.
            statuses.get(WORKER, {}).clear()
        if ended.kind == SUCCEEDED:
            # As upstream, Pods that still run count as succeeded.
            for entry in statuses.values():
                active = entry.pop("active", 0)
                if active:
                    entry["succeeded"] = count(entry.get("succeeded")) + active
        else:
            self._note_exits(pod for group in self._census.values() for pod in group.list_failed())
        self.draft.finish(ended.kind, ended.message, reason=ended.reason, warning=ended.warning)

    def _find_exceeded_limit(self) -> V1Outcome | None:
        job, limit = self._job, self._job.backoff_limit
        if limit is not None:
            total = job.restarts + len(self._list_uncounted()) + count_restarts_in_place(self._census.values())
            if total > 0 and total >= limit:
                text = f"Job {job.name} has failed because it has reached the specified backoff limit"
                return V1Outcome(FAILED, text)
        left = self._find_time_left()
        if left is not None and left <= 0:
            return V1Outcome(FAILED, f"Job {job.name} has failed because {PAST_DEADLINE}")
        self.draft.wake_after(left)
        return None

    def _find_time_left(self) -> float | None:
        seconds = self._job.policy.get("activeDeadlineSeconds")
        if seconds is None:
            return None
        return self._now.left(self._job.uid, "active", self.draft.status["startTime"], float(seconds))

    def _restore_labels(self) -> None:
        """Services and users find Pods by their labels, and a Pod that replaced this one would have the same name."""
        for pod, labels in self._children.relabelled:
            if pod.is_deleting:
                continue
            changes = [f"{name}={value}" for name, value in labels.items() if pod.labels.get(name) != value]
            text = f"Labels of pod {pod.name} were changed; they are set again: {', '.join(changes)}"
            self.draft.write(build_patch(PODS, pod, {"metadata": {"labels": labels}}))
            self.draft.note(self._job, "PodLabelsChanged", text, warning=True)

    # Pods that failed

    def _list_failures(self) -> Iterator[FailedPod]:
        for group in self._census.values():
            for index, pod in group.pods.items():
                if pod.phase == "Failed":
                    place = {"job": self._job.name, "replicatedJob": group.replica.word, "rank": index}
                    yield read_failed_pod(pod, find_count(pod.annotations.get(POD_ATTEMPT)) or 0, place)

    def _list_uncounted(self) -> list[tuple[ReplicaCensus, Pod]]:
        """Failed Pods that will be replaced and are not counted yet."""
        counted = self._job.restarting_pods
        return [
            (group, pod)
            for group in self._census.values()
            for pod in group.list_failed()
            if pod.uid not in counted and is_retried(self._job, group.replica, pod)
        ]

    def _replace_failed(self) -> None:
        draft, job = self.draft, self._job
        present = {pod.uid: pod for pod in self._children.pods}
        known = [uid for uid in job.restarting_pods if uid in present]
        for uid in known:
            self._delete(present[uid])
        new = self._list_uncounted()
        self._note_exits(pod for _, pod in new)
        for group in {id(group): group for group, _ in new}.values():
            self._restart(group)
        draft.status["restarts"] = job.restarts + len(new) or None
        draft.status["restartingPods"] = [*known, *(pod.uid for _, pod in new)] or None

    def _note_exits(self, pods: Iterable[Pod]) -> None:
        if self._job.framework is MPI:
            return  # its containers may have any name
        for pod in pods:
            self.draft.note(self._job, "ExitedWithCode", outcome.describe_exit(self._job, pod))

    def _restart(self, group: ReplicaCensus) -> None:
        text = outcome.describe_restart(self._job, group)
        self.draft.set(RESTARTING, text)
        self.draft.note(self._job, f"{self._job.framework.kind}{RESTARTING}", text, warning=True)

    # Pods and Services

    def _list_missing(self) -> Iterator[tuple[GVR, ReplicaSpec, int]]:
        # The launcher of an MPIJob comes last, as upstream.
        groups = list(self._census.values())
        for group in reversed(groups) if self._job.framework is MPI else groups:
            for index in range(group.replica.count):
                if group.lacks(index):
                    yield PODS, group.replica, index
                if self._job.framework.has_services and self._name(group.replica, index) not in self._children.services:
                    yield SERVICES, group.replica, index

    def _name(self, replica: ReplicaSpec, index: int) -> str:
        return build_name(self._job, replica, index)

    def _create_missing(self) -> Waiting | None:
        """Creates nothing if a name is taken, because the job could not run without that Pod."""
        job, missing = self._job, list(self._list_missing())
        if missing and self._cluster.queued is not None:
            return self._cluster.queued
        for gvr, replica, index in missing:
            taken = self._children.find_foreign(gvr, self._name(replica, index))
            if taken is not None:
                return taken
        for gvr, replica, index in missing:
            name = self._name(replica, index)
            if gvr == PODS:
                # Decoded, because a template in a custom kind may say `cpu: 2` or null where a Pod does not.
                pod = build_pod(job, replica, index)
                self._cluster.prepare_pod(pod, replica)
                self.draft.write(Create(PODS, pod))
                if sets_restart_policy(replica):
                    self.draft.note(job, "SetPodTemplateRestartPolicy", _OVERWRITTEN, warning=True)
                self.draft.note(job, "SuccessfulCreatePod", describe_created(job, replica, name))
            else:
                self.draft.write(Create(SERVICES, build_service(job, replica, index)))
                self.draft.note(job, "SuccessfulCreateService", f"Created service: {name}")
        return None

    def _create_objects(self) -> Waiting | None:
        """What only an MPIJob needs."""
        if self._job.framework is not MPI:
            return None
        workers = self._census.get(WORKER)
        running = [] if workers is None else [pod.name for pod in workers.pods.values() if pod.is_running]
        for gvr, wanted in mpi.list_objects(self._job, running):
            found = self._children.find(gvr, wanted["metadata"]["name"])
            if found is None:
                self.draft.write(Create(gvr, wanted))
            elif found.is_owned_by(self._job.uid):
                changed: Object = {key: wanted[key] for key in ("data", "rules") if key in wanted}
                if any(found.raw.get(key) != value for key, value in changed.items()):
                    self.draft.write(build_patch(gvr, found, changed, versioned=True))
            elif gvr != SERVICE_ACCOUNTS:
                name = wanted["metadata"]["name"]
                kind = wanted["kind"]
                text = f'Resource "{name}" of MPIJobKind "{kind}" already exists and is not managed by MPIJob'
                return Waiting("NameConflict", text)
        return None

    def _remove_surplus(self) -> None:
        wanted = {
            self._name(group.replica, index) for group in self._census.values() for index in range(group.replica.count)
        }
        for group in self._census.values():
            for pod in group.surplus:
                self._delete(pod)
        for pod in list_without_type(self._job, self._children.pods):
            self._delete(pod)
        for name, service in self._children.services.items():
            if name not in wanted:
                self._delete_service(service)

    def _delete(self, pod: Pod) -> None:
        if not pod.is_deleting:
            self.draft.write(build_delete(PODS, pod))
            self.draft.note(self._job, "SuccessfulDeletePod", f"Deleted pod: {pod.name}")

    def _delete_service(self, service: ObjectModel) -> None:
        if not service.is_deleting:
            self.draft.write(build_delete(SERVICES, service))
            self.draft.note(self._job, "SuccessfulDeleteService", f"Deleted service: {service.name}")

    # Status

    def _set_progress(self) -> None:
        failed = [group for group in self._census.values() if group.failed]
        if failed:
            replaced = [group for group in failed if group.replica.restart_policy != NEVER]
            if replaced and not self.draft.is_true(RESTARTING):
                # Somebody deletes a Pod that runs.
                self._restart(replaced[0])
        elif outcome.is_running(self._job, self._census):
            self.draft.set(RUNNING, outcome.describe_running(self._job))

    def _set_waiting(self, problem: Waiting | None) -> None:
        """`problem`, else what the scheduler says about the first Pod that it cannot place."""
        if problem is not None:
            self.wait(problem)
            # Nobody reports when an object of another owner is gone.
            self.draft.wake_after(_CONFLICT_SECONDS)
            return
        pods = self._children.pods
        if 0 < self._job.min_available <= sum(bool(pod.node) for pod in pods):
            # It has started, and does not wait for the other Pods.
            pods = [pod for pod in pods if pod.node]
        pending = [pod for pod in pods if pod.phase == "Pending" and not pod.is_deleting]
        waiting = next(filter(None, map(_find_reason, pending)), None) or self._cluster.find_trouble(pods)
        if waiting is None:
            self.draft.status.pop("waiting", None)
        else:
            self._tell(waiting)

    def _tell(self, waiting: Waiting) -> None:
        """As for TrainJobs, only a changed reason is an event, because the text names one Pod of many."""
        before = self._job.waiting
        self.draft.status["waiting"] = waiting.to_wire(before, self._now.wall)
        if before.get("reason") != waiting.reason:
            self.draft.note(self._job, waiting.reason, waiting.message, warning=True)


def _find_reason(pod: Pod) -> Waiting | None:
    reason = find_annotated(pod.raw)
    return None if reason is None else Waiting(reason["reason"], reason["message"])
