"""What to do about a failed job, as far as this home knows its code. Used by `run`, `describe` and `explain`."""

from __future__ import annotations

from trainmaster.api.code import CODE_DIGEST
from trainmaster.app.home.folder import Home
from trainmaster.jobs.models.training import TrainingJob


def list_job_advice(job: TrainingJob, home: Home | None) -> list[str]:
    """`home`: None for a cluster."""
    if job.failure is None:
        return []
    from trainmaster.api.training.advice import list_advice

    return list_advice(job.failure, job.memory_limit, find_own_modules(home, job))


def find_own_modules(home: Home | None, job: TrainingJob) -> frozenset[str] | None:
    """The names of the modules in the job's code; None if the code is not in this home."""
    digest = job.annotations.get(CODE_DIGEST, "")
    if home is None or not digest:
        return None
    from trainmaster.bundles.modules import list_modules
    from trainmaster.bundles.store import BundleStore, is_digest

    return list_modules(BundleStore(home.bundles).get_place(digest) / "tree") if is_digest(digest) else None
