"""What to do about a failed job, as far as this machine knows its code and files. For `run`, `describe`, `explain`."""

from __future__ import annotations

from pathlib import Path

from trainmaster.api.code import CODE_DIGEST
from trainmaster.api.labels import OWNER, SUBMITTER
from trainmaster.api.resources import NAMESPACES
from trainmaster.app.home.folder import Home
from trainmaster.client.contract import Client
from trainmaster.jobs.models.training import TrainingJob


async def list_job_advice(client: Client, job: TrainingJob, home: Home | None, code: Path | None = None) -> list[str]:
    """`home`: None for a cluster. `code`: the directory with the job's code, if it is known."""
    if job.failure is None:
        return []
    from trainmaster.api.training.failing.advice import list_advice
    from trainmaster.api.training.failing.failures import read_failure_cause

    advice = list_advice(job.failure, job.memory_limit, find_own_modules(home, job))
    error = read_failure_cause(job.failure).error
    if home is not None and "[Errno " in error and await _is_owners(client, job):
        from trainmaster.cli.launch.missing_files import suggest_volume

        advice += filter(None, (suggest_volume(error, Path.cwd(), code),))
    return advice


def find_own_modules(home: Home | None, job: TrainingJob) -> frozenset[str] | None:
    """The names of the modules in the job's code; None if the code is not in this home."""
    digest = job.annotations.get(CODE_DIGEST, "")
    if home is None or not digest:
        return None
    from trainmaster.bundles.modules import list_modules
    from trainmaster.bundles.store import BundleStore, is_digest

    return list_modules(BundleStore(home.bundles).get_place(digest) / "tree") if is_digest(digest) else None


async def _is_owners(client: Client, job: TrainingJob) -> bool:
    """Whether the owner of the installation submitted it, in a namespace without tenants: what it prints is then the
    owner's own. Others could make the owner look for files, and mount them."""
    if job.annotations.get(SUBMITTER) != OWNER:
        return False
    from trainmaster.api.tenancy import is_tenant

    return not is_tenant(await client.get(NAMESPACES, job.namespace))
