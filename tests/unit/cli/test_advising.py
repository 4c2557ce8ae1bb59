"""Whose jobs are told about files of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.api.labels import OWNER, SUBMITTER
from trainmaster.api.resources import NAMESPACES
from trainmaster.api.tenancy import TENANT
from trainmaster.app.home.folder import Home
from trainmaster.cli.advising import list_job_advice
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("submitter", "is_tenants", "has_home", "told"),
    [
        pytest.param(OWNER, False, True, True, id="the owner's"),
        pytest.param(OWNER, True, True, False, id="the owner's, with a tenant's runtimes"),
        pytest.param("", False, True, False, id="somebody else's"),
        pytest.param(OWNER, False, False, False, id="on a cluster"),
    ],
)
def test_only_the_owners_jobs_learn_of_files(
    tmp_path: Path, submitter: str, is_tenants: bool, has_home: bool, told: bool
) -> None:
    (tmp_path / "a.csv").write_text("1")
    message = f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/a.csv'"
    meta = {"name": "a", "namespace": "team", "annotations": {SUBMITTER: submitter}}
    job = TrainJob({"metadata": meta, "status": {"failure": {"rank": 0, "exitCode": 1, "message": message}}})

    async def main() -> list[str]:
        async with running_cluster() as cluster:
            labels = {TENANT: "team"} if is_tenants else {}
            await cluster.client.create(NAMESPACES, {"metadata": {"name": "team", "labels": labels}})
            return await list_job_advice(cluster.client, job, Home(tmp_path / "home") if has_home else None)

    assert any(f"`--volume {tmp_path}:ro`" in text for text in run_virtual(main())) is told
