"""Composes retention on a cluster: which fields our controllers may write there, and what they have deleted.

Used by the operator, beside our controllers or upstream's (`--companion`). Upstream's CRDs drop unknown fields: TTLs of
TrainJobs then come from annotations, and `status.retention` is not written. Without `--history` there is no archive,
and nothing waits for one.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Sequence

from trainmaster.api.meta import GVR
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client
from trainmaster.client.writes import Applied, Delete, Write
from trainmaster.controllers.lifecycle import limits, retention
from trainmaster.controllers.lifecycle.contract import LifecycleContext
from trainmaster.engine.apply import Apply
from trainmaster.engine.controller import Controller
from trainmaster.history.record import CONTROL_PLANE
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.models.v1jobs import V1Job

log = logging.getLogger(__name__)

_REMEMBERED = 4096
_WHY = {
    **{controller.name: "its time after the end was over" for controller in retention.CONTROLLERS},
    limits.CONTROLLER.name: "history limit",
}


class DeletionRecorder:
    """Remembers what our own controllers deleted, and which of them. In memory only, so unknown after a crash."""

    def __init__(self, apply: Apply) -> None:
        self._apply = apply
        self._deleted: OrderedDict[str, tuple[str, str]] = OrderedDict()

    async def apply(self, writes: Sequence[Write], field_manager: str) -> Applied:
        for write in writes:
            if isinstance(write, Delete) and field_manager in _WHY:
                # Before it is sent: the deletion event may arrive before the answer.
                self._deleted[write.uid] = (CONTROL_PLANE, _WHY[field_manager])
        while len(self._deleted) > _REMEMBERED:
            self._deleted.popitem(last=False)
        return await self._apply(writes, field_manager)

    def find(self, uid: str) -> tuple[str, str] | None:
        return self._deleted.pop(uid, None)


def list_read(models: Sequence[type[TrainingJob]]) -> list[GVR]:
    """The collections that must be in the view."""
    return [source.gvr for item in _build(LifecycleContext(models=models)) for source in item.sources]


def _build(context: LifecycleContext) -> tuple[Controller, ...]:
    return (*retention.build_controllers(context), limits.build_controller(context))


def build_lifecycle(context: LifecycleContext, workers: int) -> tuple[Controller, ...]:
    """The controllers, with a number of workers that suits a remote server."""
    return tuple(dataclasses.replace(controller, workers=workers) for controller in _build(context))


async def list_unpublished(client: Client, models: Sequence[type[TrainingJob]]) -> frozenset[GVR]:
    """The kinds whose jobs do not keep `status.retention`, or whose CRD we may not read."""
    return frozenset([model.gvr for model in models if not await _has_status_field(client, model.gvr, "retention")])


async def check_v1_definitions(client: Client, models: Sequence[type[V1Job]]) -> None:
    """Raises OSError if the cluster drops the fields in which the restarts of a v1 job are counted: upstream's
    definitions do not have them."""
    missing = [model.gvr for model in models if not await _has_status_field(client, model.gvr, "restarts")]
    if missing:
        names = ", ".join(map(_get_crd_name, missing))
        words = ",".join(gvr.plural.removesuffix("s") for gvr in missing)
        raise OSError(
            f"the definitions of {names} are not ours, or cannot be read: apply the output of "
            f"`trainmaster operator --print-manifests --without-deployment --v1-jobs {words}`"
        )


async def _has_status_field(client: Client, gvr: GVR, name: str) -> bool:
    try:
        crd = await client.get(CUSTOM_RESOURCE_DEFINITIONS, _get_crd_name(gvr))
    except StatusError as error:
        if error.code not in (403, 404):
            raise
        if error.code == 403:
            log.warning("cannot see the CRD", extra={"action": "operator.schema", "error": error.message})
        return False
    for version in crd["spec"]["versions"]:
        if version["name"] == gvr.version:
            schema = read_fields(version, "schema", "openAPIV3Schema")
            return name in read_fields(schema, "properties", "status", "properties")
    return False


def _get_crd_name(gvr: GVR) -> str:
    return f"{gvr.plural}.{gvr.group}"
