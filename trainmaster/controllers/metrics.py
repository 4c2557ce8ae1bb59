"""Metrics of training jobs. Names and labels of `kubeflow_trainer_...` are from the documentation of Kubeflow Trainer,
those of `training_operator_...` from training-operator."""

from __future__ import annotations

from trainmaster.kit.metrics import CounterSpec, GaugeSpec, HistogramSpec

EXISTING = GaugeSpec(
    "trainmaster_trainjobs",
    "Existing TrainJobs: Pending, Running, Suspended, Complete, Failed, Terminating.",
    ("state", "namespace", "runtime_ref"),
)
FINISHED = GaugeSpec("trainmaster_trainjobs_finished", "Finished TrainJobs that are not deleted yet.", ("namespace",))
OVERDUE = GaugeSpec("trainmaster_trainjobs_overdue", "TrainJobs whose TTL has expired and that still exist.")
STALLED = GaugeSpec(
    "trainmaster_trainjobs_stalled", "Running TrainJobs whose steps stand still (status.stalled).", ("namespace",)
)
STALLS = CounterSpec("trainmaster_trainjob_stalls_total", "Stalls of TrainJobs that were seen.", ("namespace",))
V1_EXISTING = GaugeSpec(
    "trainmaster_v1_jobs",
    "Existing jobs of the v1 kinds, such as PyTorchJobs, in the same states as TrainJobs.",
    ("kind", "state", "namespace"),
)
V1_FINISHED = GaugeSpec(
    "trainmaster_v1_jobs_finished", "Finished jobs of the v1 kinds that are not deleted yet.", ("kind", "namespace")
)
V1_OVERDUE = GaugeSpec(
    "trainmaster_v1_jobs_overdue", "Jobs of the v1 kinds whose TTL has expired and that still exist.", ("kind",)
)
DELETION_LATENESS = HistogramSpec(
    "trainmaster_deletion_lateness_seconds",
    "Time between the expiry of a job's TTL (stored in whole seconds) and its deletion.",
    bounds=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0),
)
DELETIONS = CounterSpec(
    "trainmaster_trainjob_deletions_total", "Jobs of all kinds deleted because of ttl or history_limit.", ("reason",)
)
CLEANUP_RETRIES = CounterSpec(
    "trainmaster_cleanup_retries_total",
    "Deletions that were refused (for example because of a conflict) and are retried.",
    ("controller",),
)
UPSTREAM_CREATED = CounterSpec(
    "kubeflow_trainer_trainjob_created_total", "TrainJobs created.", ("namespace", "runtime_ref")
)
UPSTREAM_FINISHED = CounterSpec(
    "kubeflow_trainer_trainjob_finished_total",
    "TrainJobs that succeeded or failed, and why.",
    ("result", "reason", "runtime_ref"),
)
UPSTREAM_LIFETIME = HistogramSpec(
    "kubeflow_trainer_trainjob_lifetime_seconds",
    "Time from the creation of a TrainJob to its end.",
    ("result", "runtime_ref"),
    (1, 10, 60, 300, 1800, 3600, 4 * 3600, 12 * 3600, 86400, 7 * 86400),
)
_OF_V1_JOBS = ("job_namespace", "framework")
V1_CREATED = CounterSpec("training_operator_jobs_created_total", "Jobs of the v1 kinds created.", _OF_V1_JOBS)
V1_DELETED = CounterSpec(
    "training_operator_jobs_deleted_total", "Jobs of the v1 kinds deleted because of ttl or history_limit.", _OF_V1_JOBS
)
V1_SUCCESSFUL = CounterSpec(
    "training_operator_jobs_successful_total", "Jobs of the v1 kinds that succeeded.", _OF_V1_JOBS
)
V1_FAILED = CounterSpec("training_operator_jobs_failed_total", "Jobs of the v1 kinds that failed.", _OF_V1_JOBS)
V1_RESTARTED = CounterSpec(
    "training_operator_jobs_restarted_total", "Pods of the v1 kinds that failed and were replaced.", _OF_V1_JOBS
)
