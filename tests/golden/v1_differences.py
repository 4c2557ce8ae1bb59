"""Deliberate differences from training-operator 1.8.1, whose jobs are the kinds of `kubeflow.org/v1`."""

from __future__ import annotations

from tests.golden.entries import Answer, Field, Refused

_LATER = "as training-operator 1.9.4 does"
_COUNTED = "every restart counts against backoffLimit; upstream replaces the Pod without end"
_DEADLINE = "the deadline has a timer; upstream notices it with the next change of the job or of a Pod"
_KEPT = f"after a limit or a deadline cleanPodPolicy decides which Pods remain, {_LATER}"
_NO_GANG = "the scheduler places all Pods of a job or none by itself, without a PodGroup"
_VOLCANO = "the Pods run; upstream's wait for Volcano, which did not run where they were recorded"
_CONFLICT = "the job creates nothing while a name is taken, and its status says whose the object is"
_REFUSED_POD = "the status says why no Pod is created, not only an event"
_UNSCHEDULABLE = "the status and the event say what would match"
_ONE_RESTART = "one event for a restart; upstream reports it twice, in different words"
_PERMANENT = "a job that fails with a permanent exit code has a completionTime, so its TTL applies"

FIELDS = (
    # Every job
    Field(
        "1.8/*",
        "*Job",
        "spec.runPolicy",
        "`runPolicy` is always returned, because the SDK cannot read a job without it",
    ),
    Field(
        "1.8/*",
        "*Job",
        "status.replicaStatuses.Worker.selector",
        "the selector stays after the Master has succeeded; upstream loses it",
    ),
    Field(
        "1.8/*",
        "*Job",
        "event ExitedWithCode",
        "a Pod that succeeds is counted, without an event; upstream repeats the event in every pass",
        "events",
        lacks="* exited with code 0",
    ),
    Field("1.8/*", "*Job", "status.restarts", "how many Pods were replaced; counts against backoffLimit"),
    Field("1.8/*", "*Job", "status.failure", "the rank that failed first, how it failed, and its last lines"),
    Field("1.8/ttl-*", "*Job", "status.retention", "when the job will be deleted, and by which rule", "finished"),
    Field(
        "1.8/ttl-*",
        "PyTorchJob",
        "event SuccessfulDeletePod",
        "`trainmaster history` shows deleted jobs, not an event",
        "events",
    ),
    Field(
        "1.8/*", "PyTorchJob", "event PyTorchJobRestarting", _ONE_RESTART, "events", lacks="1 x job * is restarting *"
    ),
    # MPIJobs
    Field(
        "1.8/*mpi*",
        "Pod",
        "spec.initContainers[kubectl-delivery].image",
        f"the image has moved, {_LATER}",
    ),
    Field(
        "1.8/*mpi*",
        "MPIJob",
        "event ServiceAccount is exist | event LauncherRole is exist | event RoleBinding is exist",
        "an event for an object that exists already says nothing; upstream records it in every pass",
        "events",
    ),
    Field(
        "1.8/*mpi*",
        "MPIJob",
        "event MPIJobRunning | event SuccessfulCreatePod",
        "the launcher is reported like every other Pod, and that the job runs by its condition",
        "events",
    ),
    Field(
        "1.8/*mpi*",
        "MPIJob",
        "event MPIJobSucceeded | event MPIJobFailed | event SuccessfulDeletePod",
        "upstream spends all events that an object may have in its first second, and loses these; it also reports that "
        "a launcher exists as a failure",
        "events",
    ),
    Field(
        "1.8/mpi-worker-fails",
        "ConfigMap",
        "data[discover_hosts.sh]",
        "the hosts of a job that has ended are not updated",
        "end",
    ),
    # Limits
    *(
        Field(f"1.8/backoff-{name}onfailure", kind, path, _COUNTED, moment)
        for name, job in (("", "PyTorchJob"), ("tf-", "TFJob"))
        for kind, path, moment in (
            (job, "status.completionTime | status.conditions[Failed] | status.conditions[Running].status", "end"),
            (job, "status.replicaStatuses.Worker.active | status.replicaStatuses.Worker.failed", "end"),
            ("Pod", "status.phase", "end"),
            (job, f"event {job}Failed | event SuccessfulCreatePod | event SuccessfulDeletePod", "events"),
        )
    ),
    *(
        Field(f"1.8/{case}", kind, path, _KEPT, moment)
        for case in ("backoff-zero", "deadline", "deadline-pod-event")
        for kind, path, moment in (
            ("Pod", "(object)", "end"),
            ("Service", "(object)", "end"),
            ("PyTorchJob", "event SuccessfulDeletePod | event SuccessfulDeleteService", "events"),
        )
    ),
    Field("1.8/deadline-mpi", "Pod", "(object)", _KEPT, "end"),
    Field(
        "1.8/backoff-zero",
        "PyTorchJob",
        "status.replicaStatuses.Worker.*",
        "the Pod that failed is counted as failed",
        "end",
    ),
    *(
        Field(
            f"1.8/{case}",
            "*Job",
            "status.completionTime | status.conditions[Failed] | status.conditions[Running].status",
            _DEADLINE,
            "past-deadline",
        )
        for case in ("deadline", "deadline-mpi")
    ),
    Field(
        "1.8/restart-in-place-3",
        "PyTorchJob",
        "event SuccessfulCreatePod | event SuccessfulCreateService | event SuccessfulDeletePod"
        " | event SuccessfulDeleteService",
        f"{_KEPT}; upstream deletes the Pods of the failed job and creates them again",
        "events",
    ),
    Field(
        "1.8/backoff-zero",
        "PyTorchJob",
        "event ExitedWithCode",
        "how the Pod failed is reported; upstream deletes it before it looks",
        "events",
    ),
    # Exit codes
    Field("1.8/exitcode-1", "PyTorchJob", "status.completionTime", _PERMANENT),
    Field(
        "1.8/exitcode-1",
        "PyTorchJob",
        "event PyTorchJobRestarting",
        "a permanent exit code restarts nothing",
        "events",
    ),
    Field("1.8/ttl-3-exitcode", "PyTorchJob", "status.completionTime", _PERMANENT, "finished"),
    Field("1.8/ttl-3-exitcode", "PyTorchJob", "event PyTorchJobRestarting", "as above", "events"),
    *(Field("1.8/ttl-3-exitcode", kind, "(object)", _PERMANENT, "end") for kind in ("PyTorchJob", "Pod", "Service")),
    # What prevents a job from running
    *(
        Field(f"1.8/bad-pt-{case}", "PyTorchJob", "status", _REFUSED_POD, "end")
        for case in ("mount", "service-account")
    ),
    Field("1.8/bad-pt-unschedulable", "PyTorchJob", "status.waiting", _UNSCHEDULABLE, "end"),
    Field("1.8/bad-pt-unschedulable", "PyTorchJob", "event Unschedulable", _UNSCHEDULABLE, "events"),
    Field(
        "1.8/bad-pt-unschedulable", "Pod", "metadata.annotations", "the reason, which is passed on to the job", "end"
    ),
    Field(
        "1.8/bad-pt-unschedulable",
        "Pod",
        "status.conditions[PodScheduled].message",
        "there is no preemption on one machine, so the message does not mention it",
        "end",
    ),
    Field("1.8/twins", "TFJob", "status", _CONFLICT),
    *(Field("1.8/twins", kind, "(object)", _CONFLICT, name="twins-ps-0") for kind in ("Pod", "Service")),
    Field(
        "1.8/twins",
        "TFJob",
        "event NameConflict | event FailedCreatePod | event SuccessfulCreatePod | event SuccessfulCreateService",
        _CONFLICT,
        "events",
    ),
    # Gangs and elastic jobs
    Field("1.8/gang-*", "*/PodGroup", "(object)", _NO_GANG),
    Field("1.8/gang-*-coscheduling", "Pod", "metadata.labels[scheduling.x-k8s.io/pod-group]", _NO_GANG),
    Field("1.8/gang-*", "*Job", "event JobTerminated | event SuccessfulDeletePodGroup", _NO_GANG, "events"),
    Field("1.8/gang-mpi-coscheduling", "MPIJob", "event SettedPodTemplateSchedulerName", _NO_GANG, "events"),
    Field("1.8/gang-*-volcano", "Pod", "(object)", _NO_GANG, "podgroup-pending"),
    Field("1.8/gang-*-volcano", "Service", "(object)", _NO_GANG, "podgroup-pending"),
    Field("1.8/gang-*-volcano", "Pod", "metadata.annotations | spec.schedulerName", _NO_GANG),
    Field("1.8/gang-*-volcano", "Pod", "status.phase", _VOLCANO),
    Field(
        "1.8/gang-*-volcano",
        "PyTorchJob",
        "status.startTime | status.replicaStatuses | status.conditions[Running]",
        _NO_GANG,
        "podgroup-pending",
    ),
    Field("1.8/gang-*-volcano", "PyTorchJob", "status.lastReconcileTime", "upstream sets it for jobs of Volcano only"),
    Field(
        "1.8/gang-*-volcano",
        "PyTorchJob",
        "status.conditions[Running] | status.replicaStatuses.Master.active | status.replicaStatuses.Worker.active",
        _VOLCANO,
        "running",
    ),
    Field(
        "1.8/gang-*-volcano",
        "PyTorchJob",
        "status.completionTime | status.conditions[Running] | status.conditions[Succeeded]"
        " | status.replicaStatuses.Master.succeeded | status.replicaStatuses.Worker.succeeded",
        _VOLCANO,
        "end",
    ),
    Field("1.8/gang-*-volcano", "PyTorchJob", "event PyTorchJobSucceeded", _VOLCANO, "events"),
    Field(
        "1.8/pt-elastic-hpa",
        "HorizontalPodAutoscaler",
        "(object)",
        "nothing measures the load of Pods here, so no autoscaler is created; `kubectl scale` changes the workers",
    ),
)

