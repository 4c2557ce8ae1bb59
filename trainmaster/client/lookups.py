"""Single objects that a page or an answer can do without: None where they do not exist or may not be read."""

from __future__ import annotations

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import TRAINING_RUNTIMES
from trainmaster.api.status import StatusError
from trainmaster.api.training.snapshots import find_runtime_gvr
from trainmaster.client.contract import Client


async def find_readable(client: Client, gvr: GVR, name: str, namespace: str = "") -> Object | None:
    try:
        return await client.get(gvr, name, namespace)
    except StatusError as error:
        if error.code in (403, 404):
            return None
        raise


async def find_runtime(client: Client, trainjob: Object) -> Object | None:
    """The runtime that a TrainJob refers to, as it is now."""
    reference = trainjob["spec"]["runtimeRef"]
    gvr = find_runtime_gvr(reference)
    if gvr is None:
        return None
    namespace = trainjob["metadata"]["namespace"] if gvr == TRAINING_RUNTIMES else ""
    return await find_readable(client, gvr, reference["name"], namespace)
