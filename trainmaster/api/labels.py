"""Label and annotation keys with a meaning, each with who writes it and who reads it.

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
"""Only where a failure policy restarts single Jobs: how often this one was, when it was made."""
COORDINATOR = "jobset.sigs.k8s.io/coordinator"
"""Only where the JobSet names a coordinator: the name under which its Pod is reached."""
EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""Annotation on JobSets or Job templates, by their author: one Job per value of that node label."""
NODE_SELECTOR_STRATEGY = "alpha.jobset.sigs.k8s.io/node-selector"
"""Annotation beside the previous one: by labels that somebody put on nodes, not by affinity."""
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

POD_ATTEMPT = "trainmaster.dev/attempt"
"""Annotation on Pods, by the Job controller: which attempt of its index a Pod is, from 0 on; without indexes
its serial number. The Pod's name is derived from it."""
WAITING = "trainmaster.dev/waiting"
"""Annotation on JobSets and Jobs, by their controller: why nothing happens, as JSON {reason, message, since}. The
TrainJob controller copies it to `status.waiting`, where people look."""
RESTART_SERIES = "trainmaster.dev/restart-series"
"""Annotation on JobSets, by their controller: the attempt that made progress last. Pauses between restarts are counted
from there."""
FROM_TRAINJOB = "trainmaster.dev/from-trainjob"
"""Annotation on JobSets, by the TrainJob controller: which labels and annotations of it stand in the TrainJob, as JSON
{labels, annotations}. One that is taken out there goes here; those of others stay."""
RESTART = "trainmaster.dev/restart"
"""Annotation on TrainJobs, by people and `trainmaster restart`: the number that its next attempt shall have. While it
is above that of the JobSet, the TrainJob controller replaces the JobSet (`api.training.restarts`)."""
FIRST_ATTEMPT = "trainmaster.dev/first-attempt"
"""Annotation on JobSets and their Pods, by the TrainJob controller: the number of the JobSet's first attempt, where it
is not 0. Attempts of a job are counted on over all its JobSets."""
CONTROLLERS_OWN = frozenset({WAITING, RESTART_SERIES, FROM_TRAINJOB, FIRST_ATTEMPT})
"""Annotations on JobSets that are books of their controllers: nobody's template sets them."""
RERUN_OF = "trainmaster.dev/rerun-of"
"""Annotation on TrainJobs, by `trainmaster restart`: name and uid of the finished TrainJob that it repeats."""
SHIPPED_HASH = "trainmaster.dev/shipped-hash"
"""Annotation on shipped runtimes, by the installer: the hash of the spec as shipped. One that differs was edited."""
ALLOW_DELETE_IN_USE = "trainmaster.dev/allow-delete-in-use"
"""Annotation on runtimes, by people: "true" lets it be deleted although TrainJobs refer to it."""
DERIVED = "trainmaster.dev/derived"
"""Label on runtimes that were made for single jobs, by their maker: "true"; they come and go with them."""
DERIVED_FROM = "trainmaster.dev/derived-from"
"""Annotation beside it: KIND/NAME of the runtime that it is a copy of."""
LAST_USED = "trainmaster.dev/last-used"
"""Annotation on derived runtimes, by `trainmaster run`: when it was about to submit a job with it. Until the job
exists, a moment later, nobody takes the runtime away."""
ENVIRONMENT = "trainmaster.dev/environment"
"""Annotation on Pods, by their author: the name of a Python environment from the image rules."""
PACKAGES = "trainmaster.dev/packages"
"""Annotation on Pods, by their author: requirements that the environment has besides, by commas or new lines."""
WARM = "trainmaster.dev/warm"
"""Annotation on Pods, by their author: "true" or "false" goes over the setting node.warm for this Pod."""
ISOLATION = "trainmaster.dev/isolation"
"""Annotation on the Node, by the node: the level that Pods run at. Nodes of clusters have none."""
DEVICES = "trainmaster.dev/devices"
"""Annotation on Nodes, by the node agent: the GPUs of the machine; on bound Pods, by the scheduler: those leased to the
Pod. The formats are in `api.devices`; the node turns the latter into environment variables."""
MIRROR = "kubernetes.io/config.mirror"
"""Annotation on Pods that only show something which runs elsewhere: the parts of the control plane. Written by `app`;
the scheduler and the node leave such Pods alone."""
MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label on everything that the REST API makes: `trainmaster-rest`."""
USER = "trainmaster.dev/user"
"""Label on TrainJobs and scripts, by the REST API: the user_id of the request."""
REST_FRAMEWORK = "trainmaster.dev/framework"
"""Label on TrainJobs, by the REST API: the framework of the request."""
SCRIPT_OF = "trainmaster.dev/script-of"
"""Label on ConfigMaps, by the REST API: the TrainJob whose code it holds. Without an owner it is looked at again."""

RESERVED_IN_TEMPLATES = ("jobset.sigs.k8s.io/", "batch.kubernetes.io/", "training.kubeflow.org/")
"""How labels and annotations of templates begin that only controllers write."""
RESERVED_ON_PODS = (*RESERVED_IN_TEMPLATES, "trainer.kubeflow.org/")
"""Runtimes have labels under the latter that are their author's."""