LIVE = (
    Field(
        "1.8/*mpi*",
        "MPIJob",
        "event mpijobsSucceeded | event SuccessfulDeleteJob",
        "upstream sometimes has an event left for it; that the job has ended is reported once, like for other kinds",
        "events",
    ),
    Field("1.8/gang-*", "*Job", "status.lastReconcileTime", "upstream sometimes sets it for other gangs as well"),
    Field(
        "1.8/recreated",
        "PyTorchJob",
        "event FailedCreatePod",
        "the Pods of the earlier job are waited for; upstream tries and fails if it is fast enough",
        "events",
    ),
    *(
        Field("1.8/restart-in-place-3", kind, "(object)", f"{_KEPT}; upstream does not always create them again")
        for kind in ("Pod", "Service")
    ),
)
"""What upstream does in some runs only, and did not while it was recorded (`tools/live_golden.py`)."""

_LONG = "a23456789-123456789-123456789-123456789-123456789-123456789-x"
_NOTHING = "upstream accepts it, and nothing happens"
_EVENT = "upstream accepts it, creates nothing and says so only in an event"
_NOT_NEGATIVE = ("greater than or equal to 0",)
_ONE = ("replicas", "must be 1")
_UNSUPPORTED = ("Unsupported value",)
_TOO_LONG = "the names of its Pods and Services would be too long"

