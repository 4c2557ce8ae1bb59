"""Deliberate differences of our objects, events and responses from upstream's, each with its reason.

The comparison with the recorded cases lets exactly these pass; `test_differences.py` fails on an entry that no longer
differs anywhere. docs/differences.md is made from it: `python -m tests.golden.differences > docs/differences.md`.

The entries about training-operator are in `v1_differences.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from tests.golden import v1_differences
from tests.golden.comparison import Difference
from tests.golden.entries import Answer, Field, Refused
from tests.golden.stricter import STRICTER

_NEWER = "as Trainer 2.3 with JobSet 0.12 does"
_DISTURBED = "upstream is stuck here although its conditions do not show it; ours applies the allowed changes, and runs"
_UNDISTURBED = "upstream accepted the change and is stuck; ours refused it, so suspending and resuming work"
_STUCK = "upstream reports that it is stuck; there is nothing to report here"

_TOGGLED = {
    "TrainJob": "status.jobsStatus[node].suspended",
    "JobSet": "metadata.generation | spec.suspend | status.replicatedJobsStatus[node].suspended",
    "Job": "metadata.generation | spec.suspend | status.startTime",
}
"""What differs when only one of the two was suspended or resumed."""
_RESUMED = {
    "JobSet": " | ".join(f"status.conditions[Suspended].{part}" for part in ("status", "reason", "message")),
    "Job": " | ".join(f"status.conditions[Suspended].{part}" for part in ("status", "reason", "message")),
    "Pod": "(object)",
}
_RUNNING = {
    "TrainJob": "status.jobsStatus[node].active | status.jobsStatus[node].ready",
    "JobSet": "status.replicatedJobsStatus[node].active | status.replicatedJobsStatus[node].ready",
    "Job": "status.active | status.ready",
}
_COMPLETED = {
    "TrainJob": "status.conditions[Complete] | status.jobsStatus[node].succeeded",
    "JobSet": "status.conditions[Completed] | status.replicatedJobsStatus[node].succeeded | status.terminalState",
    "Job": "status.succeeded | status.completedIndexes | status.completionTime"
    " | status.conditions[SuccessCriteriaMet] | status.conditions[Complete]",
}
_SUSPENDED = {"JobSet": "status.conditions", "Job": "status.conditions", "Pod": "(object)"}
_SELECTOR = "template.spec.nodeSelector"


def _list_fields(case: str, moment: str, reason: str, *groups: Mapping[str, str]) -> tuple[Field, ...]:
    return tuple(Field(case, kind, path, reason, moment) for group in groups for kind, path in group.items())


def _list_stuck() -> tuple[Field, ...]:
    """Changes of a TrainJob on whose JobSet upstream's controller gives up."""
    s2, s4, s6 = "2.1/s2-suspended-while-running", "2.1/s4-numnodes-running", "2.1/s6-volume-suspended"
    job = "spec.replicatedJobs[node].template.spec"
    applied = {"JobSet": f"{job}.template.metadata | {job}.{_SELECTOR}"}
    moved = {**applied, "Job": f"spec.{_SELECTOR}"}
    found = [
        *_list_fields(s2, "2-changed", _DISTURBED, {"JobSet": "metadata.generation"}, applied),
        *_list_fields(s2, "3-resumed", _DISTURBED, _TOGGLED, _RESUMED, _RUNNING, moved),
        *_list_fields(s2, "end", _DISTURBED, _TOGGLED, _RESUMED, _RUNNING, moved),
        *_list_fields(
            s2,
            "events",
            _DISTURBED,
            {"JobSet": "event ResumeJobs", "Job": "event Resumed | event SuccessfulCreate", "Pod": "event Scheduled"},
        ),
        *_list_fields(s4, "end", _UNDISTURBED, _TOGGLED, _SUSPENDED, _RUNNING),
        *_list_fields(
            s4,
            "events",
            _UNDISTURBED,
            {"JobSet": "event SuspendedJobs", "Job": "event Suspended | event SuccessfulDelete"},
        ),
        Field(
            s6,
            "TrainJob",
            "metadata.generation | spec.podTemplateOverrides",
            "the refused change leaves the TrainJob as it was",
        ),
    ]
    for case in ("2.1/s3-numnodes-suspended", s6):
        found += _list_fields(case, "end", _UNDISTURBED, _TOGGLED, _RESUMED, _COMPLETED)
        events = {
            "JobSet": "event ResumeJobs | event AllJobsCompleted",
            "Job": "event Resumed | event SuccessfulCreate | event Completed",
            "Pod": "event Scheduled",
        }
        found += _list_fields(case, "events", _UNDISTURBED, events)
    found.append(Field("2.1/s[2346]-*", "TrainJob", "event TrainJobResourcesCreationFailed", _STUCK, "events"))
    return tuple(found)


