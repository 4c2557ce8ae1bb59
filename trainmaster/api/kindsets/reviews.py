"""Builds review kinds, which are created to get a response and never stored."""

from __future__ import annotations

from functools import partial

from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import DefaultRole, Kind
from trainmaster.api.schemas import load


def build_review(group: str, kind: str, role: DefaultRole, *, namespaced: bool = False, has_spec: bool = True) -> Kind:
    """`role`: the default role that may create it."""
    definition = f"io.k8s.api.{group.partition('.')[0]}.v1.{kind}"
    return Kind(
        group=group,
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        singular=kind.lower(),
        namespaced=namespaced,
        definition=definition,
        load=partial(load, definition),
        verbs=("create",),
        review=True,
        generation=False,
        roles={role: {"": ("create",)}},
        fidelity={**OBJECT, **({"spec": H} if has_spec else {}), "status": H},
    )
