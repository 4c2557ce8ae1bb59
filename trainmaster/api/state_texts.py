"""The words about every state that a TrainJob can show: what it means and what to do, by reason.

docs/states.md is made of them (`tools/states_page.py`, where a test finds reasons without words), and `trainmaster
explain` uses them. Conditions are keyed by (type, status, reason), what a job waits for by the reason in
`status.waiting`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Words(NamedTuple):
    meaning: str
    advice: str


WAITING: Mapping[str, Words] = {
    "ClaimConflict": Words(
        "a PersistentVolumeClaim that the JobSet needs exists and belongs to somebody else",
        "delete or rename it, or keep it with `retentionPolicy.whenDeleted: Retain`",
    ),
    "ClaimTerminating": Words(
        "a claim of the last run is still being deleted", "nothing; it is made anew when it is gone"
    ),
    "DamagedJob": Words(
        "a Job of the JobSet lost the labels that say which one it is", "delete that Job; it is made anew"
    ),
    "FailedCreate": Words(
        "the server refuses a Pod (a quota, a limit, an invalid field)",
        "read the message; raise the quota, or correct the TrainJob and submit it again",
    ),
    "FailedUpdate": Words("the server refuses a change of the Job or its Pods", "read the message"),
    "HeadlessServiceCreationFailed": Words(
        "the server refuses the Service under which Pods find each other",
        "read the message; often a name that is taken",
    ),
    "Invalid": Words(
        "the TrainJob does not fit its runtime; told here where no admission could refuse it",
        "correct what the message names and submit it again",
    ),
    "InvalidNumNodes": Words("numNodes is below 1", "submit it again with at least one node"),
    "InvalidRuntimeSnapshot": Words(
        "the ConfigMap that keeps the runtime as it was at the start is damaged or somebody else's",
        "delete that ConfigMap; a new one is taken",
    ),
    "JobCreationFailed": Words("the server refuses a Job of the JobSet", "read the message"),
    "JobSetMissing": Words("somebody deleted the JobSet of a job that had not ended", "nothing; it is made anew"),
    "JobSetTerminating": Words(
        "somebody deleted the JobSet; it is on its way out", "nothing; it is made anew once it is gone"
    ),
    "LeftoverPod": Words(
        "a Pod of a Job that somebody deleted is still ending", "nothing; the Job is made anew when it is gone"
    ),
    "NameConflict": Words(
        "an object that belongs to somebody else has a name that the job needs", "delete or rename one of the two"
    ),
    "PVCCreationFailed": Words("the server refuses a PersistentVolumeClaim", "read the message"),
    "Refused": Words(
        "the server refuses what the job needs (a quota, a missing permission, an invalid field)",
        "read the message; it is tried again with growing pauses",
    ),
    "RestartBackOff": Words(
        "the job failed and is restarted; repeated failures make the pause longer, `until` says when it ends",
        "`status.failure` says who failed first, and its last words",
    ),
    "Restarting": Words(
        "somebody asked for a restart; what runs is stopped and the JobSet is replaced",
        "nothing; the next attempt begins when the last one is gone",
    ),
    "RuntimeNotFound": Words(
        "the runtime that the TrainJob names does not exist",
        "create it, and the job starts by itself; the message lists those that exist",
    ),
    "TrainingRuntimeNotSupported": Words(
        "`runtimeRef` names a kind that is no runtime", "use a TrainingRuntime or a ClusterTrainingRuntime"
    ),
    "Queued": Words(
        "the node has no room for all Pods of the job now, or others were first",
        "nothing: the message says what is missing, the position in the queue, and what would free it",
    ),
    "Unschedulable": Words(
        "no node suits a Pod", "read the message: it says what the Pod asks for and what the node has"
    ),
    "Unsupported": Words(
        "the job uses a field that this version does not carry out; it is never ignored",
        "remove what the message names",
    ),
}

CONDITIONS: Mapping[tuple[str, str, str], Words] = {
    ("Complete", "True", "AllJobsCompleted"): Words("the job has ended well", "nothing"),
    ("Failed", "True", "DeadlineExceeded"): Words(
        "it took longer than its `activeDeadlineSeconds`; what ran was stopped",
        "raise the deadline and submit it again",
    ),
    ("Failed", "True", "FailJobSetFailurePolicyAction"): Words(
        "a rule of the failure policy says that this failure is final",
        "the message ends with who failed first and its last words",
    ),
    ("Failed", "True", "FailedJobs"): Words(
        "a Job failed, and the runtime has no failure policy",
        "the message ends with who failed first and its last words",
    ),
    ("Failed", "True", "ReachedMaxRestarts"): Words(
        "it failed again after the last restart that `maxRestarts` allows",
        "the message ends with who failed first; raise `maxRestarts` in the runtime if the cause was outside",
    ),
    ("Suspended", "True", "Suspended"): Words("somebody set `spec.suspend`; nothing of it runs", "set it to false"),
    ("Suspended", "False", "Resumed"): Words("it was suspended once, and is not any more", "nothing"),
}