FIELDS = (
    # Every case
    Field(
        "*",
        "Pod",
        "metadata.finalizers",
        "our Job controller counts without finalizers, so a Pod can always be removed",
    ),
    Field(
        "*",
        "Pod",
        "metadata.annotations[trainmaster.dev/attempt]",
        "the attempt of the Pod's index; the Pod's name is derived from it, so a Pod is never created twice",
    ),
    Field(
        "*",
        "Pod",
        "metadata.annotations[trainmaster.dev/devices]",
        "the GPUs that are leased to the Pod; on a cluster only the kubelet knows them",
    ),
    Field(
        "*",
        "Pod",
        "spec.tolerations",
        "admission adds no tolerations for nodes that are not ready: there is only one node",
    ),
    Field("*", "Pod", "spec.tolerations[node.kubernetes.io/*]", "as above, if there are other tolerations"),
    Field("*", "PersistentVolumeClaim", "metadata.finalizers", "there is no volume to protect from its Pods"),
    Field(
        "*",
        "JobSet",
        "metadata.annotations | metadata.annotations[trainmaster.dev/from-trainjob]",
        "the labels and annotations that come from the TrainJob, so that those removed there are removed here too",
    ),
    Field(
        "*",
        "Job",
        "metadata.annotations[trainmaster.dev/pods]",
        "the Pods that the Job controller has counted, instead of finalizers on the Pods",
    ),
    Field(
        "*-failed-restarts",
        "*",
        "event RestartBackOff",
        "after the first restart of a gang there is an increasing back-off, which JobSet and TrainJob report",
        "events",
    ),
    Field(
        "*-failed-*",
        "TrainJob",
        "status.conditions[Failed].message",
        "upstream's message, followed by the rank that failed first, how it failed, and its last lines",
        "end",
        begins=True,
    ),
    Field("*-failed-*", "TrainJob", "status.failure", "as above, as fields", "end"),
    Field("*-failed-*", "TrainJob", "event RankFailed", "as above, as an event for every attempt", "events"),
    # What only the older version does
    Field(
        "2.1/*",
        "ConfigMap",
        "(object)",
        f"a TrainJob keeps a snapshot of its runtime, {_NEWER}",
        name="*-runtime-snapshot",
    ),
    Field("2.1/*", "Pod", "metadata.labels[jobset.sigs.k8s.io/priority]", f"the label is set, {_NEWER}"),
    Field(
        "2.1/*",
        "Pod",
        "metadata.labels[topology.kubernetes.io/zone]",
        "Kubernetes 1.36 copies zone and region from the node to the Pod; one machine has none",
    ),
    Field("2.1/r1-*", "JobSet", "status.conditions[RestartingJobSet]", f"the condition is set, {_NEWER}"),
    Field("2.1/r1-*", "JobSet", "event DefaultFailurePolicy", f"the event is recorded, {_NEWER}", "events"),
    Field("2.1/r1-*", "JobSet", "event JobSetFailed", f"the event is recorded, {_NEWER}", "events"),
    Field("2.1/r1-*", "JobSet", "event JobsReady", f"the event is recorded, {_NEWER}", "events"),
    *(
        Field(
            "2.1/q1-managed-by-kueue", kind, path, f"a TrainJob managed by another controller is ignored, {_NEWER}", at
        )
        for kind, path, at in (
            ("TrainJob", "status", "end"),
            ("TrainJob", "Complete", "until"),
            *((kind, "(object)", "end") for kind in ("JobSet", "Service", "Job", "Pod")),
            ("JobSet", "event AllJobsCompleted", "events"),
            ("Job", "event SuccessfulCreate | event Completed", "events"),
            ("Pod", "event Scheduled", "events"),
        )
    ),
    Field(
        "2.1/m2-mlx",
        "Job",
        "event Completed",
        "upstream saw the launcher end first and deleted the Job of the nodes just as it completed",
        "events",
    ),
    Field("2.1/m*", "*", "*volumes[mpi-ssh-auth].secret.*", f"the key's files have modes that ssh accepts, {_NEWER}"),
    # Where upstream is not the model
    Field(
        "2.1/b4-missing-service-account",
        "TrainJob",
        "status.waiting",
        "the TrainJob shows why no Pod is created, not only an event on the Job",
    ),
    Field("2.1/b4-*", "Job*", "metadata.annotations*", "the reason, which is passed on to the TrainJob"),
    Field(
        "2.1/b4-*",
        "Job",
        "event FailedCreate",
        "names of Pods are derived, not generated, so the refusal contains the full name",
        "events",
    ),
    Field("2.1/b4-missing-service-account", "TrainJob", "event *", "as above, as an event", "events"),
    Field(
        "2.1/b5-unschedulable",
        "TrainJob",
        "status.waiting",
        "the TrainJob shows why the Pods wait, and what would match",
    ),
    Field("2.1/b5-*", "*", "metadata.annotations*", "the reason, which is passed on to the TrainJob"),
    Field(
        "2.1/b5-*",
        "Pod",
        "status.conditions[PodScheduled].message",
        "there is no preemption on one machine, so the message does not mention it",
    ),
    Field("2.1/b5-*", "Pod", "event FailedScheduling", "as above", "events"),
    Field("2.1/b5-unschedulable", "TrainJob", "event *", "as above, as an event", "events"),
    *(
        Field(case, "*", path, reason)
        for case in ("2.1/cd-no-trainer", "2.3/i-failed-restarts", "2.3/n-ttl-runtime")
        for path, reason in (
            ("*containers[node].env", "without spec.trainer, a torch runtime gets the PET_* variables with defaults"),
            ("*containers[node].env[PET_*]", "as above; upstream sets none"),
            ("*containers[node].ports", "and therefore the port in the variables"),
        )
    ),
    Field(
        "2.1/p5-ttl-rerun",
        "*",
        "(object)",
        "a finished TrainJob never runs again; upstream creates everything again",
        "end",
    ),
    Field(
        "2.1/p5-ttl-rerun", "TrainJob", "status.jobsStatus*", "therefore the counts are those of the only run", "end"
    ),
    Field("2.1/p5-ttl-rerun", "*", "event *", "therefore there are events of one run, not of four", "events"),
    Field("2.1/s[34]-*", "TrainJob", "answer 0", f"spec.trainer cannot be changed, {_NEWER}", "patch"),
    Field("2.1/s[34]-*", "TrainJob", "spec.trainer.numNodes", "the refused change leaves the TrainJob as it was"),
    Field("2.1/s[34]-*", "TrainJob", "metadata.generation", "the refused change leaves the TrainJob as it was"),
    Field(
        "2.1/s6-volume-suspended", "TrainJob", "answer 0", "the volume can no longer be added to the JobSet", "patch"
    ),
    *_list_stuck(),
    Field("2.1/e2-*", "TrainJob", "event NotAsAsked", "an event reports what the runtime ignores", "events"),
    Field(
        "2.3/h-deadline",
        "TrainJob",
        "event DeadlineExceeded",
        "exceeding the deadline is also reported as an event",
        "events",
    ),
    Field("2.1/p[23]-*", "*/PodGroup", "spec.minResources*", f"the sum of all requests, {_NEWER}"),
    Field("2.3/h-deadline", "TrainJob", "status.jobsStatus*", "after a deadline the counts are up to date", "end"),
    Field(
        "2.3/c-deepspeed-mpi",
        "*",
        "(object)",
        "upstream was recorded before its node was ready, and therefore before the launcher was created",
        "running",
        "*-launcher-0*",
    ),
    Field("2.3/h-deadline", "*", "(object)", "upstream was recorded while its garbage collector was running", "end"),
    Field("2.3/n-ttl-runtime", "JobSet", "(object)", "upstream was recorded while the JobSet was being deleted", "end"),
    *v1_differences.FIELDS,
)

