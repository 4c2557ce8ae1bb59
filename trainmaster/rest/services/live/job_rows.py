"""A job as one compact row, for tables of thousands. Pure."""

from __future__ import annotations

from trainmaster.jobs.models.training import TrainingJob
from trainmaster.rest.services.job_views import build_summary

COLUMNS = (
    "namespace",
    "name",
    "kind",
    "uid",
    "user",
    "runtime",
    "framework",
    "state",
    "reason",
    "message",
    "deleting",
    "nodes",
    "created_at",
    "completed_at",
    "percent",
    "eta_seconds",
    "labels",
    "metrics",
    "restarts",
)
_MESSAGE_LENGTH = 500


def build_row(job: TrainingJob) -> list[object]:
    summary = build_summary(job)
    progress = summary["progress"] or {}
    message = summary["message"]
    more = {
        "message": message[:_MESSAGE_LENGTH] if message else None,
        "percent": progress.get("percent"),
        "eta_seconds": progress.get("eta_seconds"),
        "labels": summary["labels"] or None,
        "metrics": progress.get("metrics") or None,
        "restarts": count_restarts(job),
    }
    row = {**summary, **more}
    return [row[column] for column in COLUMNS]


def count_restarts(job: TrainingJob) -> int:
    """As far as the job itself says it: its JobSet, which knows all, is not read for a table."""
    failure = job.failure
    if failure is None:
        return job.wanted_attempt
    failed = int(failure.get("attempt") or 0)
    return max(job.wanted_attempt, failed if job.is_finished else failed + 1)
