"""Namespace: the life cycle of everything in it ends with it."""

from __future__ import annotations

from functools import partial

from trainmaster.api import cells
from trainmaster.api.kinds import ALL_VERBS, Column, Kind
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load

NAME_LABEL = "kubernetes.io/metadata.name"
FINALIZER = "kubernetes"


def default(namespace: Object) -> None:
    """The label by which selectors can name a namespace is always there and always right."""
    name = namespace["metadata"].get("name")
    if name:
        namespace["metadata"]["labels"] = dict(namespace["metadata"].get("labels") or {}) | {NAME_LABEL: name}


def prepare(namespace: Object) -> None:
    namespace["spec"] = {"finalizers": [FINALIZER]}
    namespace["status"] = {"phase": "Active"}
    default(namespace)


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
)