REFUSED = (
    Refused(
        "2.1/a2-wrong-container",
        ("spec.podTemplateOverrides", '"trainer"', "node"),
        "the override names a container that no job has; the message lists the existing ones",
    ),
    Refused(
        "2.3/p-patch-unknown-container",
        ("spec.runtimePatches", '"side"', "node"),
        "the patch names a container that the job does not have; the message lists the existing ones",
    ),
    Refused(
        "2.3/o-patch-unknown-job",
        ("spec.runtimePatches", '"worker"', "node"),
        "the patch names a job that the runtime does not have; the message lists the existing ones",
    ),
    Refused(
        "2.1/b6-volume-two-sources", ("volumes", "may not specify more than 1 volume type"), "the Pod would be invalid"
    ),
    Refused("2.1/b7-mount-without-volume", ("volumeMounts", "missing"), "the Pod would be invalid"),
    Refused(
        "2.1/b8-gpu-mismatch",
        ("spec.trainer.resourcesPerNode", "nvidia.com/gpu"),
        "a device cannot be overcommitted: its request must equal its limit",
    ),
    Refused("2.1/ca-numproc-zero", ("spec.trainer.numProcPerNode", "greater than or equal to 1"), "nothing would run"),
    Refused("2.1/cf-numnodes-zero", ("spec.trainer.numNodes", "greater than or equal to 1"), "nothing would run"),
    Refused("2.1/cg-numnodes-negative", ("spec.trainer.numNodes", "greater than or equal to 1"), "nothing would run"),
    Refused(
        "2.1/ce-reserved-env-let-in",
        ("spec.trainer.env", "must not have reserved envs", "PET_NNODES"),
        "with a PET_NNODES other than numNodes, the ranks would wait for nodes that never start",
    ),
    Refused(
        "2.1/d3-labels-bad-value",
        ("spec.labels", '"not a label"', "a valid label must be"),
        "the JobSet would be invalid",
    ),
    Refused(
        "2.1/long-name-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ("metadata.name", "63"),
        "the names of the Jobs and Pods that would be derived from it are too long",
    ),
    *v1_differences.REFUSED,
)

