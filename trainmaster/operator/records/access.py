"""What the sender of a request may read: the records of those jobs that they may read themselves.

API servers ask their own authorizer first whether somebody may use `jobrecords` at all, which the role that comes with
the APIService allows everybody who is authenticated. What decides is asked here: `get` or `list` of the kind of the
recorded jobs in their namespace, and for logs also `get pods/log` there, as while the Pods existed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from trainmaster.api import status
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PODS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import ActingIdentity, Client
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.operator.monitoring.access_reviews import is_allowed

_AT_ONCE = 16
TRAIN_JOB = "TrainJob"


class RecordAccess:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def choose_kinds(self, caller: ActingIdentity, namespace: str, kinds: Iterable[str]) -> tuple[str, ...]:
        """Those of which the caller may list jobs there; "" is all namespaces. StatusError 403 if there are none."""
        asked = sorted({TRAIN_JOB, *kinds} & TRAINING_KINDS.keys())
        found = [kind for kind in asked if await self._may(caller, "list", TRAINING_KINDS[kind].gvr, namespace)]
        if not found:
            raise _refuse(caller, "list", TRAIN_JOBS, namespace)
        return tuple(found)

    async def check_get(self, caller: ActingIdentity, kind: str, namespace: str, name: str) -> None:
        gvr = TRAINING_KINDS[kind].gvr
        if not await self._may(caller, "get", gvr, namespace, name):
            raise _refuse(caller, "get", gvr, namespace, name)

    async def check_log(self, caller: ActingIdentity, namespace: str) -> None:
        if not await self._may(caller, "get", PODS, namespace, subresource="log"):
            raise _refuse(caller, "get", PODS, namespace, subresource="log")

    async def _may(
        self, caller: ActingIdentity, verb: str, gvr: GVR, namespace: str, name: str = "", *, subresource: str = ""
    ) -> bool:
        asked: Object = {"verb": verb, "group": gvr.group, "version": gvr.version, "resource": gvr.plural}
        asked |= {"namespace": namespace, "name": name, "subresource": subresource}
        who: Object = {"user": caller.user, "groups": list(caller.groups)}
        who |= {"uid": caller.uid} if caller.uid else {}
        who |= {"extra": {key: list(values) for key, values in caller.extra.items()}} if caller.extra else {}
        what = {"resourceAttributes": {key: value for key, value in asked.items() if value}}
        try:
            async with self._slots:
                return await is_allowed(self._client, who, what)
        except (StatusError, OSError) as error:
            text = f"the API server cannot be asked what you may read: {error}"
            raise StatusError(503, "ServiceUnavailable", text) from error


def _refuse(
    caller: ActingIdentity, verb: str, gvr: GVR, namespace: str, name: str = "", *, subresource: str = ""
) -> StatusError:
    resource = f"{gvr.plural}/{subresource}" if subresource else gvr.plural
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    text = f'User "{caller.user}" cannot {verb} resource "{resource}" in API group "{gvr.group}" {where}'
    what = (
        "logs are for those who may read logs of Pods" if subresource else "records are for those who may read the jobs"
    )
    return status.forbidden(gvr, name, f"{text}: {what}")
