"""ServiceAccount: an identity for programs."""

from __future__ import annotations

from functools import partial

from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import NO_IMAGE, OBJECT, H, N
from trainmaster.api.declaring.kinds import READ, WRITE, DeletionRules, Kind, Subresource
from trainmaster.api.schemas import load

SERVICE_ACCOUNT = Kind(
    group="",
    version="v1",
    kind="ServiceAccount",
    plural="serviceaccounts",
    singular="serviceaccount",
    namespaced=True,
    definition="io.k8s.api.core.v1.ServiceAccount",
    load=partial(load, "io.k8s.api.core.v1.ServiceAccount"),
    short_names=("sa",),
    subresources=(Subresource("token", ("create",), "authentication.k8s.io", "v1", "TokenRequest"),),
    columns=(cells.NAME, cells.AGE),
    generation=False,
    deletions=DeletionRules(answers_with_object=True),
    # Tenants cannot create tokens, because these would survive `tenant rotate`.
    roles={"view": {"": READ}, "edit": {"": (*WRITE, "impersonate"), "token": ("create",)}, "tenant": {"": READ}},
    fidelity={
        **OBJECT,
        "automountServiceAccountToken": H,
        "imagePullSecrets": (N, NO_IMAGE),
        "secrets": N,
    },
)
