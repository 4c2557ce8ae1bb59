"""Namespace: its objects are deleted with it."""

from __future__ import annotations

from functools import partial

from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import ALL_VERBS, READ, Column, DeletionRules, Kind, UpdateRules
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_status
from trainmaster.api.schemas import load

NAME_LABEL = "kubernetes.io/metadata.name"
FINALIZER = "kubernetes"


def default(namespace: Object) -> None:
    """Sets the label with the namespace's name, for selectors."""
    name = namespace["metadata"].get("name")
    if name:
        namespace["metadata"]["labels"] = dict(namespace["metadata"].get("labels") or {}) | {NAME_LABEL: name}


def prepare(namespace: Object) -> None:
    namespace["spec"] = {"finalizers": [FINALIZER]}
    namespace["status"] = {"phase": "Active"}
    default(namespace)


def begin_deletion(namespace: Object) -> None:
    """Sets the phase Terminating; the namespace stays until it is empty."""
    namespace["metadata"].pop("deletionGracePeriodSeconds")
    namespace["status"] = {**read_status(namespace), "phase": "Terminating"}


def _is_held(namespace: Object) -> bool:
    return bool(namespace.get("spec", {}).get("finalizers"))


def _get_phase(namespace: Object) -> str:
    return str((namespace.get("status") or {}).get("phase", ""))


NAMESPACE = Kind(
    group="",
    version="v1",
    kind="Namespace",
    plural="namespaces",
    singular="namespace",
    namespaced=False,
    definition="io.k8s.api.core.v1.Namespace",
    load=partial(load, "io.k8s.api.core.v1.Namespace"),
    name_form="label",
    short_names=("ns",),
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    status=True,
    columns=(
        cells.NAME,
        Column("Status", lambda namespace, now: _get_phase(namespace), description="Active or Terminating."),
        cells.AGE,
    ),
    default=default,
    prepare=prepare,
    selectable={"status.phase": _get_phase, "name": lambda namespace: str(namespace["metadata"].get("name", ""))},
    generation=False,
    # Its finalizers belong to the namespace controller.
    updates=UpdateRules(keeps_spec=True),
    deletions=DeletionRules(begin=begin_deletion, is_held=_is_held),
    roles={"view": {"": READ, "status": READ}},
    fidelity={**OBJECT, "spec": H, "status": H},
)