_SERVED = "the fields of both versions are served"
_ONE = ("greater than or equal to 1",)
_IMMUTABLE = ("field is immutable",)
_LISTS = "refused at creation, with the existing names"

ANSWERS = (
    Answer("2.1/reserved-env-without-numproc", ("must not have reserved envs",), "the variables are always reserved"),
    Answer("2.1/reserved-mpi-env", ("must not have reserved envs",), f"refused, {_NEWER}"),
    Answer("2.1/numproc-negative", _ONE, "nothing would run"),
    Answer("2.1/numproc-zero", _ONE, "nothing would run"),
    Answer("2.1/numnodes-zero", _ONE, "nothing would run"),
    Answer("2.1/numnodes-negative", _ONE, "nothing would run"),
    Answer("2.1/bad-storage-uri", ("it must be a valid URI (scheme://...)",), f"refused, {_NEWER}"),
    Answer("2.1/override-unknown-container", ("spec.podTemplateOverrides", "node"), _LISTS),
    Answer("2.1/override-unknown-init-container", ("spec.podTemplateOverrides",), _LISTS),
    Answer("2.1/override-unknown-container-env", ("spec.podTemplateOverrides", "node"), _LISTS),
    Answer("2.1/torchtune-two-nodes-without-numproc", ("must be 1 for llama3_2/1B model",), "always checked"),
    Answer(
        "2.1/torchtune-numproc-without-numnodes",
        ("metadata.name", "33"),
        "upstream's webhook fails here; only the length of the name is wrong",
    ),
    Answer("2.1/unknown-field-deadline", (), _SERVED),
    Answer("2.1/unknown-field-runtime-patches", (), _SERVED),
    Answer("2.1/" + "a" * 63, ("metadata.name", "63"), "the names of its Jobs and Pods would be too long"),
    Answer(
        "2.1/runtime-numproc-word",
        ("spec.mlPolicy.torch.numProcPerNode", "NumProcPerNode must be equal to auto, cpu, gpu, or int value"),
        "upstream's rule fails on a string; ours has the same message without the internal error",
    ),
    Answer("2.1/update-numnodes", _IMMUTABLE, f"refused, {_NEWER}"),
    Answer("2.1/update-numproc-word", _IMMUTABLE, f"refused, {_NEWER}"),
    Answer("2.1/update-runtimeref", _IMMUTABLE, f"refused, {_NEWER}"),
    Answer("2.1/update-managed-by", _IMMUTABLE, f"refused, {_NEWER}"),
    Answer("2.3/numproc-auto", (), _SERVED),
    Answer("2.3/unknown-field", (), _SERVED),
    Answer("2.3/patch-unknown-job", ("spec.runtimePatches", "node"), _LISTS),
    Answer("2.3/patch-unknown-container", ("spec.runtimePatches", "node"), _LISTS),
    *v1_differences.ANSWERS,
)