REFUSED = (
    Refused(f"1.8/{_LONG}", ("metadata.name", "at most 54 characters"), _TOO_LONG),
    Refused("1.8/bad-mpi-no-image", ("image: Required value",), _EVENT),
    Refused("1.8/bad-mpi-no-launcher", ("mpiReplicaSpecs[Launcher]: Required value",), _EVENT),
    Refused("1.8/bad-mpi-two-launchers", ("mpiReplicaSpecs[Launcher]", *_ONE), _EVENT),
    Refused("1.8/bad-mpi-type", ("mpiReplicaSpecs[Foo]", *_UNSUPPORTED), _EVENT),
    Refused("1.8/bad-mx-container", ("at least one container with name mxnet",), _EVENT),
    Refused("1.8/bad-mx-type", ("mxReplicaSpecs[Foo]", *_UNSUPPORTED), "upstream runs a Pod without any role"),
    Refused("1.8/bad-tf-type", ("tfReplicaSpecs[Foo]", *_UNSUPPORTED), "upstream runs a Pod without any role"),
    Refused("1.8/bad-paddle-two-masters", ("paddleReplicaSpecs[Master]", *_ONE), "only one Master can be the server"),
    Refused("1.8/bad-pt-backend", ("rdzvBackend", *_UNSUPPORTED), "torchrun would refuse it in every Pod"),
    Refused("1.8/bad-pt-clean-policy", ("cleanPodPolicy", *_UNSUPPORTED), "upstream deletes all Pods"),
    Refused("1.8/bad-pt-empty-specs", ("pytorchReplicaSpecs: Required value",), _NOTHING),
    Refused("1.8/bad-pt-min-over-max", ("minReplicas", "at most maxReplicas"), _NOTHING),
    Refused("1.8/bad-pt-negative-backoff", ("backoffLimit", *_NOT_NEGATIVE), "upstream fails the job at once"),
    Refused("1.8/bad-pt-negative-ttl", ("ttlSecondsAfterFinished", *_NOT_NEGATIVE), "upstream deletes the job at once"),
    Refused("1.8/bad-pt-restart-policy", ("restartPolicy", *_UNSUPPORTED), _EVENT),
    Refused(
        "1.8/bad-pt-only-zero-workers",
        ("must be at least 1",),
        f"refused, {_LATER}; upstream 1.8 runs one worker",
    ),
    Refused(
        "1.8/bad-pt-zero-workers",
        ("must be at least 1",),
        f"refused, {_LATER}; upstream 1.8 creates and deletes a worker in turns",
    ),
    Refused("1.8/crash-tf-negative", ("replicas", *_NOT_NEGATIVE), "it ends the process of upstream's operator"),
)

