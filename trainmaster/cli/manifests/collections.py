"""Maps a manifest's apiVersion and kind to its collection. Used by `submit`.

The kinds that jobs consist of are known here; others are looked up with the server's discovery.
"""

from __future__ import annotations

import json

from trainmaster.api import resources
from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.manifests.ordering import Manifest
from trainmaster.client.contract import Client
from trainmaster.client.http import HttpClient
from trainmaster.jobs.kinds import TRAINING_KINDS

_NAMESPACED = {
    **{kind: model.gvr for kind, model in TRAINING_KINDS.items()},
    "TrainingRuntime": resources.TRAINING_RUNTIMES,
    "JobSet": resources.JOB_SETS,
    "Job": resources.JOBS,
    "Pod": resources.PODS,
    "Service": resources.SERVICES,
    "ServiceAccount": resources.SERVICE_ACCOUNTS,
    "ConfigMap": resources.CONFIG_MAPS,
    "Secret": resources.SECRETS,
    "PersistentVolumeClaim": resources.PERSISTENT_VOLUME_CLAIMS,
}
_CLUSTER_WIDE = {
    "ClusterTrainingRuntime": resources.CLUSTER_TRAINING_RUNTIMES,
    "Namespace": resources.NAMESPACES,
    "PersistentVolume": resources.PERSISTENT_VOLUMES,
}


async def get_resource(client: Client, document: Manifest) -> tuple[GVR, bool]:
    """(collection, whether it is namespaced); Failure if the server does not serve the kind."""
    version, kind = document.obj["apiVersion"], document.obj["kind"]
    for table, namespaced in ((_NAMESPACED, True), (_CLUSTER_WIDE, False)):
        gvr = table.get(kind)
        if gvr is not None and gvr.api_version == version:
            return gvr, namespaced
    group, _, short = version.rpartition("/")
    if isinstance(client, HttpClient):
        for entry in await _discover(client, group, short):
            if entry.get("kind") == kind and "/" not in entry.get("name", ""):
                return GVR(group, short, entry["name"]), bool(entry.get("namespaced"))
    text = f"{document.place}: this server has no {kind} of {version}"
    raise exits.Failure(f"{text}; `kubectl api-resources` lists what it has")


async def _discover(client: HttpClient, group: str, version: str) -> list[Object]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        answer = json.loads((await client.request("GET", path)).body)
    except StatusError as error:
        if error.code == 404:
            return []
        raise
    entries = answer.get("resources")
    return entries if isinstance(entries, list) else []
