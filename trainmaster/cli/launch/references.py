"""Checks that the Secrets and claims named by a run exist, before it is submitted.

A Pod waits for missing objects, which is right for manifests. A missing name on the command line, however, is most
likely a typing error, and the job would never start.
"""

from __future__ import annotations

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import PERSISTENT_VOLUME_CLAIMS, SECRETS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.cli.launch.run_options import RunOptionError
from trainmaster.client.contract import Client
from trainmaster.jobs.compose.request import CLAIM, SECRET, JobRequest


async def check_references(client: Client, request: JobRequest, namespace: str) -> None:
    """RunOptionError that says how to create the missing object."""
    for mount in request.mounts:
        if mount.kind == CLAIM:
            await _check_claim(client, mount.source, mount.path, namespace)
    files = [mount.source for mount in request.mounts if mount.kind == SECRET]
    for name in dict.fromkeys((*request.secrets, *files)):
        await _get_secret(client, name, namespace)
    for entry in request.secret_variables:
        secret = await _get_secret(client, entry.secret, namespace, entry.key)
        keys = sorted(read_fields(secret, "data"))
        if secret is not None and entry.key not in keys:
            has = f"it has {', '.join(keys)}" if keys else "it has none"
            raise RunOptionError(f"--secret {entry.secret}/{entry.key}: the Secret has no such key; {has}")


async def _get_secret(client: Client, name: str, namespace: str, key: str = "KEY") -> Object | None:
    try:
        return await client.get(SECRETS, name, namespace)
    except NotFound:
        make = f"kubectl create secret generic {name} -n {namespace} --from-literal={key}=VALUE"
        raise RunOptionError(f"there is no Secret {name!r} in namespace {namespace}; make it with `{make}`") from None
    except StatusError as error:
        if error.code == 403:
            return None  # not every user who may use a Secret in a job may read it
        raise


async def _check_claim(client: Client, name: str, path: str, namespace: str) -> None:
    try:
        await client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace)
    except NotFound:
        raise RunOptionError(
            f"there is no claim {name!r} in namespace {namespace}; for a directory of this machine write "
            f"--volume ./{name}:{path}, and `kubectl get pvc -n {namespace}` lists claims"
        ) from None
    except StatusError as error:
        if error.code != 403:
            raise
