"""On a cluster: why Pods of a TrainJob do not start or do not stay, and whether those of before a suspension still end.

On one machine, our JobSet and Job controllers and the node report this (`controllers.waiting`). On a cluster only Pods
and events say it, and upstream's Job controller creates new Pods of a resumed Job while the old ones still run, under
the same host names. So a JobSet is not resumed before they have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.api.labels import JOBSET_NAME
from trainmaster.api.meta import Object
from trainmaster.api.reading import NOTHING, read_spec
from trainmaster.api.resources import EVENTS, JOBS, PODS, TRAIN_JOBS
from trainmaster.client.view import View
from trainmaster.controllers.waiting import Waiting
from trainmaster.engine.request import Request
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.troubles import REFUSED, find_refusal, find_trouble, list_troubles

LEFTOVER_POD = "LeftoverPod"
REFUSALS = f"involvedObject.kind=Job,reason={REFUSED}"
"""Selects the events that are read here."""


def find_reason(view: View, jobset: JobSet) -> Waiting | None:
    """For a JobSet that should run."""
    if jobset.is_finished or jobset.is_suspended:
        return None
    jobs = [job for job in _list_jobs(view, jobset) if not job.is_finished]
    trouble = find_trouble(pod for job in jobs for pod in _list_pods(view, job))
    if trouble is None and (short := [job for job in jobs if _lacks_pods(view, jobset, job)]):
        events = map(ObjectEvent, view.list(EVENTS, jobset.namespace))
        trouble = find_refusal([job.uid for job in short], list(events))
    return None if trouble is None else Waiting(trouble.reason, trouble.message)


def find_leftover(view: View, jobset: JobSet) -> Waiting | None:
    """For a suspended JobSet that should be resumed: which of its Pods are still ending."""
    ending = [pod for job in _list_jobs(view, jobset) for pod in _list_pods(view, job) if not pod.is_over]
    if not ending:
        return None
    count = "a Pod" if len(ending) == 1 else f"{len(ending)} Pods"
    verb, pronoun = ("is", "it has") if len(ending) == 1 else ("are", "they have")
    text = f"{count} of before the suspension {verb} still ending ({ending[0].name}); the job goes on once {pronoun}"
    return Waiting(LEFTOVER_POD, text)


def _list_jobs(view: View, jobset: JobSet) -> Iterator[Job]:
    return map(Job, view.owned(JOBS, jobset.namespace, jobset.uid))


def _list_pods(view: View, job: Job) -> Iterator[Pod]:
    return map(Pod, view.owned(PODS, job.namespace, job.uid))


def _lacks_pods(view: View, jobset: JobSet, job: Job) -> bool:
    """Whether it has fewer Pods than it should; finished ones count."""
    templates = (one["template"] for one in jobset.replicated_jobs if one["name"] == job.step)
    wanted = read_spec(next(templates, NOTHING)).get("parallelism") or 1
    return sum(1 for _ in _list_pods(view, job)) < wanted


def map_pod(view: View, obj: Object) -> Iterable[Request]:
    """The TrainJob of a Pod that has trouble, or that may have been the reason why it waits."""
    pod = Pod(obj)
    name = pod.labels.get(JOBSET_NAME)
    trainjob = None if not name else view.find(TRAIN_JOBS, pod.namespace, name)
    if trainjob is None or not name:
        return ()
    job = TrainJob(trainjob)
    if job.is_finished or not (job.waiting or any(list_troubles(pod))):
        return ()
    return (Request(pod.namespace, name),)


def map_refusal(view: View, obj: Object) -> Iterable[Request]:
    """The TrainJob of the Job whose Pod was refused."""
    event = ObjectEvent(obj)
    found = view.find(JOBS, event.namespace, str(event.involved.get("name")))
    if event.reason != REFUSED or found is None or Job(found).uid != event.involved.get("uid"):
        return ()
    name = Job(found).jobset
    return (Request(event.namespace, name),) if view.find(TRAIN_JOBS, event.namespace, name) is not None else ()


def keep_refusal(event: Object) -> Object:
    """The part of an event that is read here."""
    kept = ("apiVersion", "kind", "reason", "message", "involvedObject", "lastTimestamp", "eventTime", "series")
    names = ("name", "namespace", "uid", "resourceVersion")
    meta = {key: value for key, value in event["metadata"].items() if key in names}
    return {**{key: event[key] for key in kept if key in event}, "metadata": meta}
