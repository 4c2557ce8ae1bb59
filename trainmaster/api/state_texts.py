"""Descriptions of every state of a TrainJob: its meaning and what to do, by reason.

docs/states.md is generated from them by `tools/states_page.py` (a test finds reasons without a description), and
`trainmaster explain` uses them. Conditions are keyed by (type, status, reason), reasons for waiting by the reason in
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
        "a PersistentVolumeClaim that the JobSet needs exists and belongs to another owner",
        "delete or rename it, or keep it with `retentionPolicy.whenDeleted: Retain`",
    ),
    "ClaimMismatch": Words(
        "an existing PersistentVolumeClaim has other access modes, another class or a smaller size than the JobSet's "
        "template asks for",
        "enlarge or delete the claim, correct the template, or submit the job under another name",
    ),
    "ClaimTerminating": Words(
        "a claim of the last run is still being deleted", "nothing; it is created again when it is gone"
    ),
    "DamagedJob": Words("a Job of the JobSet lost the labels that identify it", "delete that Job; it is created again"),
    "FailedCreate": Words(
        "the server refused a Pod (a quota, a limit, an invalid field)",
        "read the message; raise the quota, or correct the TrainJob and submit it again",
    ),
    "FailedUpdate": Words("the server refused a change of the Job or its Pods", "read the message"),
    "FailedValidation": Words(
        "a v1 job on a cluster has mistakes that its CRD cannot find", "read the message, and correct the job"
    ),
    "HeadlessServiceCreationFailed": Words(
        "the server refused the Service through which Pods find each other",
        "read the message; often the name is already in use",
    ),
    "Invalid": Words(
        "the TrainJob does not fit its runtime; reported here if admission could not refuse it",
        "correct the field in the message and submit it again",
    ),
    "InvalidNumNodes": Words("numNodes is below 1", "submit it again with at least one node"),
    "InvalidRuntimeSnapshot": Words(
        "the ConfigMap with the snapshot of the runtime is damaged or belongs to another owner",
        "delete that ConfigMap; a new snapshot is taken",
    ),
    "JobCreationFailed": Words("the server refused a Job of the JobSet", "read the message"),
    "JobSetMissing": Words("the JobSet of an unfinished job was deleted", "nothing; it is created again"),
    "JobSetTerminating": Words("the JobSet is being deleted", "nothing; it is created again when it is gone"),
    "LeftoverPod": Words(
        "a Pod of a deleted Job, or of before a suspension, is still ending",
        "nothing; the job continues when the Pod is gone",
    ),
    "NameConflict": Words(
        "an object of another owner has a name that the job needs", "delete or rename one of the two"
    ),
    "PVCCreationFailed": Words("the server refused a PersistentVolumeClaim", "read the message"),
    "Refused": Words(
        "the server refused an object of the job (a quota, a missing permission, an invalid field)",
        "read the message; it is retried with increasing back-off",
    ),
    "RestartBackOff": Words(
        "the job failed and will be restarted; the back-off grows with repeated failures, `until` is its end",
        "`status.failure` shows which rank failed first, and its last lines",
    ),
    "Restarting": Words(
        "a restart was requested; running Pods are stopped and replaced",
        "nothing; the next attempt starts when the last one has ended",
    ),
    "RuntimeNotFound": Words(
        "the runtime of the TrainJob does not exist",
        "create it, and the job starts automatically; the message lists the existing ones",
    ),
    "TrainingRuntimeNotSupported": Words(
        "`runtimeRef` refers to a kind that is not a runtime", "use a TrainingRuntime or a ClusterTrainingRuntime"
    ),
    "Queued": Words(
        "the node has no free resources for all Pods of the job, or other jobs are ahead in the queue",
        "nothing; the message shows what is missing, the position in the queue, and which jobs must end first",
    ),
    "Unschedulable": Words(
        "no node fits a Pod", "read the message: it shows what the Pod requests and what the node has"
    ),
    "Unsupported": Words(
        "the job uses a field that this version does not implement; such fields are never ignored",
        "remove the field in the message",
    ),
}

POD_TROUBLES: Mapping[str, Words] = {
    "CrashLoopBackOff": Words(
        "a container ends again and again, and is restarted in its Pod with growing pauses",
        "read its output: `trainmaster logs NAME`; the message has its exit code",
    ),
    "CreateContainerConfigError": Words(
        "a container cannot be made from its Pod's specification, often because a Secret or ConfigMap is missing",
        "create what the message names; the Pod starts automatically",
    ),
    "CreateContainerError": Words("the container runtime could not make a container", "read the message"),
    "ErrImageNeverPull": Words(
        "the node does not have the image, and `imagePullPolicy: Never` forbids to pull it",
        "load the image into the node, or use another policy",
    ),
    "ErrImagePull": Words(
        "the image cannot be pulled: it does not exist, or the registry refuses it or cannot be reached",
        "correct the name, or add `imagePullSecrets`; the kubelet tries again with growing pauses",
    ),
    "FailedCreate": Words(
        "the server refused a Pod (Pod Security, a quota, an invalid field)",
        "read the message; correct the TrainJob and submit it again, or change what refuses its Pods",
    ),
    "InvalidImageName": Words("the name of the image is not valid", "correct it and submit the job again"),
    "RunContainerError": Words(
        "the container runtime could not start the program, often because it does not exist in the image",
        "correct the command or the image, and submit the job again",
    ),
    "Unschedulable": Words(
        "no node fits a Pod", "read the message: it counts for each reason the nodes that it excludes"
    ),
}
"""Reasons in `status.waiting` on a cluster that come from Pods and their containers, or from events of Jobs. Container
runtimes and kubelets have others, too."""

CONDITIONS: Mapping[tuple[str, str, str], Words] = {
    ("Complete", "True", "AllJobsCompleted"): Words("the job has completed successfully", "nothing"),
    ("Failed", "True", "DeadlineExceeded"): Words(
        "the job exceeded its `activeDeadlineSeconds`; its Pods were stopped",
        "raise the deadline and submit it again",
    ),
    ("Failed", "True", "FailJobSetFailurePolicyAction"): Words(
        "a rule of the failure policy makes this failure final",
        "the message ends with the rank that failed first and its last lines",
    ),
    ("Failed", "True", "FailedJobs"): Words(
        "a Job failed, and the runtime has no failure policy",
        "the message ends with the rank that failed first and its last lines",
    ),
    ("Failed", "True", "ReachedMaxRestarts"): Words(
        "the job failed again after the last restart that `maxRestarts` allows",
        "the message ends with the rank that failed first; raise `maxRestarts` if the cause was external",
    ),
    ("Failed", "True", "Stalled"): Words(
        "the steps of the job stood still, and its policy `trainmaster.dev/on-stall` is to fail, or to restart and all "
        "restarts were used; its Pods were stopped",
        "read what its ranks printed last; [stalls](stalls.md) shows how long steps may take",
    ),
    ("Failed", "True", "RepeatedFailure"): Words(
        "the same error ended three attempts in a row, without a new step or checkpoint in between",
        "the message ends with the rank that failed first; mend the program, or raise `maxRestarts` of the runtime, "
        "which is then obeyed",
    ),
    ("Failed", "True", "NotRestartable"): Words(
        "the program is no valid Python, or its main module cannot be imported",
        "the message ends with the error; mend the program or its environment and submit it again",
    ),
    ("Suspended", "True", "Suspended"): Words("`spec.suspend` is set; no Pods of the job run", "set it to false"),
    ("Suspended", "False", "Resumed"): Words("the job was suspended and has been resumed", "nothing"),
}
