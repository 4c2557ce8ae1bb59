"""What the operator keeps of a cluster in memory: which collections whole, which as metadata, and which part of them.

A cluster has many objects that are none of our business. Of Secrets it may not read any; of ConfigMaps and other kinds
with foreign objects it follows the metadata, and reads the content of ours by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from trainmaster.api.declaring import catalogue
from trainmaster.api.labels import JOBSET_NAME
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    CONFIG_MAPS,
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    TRAIN_JOBS,
)
from trainmaster.client.cache import WatchCache
from trainmaster.client.collection import Slim
from trainmaster.client.contract import Client
from trainmaster.client.reflector import WatchHabit
from trainmaster.controllers.lifecycle.finish import is_policy
from trainmaster.controllers.trainjob.pod_reasons import REFUSALS, keep_refusal
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import Ids

CONTENTS = (CONFIG_MAPS, ROLES, ROLE_BINDINGS, HORIZONTAL_POD_AUTOSCALERS)
"""Followed as metadata, because most of them are not ours; the content of ours is read by name."""
METADATA = (SERVICES, SERVICE_ACCOUNTS)
"""Only their metadata is ever read."""
_SHARED = 4096
OF_JOB_SETS = WatchHabit(JOBSET_NAME, gather_seconds=0.5, without_spec=True)
"""Of Jobs and Pods only members of JobSets are followed, and a cluster has many others. They explain what the JobSet
says, and a verdict waits for them for longer."""
HABITS = {JOBS: OF_JOB_SETS, PODS: OF_JOB_SETS, EVENTS: WatchHabit(fields=REFUSALS)}
ALL_PODS = {**HABITS, JOBS: WatchHabit(JOBSET_NAME, without_spec=True), PODS: WatchHabit(without_spec=True)}
"""Where controllers manage Pods themselves."""


def build_cache(
    client: Client,
    collections: Sequence[GVR],
    *,
    namespaces: Sequence[str],
    optional: Collection[GVR],
    all_pods: bool,
    clock: Clock,
    ids: Ids,
    witness: Callable[[Object], None] | None = None,
) -> WatchCache:
    """`all_pods`: also those without a JobSet. `witness` sees every TrainJob as the server sent it."""
    texts = SharedTexts()
    slim: dict[GVR, Slim] = dict.fromkeys(collections, drop_ownership)
    slim |= {JOBS: drop_spec, PODS: drop_spec, EVENTS: keep_refusal}
    slim |= {gvr: partial(drop_content_of_others, texts) for gvr in (*CONTENTS, *METADATA)}
    if witness is not None:
        slim[TRAIN_JOBS] = partial(drop_witnessed, witness)
    return WatchCache(
        client,
        collections,
        clock=clock,
        ids=ids,
        namespaces=namespaces,
        cluster_scoped=frozenset(kind.gvr for kind in catalogue.build().kinds if not kind.namespaced),
        optional=optional,
        slim=slim,
        habits=ALL_PODS if all_pods else HABITS,
        contents=dict.fromkeys(CONTENTS, is_ours) | dict.fromkeys(METADATA, is_never_read),
    )


def drop_spec(obj: Object) -> Object:
    """For Jobs and Pods: only labels, owner and status are read."""
    return {key: value for key, value in drop_ownership(obj).items() if key != "spec"}


def drop_ownership(obj: Object) -> Object:
    """managedFields are half of many objects, and no reconciler reads them."""
    meta = obj["metadata"]
    if "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}


def drop_witnessed(witness: Callable[[Object], None], obj: Object) -> Object:
    witness(obj)
    return drop_ownership(obj)


def is_ours(obj: Object) -> bool:
    """Whether an object belongs to a job, or is the policy."""
    return is_policy(obj) or any(owner.get("kind") in TRAINING_KINDS for owner in ObjectModel(obj).owners)


def is_never_read(obj: Object) -> bool:
    return False


class SharedTexts:
    """Equal texts as one object: most jobs have the snapshot of the same runtime."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def share(self, data: Object) -> Object:
        if len(self._known) >= _SHARED:
            self._known.clear()
        return {
            key: self._known.setdefault(text, text) if isinstance(text, str) else text for key, text in data.items()
        }


def drop_content_of_others(texts: SharedTexts, obj: Object) -> Object:
    """Of objects that do not belong to a job only name, labels and owner matter."""
    if is_ours(obj):
        kept = drop_ownership(obj)
        return {**kept, "data": texts.share(kept["data"])} if kept.get("data") else kept
    kept_fields = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences", "deletionTimestamp")
    meta = {key: value for key, value in obj["metadata"].items() if key in kept_fields}
    return {"apiVersion": obj.get("apiVersion", ""), "kind": obj.get("kind", ""), "metadata": meta}