ANSWERS = (
    Answer("1.8/pt-empty-replica-specs", ("must be required",), _NOTHING),
    Answer("1.8/pt-null-replica", ("must be required",), _NOTHING),
    Answer("1.8/pt-bad-restart-policy", ("restartPolicy", *_UNSUPPORTED), _EVENT),
    Answer("1.8/pt-bad-clean-policy", ("cleanPodPolicy", *_UNSUPPORTED), "upstream deletes all Pods"),
    Answer("1.8/pt-bad-backend", ("rdzvBackend", *_UNSUPPORTED), "torchrun would refuse it in every Pod"),
    Answer("1.8/pt-negative-backoff", ("backoffLimit", *_NOT_NEGATIVE), "upstream fails the job at once"),
    Answer("1.8/pt-negative-deadline", ("activeDeadlineSeconds", *_NOT_NEGATIVE), "upstream fails the job at once"),
    Answer("1.8/pt-negative-ttl", ("ttlSecondsAfterFinished", *_NOT_NEGATIVE), "upstream deletes the job at once"),
    Answer("1.8/pt-63-characters", ("metadata.name", "at most 54 characters"), _TOO_LONG),
    Answer("1.8/tf-bad-type", ("tfReplicaSpecs[Foo]", *_UNSUPPORTED), "upstream runs a Pod without any role"),
    Answer("1.8/tf-two-chiefs", ("tfReplicaSpecs[Chief]", *_ONE), "only one Chief can lead the training"),
    Answer("1.8/paddle-two-masters", ("paddleReplicaSpecs[Master]", *_ONE), "only one Master can be the server"),
    Answer("1.8/mx-wrong-container", ("at least one container with name mxnet",), _EVENT),
    Answer("1.8/mpi-no-launcher", ("mpiReplicaSpecs[Launcher]: Required value",), _EVENT),
    Answer("1.8/mpi-two-launchers", ("mpiReplicaSpecs[Launcher]", *_ONE), _EVENT),
    Answer("1.8/mpi-bad-clean-policy", ("spec.cleanPodPolicy", *_UNSUPPORTED), "upstream deletes all Pods"),
)
