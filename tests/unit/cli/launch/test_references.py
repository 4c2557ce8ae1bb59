"""Secrets and claims that a run names and nobody has made are told before anything is submitted."""

from __future__ import annotations

import pytest

from trainmaster.api.resources import SECRETS
from trainmaster.api.status import NotFound
from trainmaster.cli.launch.references import check_references
from trainmaster.cli.launch.run_options import RunOptionError
from trainmaster.cli.launch.submission import explain_refusal
from trainmaster.client.contract import Client
from trainmaster.jobs.compose.request import JobRequest, RequestedMount, SecretVariable
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def check(asked: JobRequest) -> None:
    async def work() -> None:
        async with running_cluster() as cluster:
            client: Client = cluster.client
            secret = {"metadata": {"name": "keys"}, "data": {"token": "eA=="}}
            await client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", **secret}, "default")
            await check_references(client, asked, "default")

    run_virtual(work())


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        (
            JobRequest("j", secrets=("nope",)),
            "`kubectl create secret generic nope -n default --from-literal=KEY=VALUE`",
        ),
        (
            JobRequest("j", mounts=(RequestedMount("secret", "nope", "/s"),)),
            "there is no Secret 'nope' in namespace default",
        ),
        (JobRequest("j", secret_variables=(SecretVariable("keys", "tok", "T"),)), "no such key; it has token"),
        (JobRequest("j", mounts=(RequestedMount("claim", "data", "/data"),)), "write --volume ./data:/data"),
    ],
    ids=["variables", "files", "a key", "a claim"],
)
def test_what_is_missing_is_told_with_how_to_make_it(asked: JobRequest, want: str) -> None:
    with pytest.raises(RunOptionError) as told:
        check(asked)
    assert want in str(told.value)


def test_what_exists_is_not_talked_about() -> None:
    check(
        JobRequest(
            "j",
            secrets=("keys",),
            mounts=(RequestedMount("host", "/tmp", "/x"), RequestedMount("secret", "keys", "/s")),
        )
    )


def test_a_namespace_that_does_not_exist_is_told_with_how_to_make_it() -> None:
    error = NotFound(404, "NotFound", 'namespaces "team" not found')
    assert "`kubectl create namespace team` makes it" in explain_refusal(error, "j")
