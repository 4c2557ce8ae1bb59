"""CustomResourceDefinition: readable only; its objects describe our custom kinds (`api.declaring.crd`)."""

from __future__ import annotations

from functools import partial

from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import READ, Kind, UpdateRules
from trainmaster.api.schemas import load

CUSTOM_RESOURCE_DEFINITION = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    singular="customresourcedefinition",
    namespaced=False,
    definition="io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    load=partial(load, "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"),
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    verbs=READ,
    read_only="the kinds are built in, `kubectl api-resources` lists them",
    columns=(cells.NAME, cells.CREATED),
    updates=UpdateRules(needs_version=True),
    fidelity={
        **OBJECT,
        "spec": (H, "readable; the custom kinds are built in"),
        "status": H,
    },
)

KINDS = (CUSTOM_RESOURCE_DEFINITION,)
