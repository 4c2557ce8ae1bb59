"""What several parts of an installation use: labels, images, names, the security of Pods."""

from __future__ import annotations

import dataclasses

from trainmaster.api.meta import Object
from trainmaster.operator.install.values import PART_OF, VERSION_LABEL
from trainmaster.operator.templating.nodes import (
    Document,
    Fallback,
    ForEach,
    MergedWith,
    NamedPart,
    ReleaseNamespace,
    ReleaseVersion,
    Text,
    Tree,
    Value,
    When,
)

HERE = ReleaseNamespace()
COMMON_LABELS = Value("commonLabels")
LABELS = NamedPart(
    "trainmaster.labels", MergedWith({PART_OF: "trainmaster", VERSION_LABEL: ReleaseVersion()}, (COMMON_LABELS,))
)
"""Of every object."""
KEEP = {"helm.sh/resource-policy": "keep"}
"""Annotation: the object stays when the chart is uninstalled."""
IMAGE = NamedPart(
    "trainmaster.image",
    Text(
        When(Value("image.registry"), Text(Value("image.registry"), "/"), ""),
        Value("image.repository"),
        ":",
        Fallback(Value("image.tag"), ReleaseVersion()),
    ),
)
POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def describe_head(name: Tree, namespace: Tree = HERE, annotations: Tree = None) -> Object:
    """Metadata. An empty namespace is none."""
    meta: Object = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {**meta, "annotations": annotations} if annotations else meta


def describe_config_map(name: str, data: Tree, namespace: Tree = HERE) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": describe_head(name, namespace), "data": data}


def describe_pod(account: str, container: Object, volumes: list[Tree]) -> Object:
    """The spec of a Pod of ours, which fits into a namespace with the level `restricted`."""
    return {
        "serviceAccountName": account,
        # The variables that Kubernetes sets for Services could look like settings.
        "enableServiceLinks": False,
        "imagePullSecrets": When(Value("image.pullSecrets"), Value("image.pullSecrets")),
        "priorityClassName": When(Value("priorityClassName"), Value("priorityClassName")),
        "securityContext": POD_SECURITY,
        "containers": [
            {
                **container,
                "image": IMAGE,
                "imagePullPolicy": Value("image.pullPolicy"),
                "securityContext": CONTAINER_SECURITY,
            }
        ],
        "volumes": volumes,
    }


def label(document: Document) -> Document:
    return dataclasses.replace(document, body=_label(document.body))


def _label(tree: Tree) -> Tree:
    """Adds our labels to the objects in a description."""
    if isinstance(tree, When):
        return dataclasses.replace(tree, then=_label(tree.then), otherwise=_label(tree.otherwise))
    if isinstance(tree, ForEach):
        return dataclasses.replace(tree, body=_label(tree.body))
    if isinstance(tree, list):
        return [_label(one) for one in tree]
    if not isinstance(tree, dict):
        return tree
    meta = tree["metadata"]
    return {**tree, "metadata": {**meta, "labels": meta.get("labels", LABELS)}}