def find_refused(case: str) -> Refused | None:
    return next((entry for entry in REFUSED if entry.case == case), None)


def find_answer(case: str) -> Answer | None:
    return next((entry for entry in ANSWERS if entry.case == case), None)


def list_unexpected(case: str, differences: Iterable[Difference]) -> list[Difference]:
    return [one for one in differences if not any(entry.covers(case, one) for entry in FIELDS)]


HEAD = """# Deliberate differences from upstream

Generated from `tests/golden/differences.py` by `python -m tests.golden.differences`; do not edit.

`tests/golden/` compares Trainmaster with objects, events and responses that were recorded from Kubeflow Trainer 2.3
(with JobSet 0.12) and 2.1 (with JobSet 0.10), with upstream's runtimes, and from training-operator 1.8.1 (the kinds of
`kubeflow.org/v1`). Apart from uids, times, random parts of names, node names and addresses, everything is equal except
for the entries on this page. A test fails for an entry that no longer differs. `python -m tools.live_golden` runs the
recorded jobs on the real training-operator and on Trainmaster and prints differences that are not listed. Differences
from a Kubernetes API server are listed in [compat.md](compat.md).
"""


def render() -> str:
    lines = [HEAD, "## Objects and events\n", "| cases | when | kind | field | reason |", "|---|---|---|---|---|"]
    lines += [
        f"| {_code(entry.cases)} | {'always' if entry.moment == '*' else entry.moment} | "
        f"{_kind(entry)} | {', '.join(map(_code, entry.paths))} | "
        f"{entry.reason} |"
        for entry in FIELDS
    ]
    lines += [
        "\n## Jobs that upstream accepts and we refuse\n",
        "| case | our message contains | reason |",
        "|---|---|---|",
    ]
    lines += [f"| {_code(entry.case)} | {_list(entry.texts)} | {entry.reason} |" for entry in REFUSED]
    lines += ["\n## Other responses\n", "Manifests and changes that get another response from us than from upstream.\n"]
    lines += ["| case | our message contains | reason |", "|---|---|---|"]
    lines += [f"| {_code(entry.case)} | {_list(entry.texts) or 'accepted'} | {entry.reason} |" for entry in ANSWERS]
    lines += ["\n## Stricter rules\n", "Writes that upstream accepts and we refuse, without a recorded case.\n"]
    lines += ["| what is refused | our message contains | reason |", "|---|---|---|"]
    lines += [f"| {entry.what} | {_list(entry.texts)} | {entry.reason} |" for entry in STRICTER]
    return "\n".join(lines) + "\n"


def _kind(entry: Field) -> str:
    kind = "any" if entry.kind == "*" else entry.kind
    return kind if entry.name == "*" else f"{kind} {_code(entry.name)}"


def _list(texts: Iterable[str]) -> str:
    return ", ".join(_code(text) for text in texts)


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    sys.stdout.write(render())
