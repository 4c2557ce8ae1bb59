"""All served kinds in one place.

Adding a kind is one module under `kindsets/` and one line here. The order of groups is the order in which discovery
lists them. Building the catalogue reads no schema data: trees are built when a kind is first used.
"""

from __future__ import annotations

from functools import cache

from trainmaster.api.declaring.kinds import Catalogue
from trainmaster.api.kindsets import (
    apiextensions_v1,
    apps_v1,
    authentication_v1,
    authorization_v1,
    batch_v1,
    coordination_v1,
    core_v1,
    events_v1,
    jobset_v1alpha2,
    kubeflow_v1,
    metrics_v1beta1,
    rbac_v1,
    scheduling_v1,
    storage_v1,
    trainer_v1alpha1,
)


@cache
def build() -> Catalogue:
    return Catalogue(
        (
            *core_v1.KINDS,
            *events_v1.KINDS,
            *authentication_v1.KINDS,
            *authorization_v1.KINDS,
            *apps_v1.KINDS,
            *batch_v1.KINDS,
            *rbac_v1.KINDS,
            *apiextensions_v1.KINDS,
            *scheduling_v1.KINDS,
            *storage_v1.KINDS,
            *coordination_v1.KINDS,
            *jobset_v1alpha2.KINDS,
            *trainer_v1alpha1.KINDS,
            *kubeflow_v1.KINDS,
            *metrics_v1beta1.KINDS,
        )
    )
