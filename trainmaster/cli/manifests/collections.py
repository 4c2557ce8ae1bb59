"""Maps a manifest's apiVersion and kind to its collection. Used by `submit`.

The kinds that jobs consist of are known here; others are looked up with the server's discovery.
"""

from __future__ import annotations

import json

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.client.contract import Client
from trainmaster.client.http import HttpClient
from trainmaster.jobs.submission.ordering import Manifest
from trainmaster.jobs.submission.sending import find_collection


async def get_resource(client: Client, document: Manifest) -> tuple[GVR, bool]:
    """(collection, whether it is namespaced); Failure if the server does not serve the kind."""
    version, kind = document.obj["apiVersion"], document.obj["kind"]
    known = find_collection(version, kind)
    if known is not None:
        return known
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
