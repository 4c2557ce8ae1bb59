"""Label and annotation keys, each with its writers and readers.

Clients select on the upstream keys; their spelling is part of the wire format. Keys under `trainmaster.dev/` are our
own and appear only on objects that we make.
"""

from __future__ import annotations

ANCESTOR_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On a runtime's Job templates, by its author; `trainer` marks the job that a TrainJob's `spec.trainer` describes."""
FRAMEWORK = "trainer.kubeflow.org/framework"
"""On runtimes, by their author; the Kubeflow SDK refuses runtimes without it."""

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
"""The JobSet controller puts these on Jobs and Pods (labels and annotations); Services, SDKs and users read them."""
JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB_NAME = "jobset.sigs.k8s.io/replicatedjob-name"
REPLICATED_JOB_REPLICAS = "jobset.sigs.k8s.io/replicatedjob-replicas"
GLOBAL_REPLICAS = "jobset.sigs.k8s.io/global-replicas"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
JOB_GLOBAL_INDEX = "jobset.sigs.k8s.io/job-global-index"
JOB_KEY = "jobset.sigs.k8s.io/job-key"
GROUP_NAME = "jobset.sigs.k8s.io/group-name"
GROUP_REPLICAS = "jobset.sigs.k8s.io/group-replicas"
JOB_GROUP_INDEX = "jobset.sigs.k8s.io/job-group-index"
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
JOB_RESTART_ATTEMPT = "jobset.sigs.k8s.io/job-restart-attempt"
"""Only if a failure policy restarts single Jobs: how often this one had been restarted when it was created."""
COORDINATOR = "jobset.sigs.k8s.io/coordinator"
"""Only if the JobSet has a coordinator: the DNS name of its Pod."""
EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""Annotation on JobSets or Job templates, by their author: one Job per value of that node label."""
NODE_SELECTOR_STRATEGY = "alpha.jobset.sigs.k8s.io/node-selector"
"""Annotation used with the previous one: select nodes by labels set in advance, not by affinity."""
NAMESPACED_JOB = "alpha.jobset.sigs.k8s.io/namespaced-job"
"""Label of nodes and node selector of Pods under that strategy."""
NO_SCHEDULE_TAINT = "alpha.jobset.sigs.k8s.io/no-schedule"
POD_PRIORITY = "jobset.sigs.k8s.io/priority"
"""On Pods of a JobSet; upstream's Pod webhook writes it, here the Job controller does."""

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Label and annotation of Indexed Pods, by the Job controller; ranks are read from it."""
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
LEGACY_CONTROLLER_UID = "controller-uid"
LEGACY_JOB_NAME = "job-name"

INSTALLATION = "trainmaster.dev/installation"
"""Label, by `trainmaster operator install`: the namespace of the installation that the object belongs to. The commands
change and delete only objects that have it."""

POD_ATTEMPT = "trainmaster.dev/attempt"
"""Annotation on Pods, by the Job controller: the attempt of its index, from 0; without indexes its serial
number. The Pod's name is derived from it."""
WAITING = "trainmaster.dev/waiting"
"""Annotation on JobSets and Jobs, by their controller: why they are waiting, as JSON {reason, message, since}. The
TrainJob controller copies it to `status.waiting`."""
RESTART_SERIES = "trainmaster.dev/restart-series"
"""Annotation on JobSets, by their controller: the last attempt that made progress. The restart back-off is counted from
there."""
FROM_TRAINJOB = "trainmaster.dev/from-trainjob"
"""Annotation on JobSets, by the TrainJob controller: which of its labels and annotations come from the TrainJob, as
JSON {labels, annotations}. Those that are removed from the TrainJob are removed from the JobSet; others stay."""
RESTART = "trainmaster.dev/restart"
"""Annotation on training jobs of all kinds, by people and `trainmaster restart`: the number of the attempt to start.
While it is greater than that of the JobSet, the TrainJob controller replaces the JobSet (`api.training.restarts`); the
controller of a v1 job replaces Pods with a lower number."""
FIRST_ATTEMPT = "trainmaster.dev/first-attempt"
"""Annotation on JobSets and their Pods, by the TrainJob controller, and on Pods of v1 jobs: the number of the first
attempt since the last restart that a user asked for, if it is not 0. Attempts of a job are numbered across all its
JobSets."""
ON_STALL = "trainmaster.dev/on-stall"
"""Annotation on TrainJobs, by people and `run --on-stall`: observe, restart or fail, what happens when its steps stand
still (`api.lifecycle.stalls`). It overrides the setting stalls.policy."""
SUSPENDED_BY_DRAIN = "trainmaster.dev/suspended-by-drain"
"""Annotation on jobs of all kinds, by the drain controllers: since when the machine has been drained. Only these jobs
are resumed when that is over. Whoever may change the job can remove it (`trainmaster suspend` does); it then stays
suspended."""
KEEPS_PLACE = "trainmaster.dev/keeps-place"
"""Annotation on JobSets and v1 jobs, by the drain controllers: since when a job that a drain suspended has wanted to
run. The scheduler takes it before jobs that have not run yet."""
DRAIN_MARKS = frozenset({SUSPENDED_BY_DRAIN, KEEPS_PLACE})
"""Nobody else can set them (`apiserver.admission.drain_marks`)."""
CONTROLLERS_OWN = frozenset({WAITING, RESTART_SERIES, FROM_TRAINJOB, FIRST_ATTEMPT, *DRAIN_MARKS})
"""Annotations on JobSets with internal state of the controllers; templates cannot set them."""
SUBMITTER = "trainmaster.dev/submitter"
"""Annotation on training jobs of all kinds, by the API server: `OWNER` if the owner of the installation created it.
Nobody can set or change it (`apiserver.admission.submitters`)."""
OWNER = "owner"
RERUN_OF = "trainmaster.dev/rerun-of"
"""Annotation on TrainJobs, by `trainmaster restart`: name and uid of the finished TrainJob that it repeats."""
KEEP_CHECKPOINTS = "trainmaster.dev/keep-checkpoints"
"""Annotation on training jobs, by their author: how many of the newest complete checkpoints are kept. Read by
`history.checkpoints`."""
KEEP_CHECKPOINTS_EVERY = "trainmaster.dev/keep-checkpoints-every"
"""Annotation beside it: checkpoints whose step is a multiple of this number are kept, too."""
RESUME_FROM = "trainmaster.dev/resume-from"
"""Annotation on training jobs, by their author and `trainmaster run --resume-from`: UID/NAME of a checkpoint of another
job of the namespace. The node copies it before the first Pod of the job starts."""
SHIPPED_HASH = "trainmaster.dev/shipped-hash"
"""Annotation on shipped runtimes, by the installer: the hash of the spec as shipped. One that differs was edited."""
RUNTIME_ORIGIN = "trainmaster.dev/runtime-origin"
"""Annotation on snapshots of runtimes, by the TrainJob controller: `shipped` if the runtime was as it is shipped when
the job began, `derived` if it was made for single jobs. Restart budgets of others are just numbers."""
SHIPPED_ORIGIN, DERIVED_ORIGIN = "shipped", "derived"
STOP_ON_SAME_FAILURE = "trainmaster.dev/stop-on-same-failure"
"""Annotation on TrainJobs and runtimes, by their author: "true" or "false" decides whether a job is given up that fails
with the same error again and again, without progress (`controllers.budget`). It is copied to snapshots of runtimes."""
ALLOW_DELETE_IN_USE = "trainmaster.dev/allow-delete-in-use"
"""Annotation on runtimes, by people: "true" lets it be deleted although TrainJobs refer to it."""
DERIVED = "trainmaster.dev/derived"
"""Label on runtimes that were created for single jobs, by their creator: "true". They are deleted with the jobs."""
DERIVED_FROM = "trainmaster.dev/derived-from"
"""Annotation beside it: KIND/NAME of the runtime that it is a copy of."""
LAST_USED = "trainmaster.dev/last-used"
"""Annotation on derived runtimes, by `trainmaster run`: when a job with it was last submitted. This keeps the
runtime until the job exists."""
ENVIRONMENT = "trainmaster.dev/environment"
"""Annotation on Pods, by their author: the name of a Python environment from the image rules."""
PACKAGES = "trainmaster.dev/packages"
"""Annotation on Pods, by their author: additional requirements, separated by commas or newlines."""
WARM = "trainmaster.dev/warm"
"""Annotation on Pods, by their author: "true" or "false" overrides the setting node.warm for this Pod."""
ISOLATION = "trainmaster.dev/isolation"
"""Annotation on the Node, by the node: the isolation level of Pods. Nodes of clusters have none."""
CHECKPOINT = "trainmaster.dev/CheckpointSaved"
"""Condition of failed Pods of TrainJobs, by the node: the newest complete checkpoint of the job at that time, and when
it was saved."""
DEVICES = "trainmaster.dev/devices"
"""Annotation on Nodes, by the node agent: the GPUs of the machine; on bound Pods, by the scheduler: those leased to the
Pod. The formats are in `api.devices`; the node turns the latter into environment variables."""
IDLE_GPUS_SINCE = "trainmaster.dev/idle-gpus-since"
"""Annotation on training jobs, by the server: since when none of its GPUs has done anything, once that was long enough
to report (`history.curves.idle_gpus`)."""
DRAINED_SINCE = "trainmaster.dev/drained-since"
"""Annotation on the Node, by `trainmaster drain`: when it was drained. The Node is drained while it has this and is
unschedulable (`jobs.draining`)."""
DRAINED_BY = "trainmaster.dev/drained-by"
"""Annotation beside it: the user who drained it."""
DRAIN_REASON = "trainmaster.dev/drain-reason"
"""Annotation beside it: why, in the words of that user."""
DRAINED_UNTIL = "trainmaster.dev/drained-until"
"""Annotation beside it, by the systemd unit when the machine shuts down: `NEXT_START` if the next start of the server
ends it."""
NEXT_START = "next-start"
MIRROR = "kubernetes.io/config.mirror"
"""Annotation on Pods that represent components of the control plane, which run elsewhere. The scheduler and the node
ignore such Pods."""
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
"""Label on TrainJobs, by their author: the LocalQueue of Kueue in which the job waits to be started."""
QUEUED_JOB_UID = "kueue.x-k8s.io/job-uid"
"""Label on Workloads, by Kueue: the uid of their job."""
MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label on all objects that the REST API creates: `trainmaster-rest`."""
USER = "trainmaster.dev/user"
"""Label on TrainJobs and scripts, by the REST API: the user_id of the request."""
REST_FRAMEWORK = "trainmaster.dev/framework"
"""Label on TrainJobs, by the REST API: the framework of the request."""
SCRIPT_OF = "trainmaster.dev/script-of"
"""Label on ConfigMaps, by the REST API: the TrainJob whose code it contains. Those without an owner are cleaned up."""
CODE_OF = "trainmaster.dev/code-of"
"""Label on ConfigMaps, by `trainmaster run` on a cluster: the TrainJob whose packed code it contains."""
OWNERLESS = "trainmaster.dev/ownerless"
"""Label beside it until the TrainJob owns the ConfigMap: "true". After a crash, `jobs.code_maps` completes it."""
CODE_MAP = "trainmaster.dev/code-config-map"
"""Annotation on TrainJobs, by whoever packed the code: the name of that ConfigMap."""

RESERVED_IN_TEMPLATES = ("jobset.sigs.k8s.io/", "batch.kubernetes.io/", "training.kubeflow.org/")
"""Prefixes of labels and annotations that only controllers may set in templates."""
RESERVED_ON_PODS = (*RESERVED_IN_TEMPLATES, "trainer.kubeflow.org/")
"""Only on Pods, because authors of runtimes use labels with the last prefix."""
