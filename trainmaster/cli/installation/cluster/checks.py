"""What speaks against an installation, found before anything is changed."""

from __future__ import annotations

import json

from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS
from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.installation.cluster.objects import ObjectReference, find_other_owner
from trainmaster.cli.installation.cluster.writes import (
    CREATED,
    ApplyOptions,
    Live,
    ObjectChange,
    apply_object,
    explain_refusal,
    is_early,
)
from trainmaster.client.contract import Client
from trainmaster.client.http import HttpClient
from trainmaster.operator.install import Values
from trainmaster.operator.monitoring.doctor import explain_trainers, is_served, list_trainers
from trainmaster.operator.monitoring.troubles import explain_missing


async def check_server(client: Client) -> None:
    """Failure if it is a control plane of ours, which has these controllers already."""
    if isinstance(client, HttpClient):
        version = json.loads((await client.request("GET", "/version")).body).get("gitVersion", "")
        if "-trainmaster." in version:
            text = "is a server of `trainmaster up`, which runs jobs without an operator"
            raise exits.Failure(f"{client.server} {text}: name a cluster with --kubeconfig or --context")


async def find_obstacle(client: Client, values: Values) -> str:
    """Why the operator would not become ready, or do harm; "" if nothing is known."""
    if values.companion:
        return ""
    if not await is_served(client, JOB_SETS):
        return next(iter(explain_missing([JOB_SETS]))).text
    trainers = await list_trainers(client)
    return ": ".join(explain_trainers(trainers)) if trainers else ""


def check_owners(live: Live, namespace: str) -> None:
    """Failure if something belongs to Helm, or to an installation in another namespace."""
    for reference, found in live.items():
        problem = find_other_owner(found, reference, namespace)
        if problem:
            raise exits.Failure(problem)


async def rehearse(
    client: Client, objects: dict[ObjectReference, Object], live: Live, *, force: bool
) -> list[ObjectChange]:
    """What would be changed. Failure with everything that the server would refuse."""
    changes, problems, options = [], [], ApplyOptions(dry_run=True, force=force)
    created = [one for one in objects if one not in live]
    for reference, obj in objects.items():
        try:
            changes.append(await apply_object(client, reference, obj, live, options))
        except StatusError as error:
            if error.code in (401, 429) or error.code >= 500:
                raise
            if is_early(error, reference, created):
                changes.append(ObjectChange(reference, CREATED))
            else:
                problems.append(explain_refusal(reference, error))
    if problems:
        raise exits.Failure("\n".join([*dict.fromkeys(problems), "nothing was changed"]))
    return changes
