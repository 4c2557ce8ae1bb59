"""All objects of an installation, in an order in which they can be applied: what others need comes first, and webhooks
last, because no jobs can be created between them and an operator that answers.

`list_documents` is the description. `build_objects` makes objects of it; `tools/install_files.py` makes the chart and
the files for kustomize.
"""

from __future__ import annotations

from trainmaster.api.declaring import catalogue, crd
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.tenancy import POD_SECURITY as POD_SECURITY_LEVEL
from trainmaster.api.v1jobs.frameworks import GROUP
from trainmaster.operator.install.admission import describe_certificate, describe_webhooks
from trainmaster.operator.install.kubeflow_system import describe_kubeflow_namespace, describe_kubeflow_system
from trainmaster.operator.install.monitoring import describe_monitoring
from trainmaster.operator.install.parts import HERE, KEEP, LABELS, describe_head, label
from trainmaster.operator.install.reading import to_mapping
from trainmaster.operator.install.rest import describe_rest, describe_rest_access
from trainmaster.operator.install.values import Values
from trainmaster.operator.install.workload import (
    describe_network_policy,
    describe_service,
    describe_settings,
    describe_workload,
)
from trainmaster.operator.names import NAME, NAMESPACE
from trainmaster.operator.records.installation import RecordsPlan, build_records_api
from trainmaster.operator.rights import COMPANION, RECORDS, V1_JOBS, describe_access
from trainmaster.operator.templating.evaluating import ValueScope, evaluate_all
from trainmaster.operator.templating.nodes import ALL_OF, All, Document, Has, Not, Value, When


def build_objects(values: Values, namespace: str = NAMESPACE) -> list[Object]:
    """Everything."""
    return _build(list_all_documents(), values, namespace)


def build_foreground_objects(
    values: Values, namespace: str = NAMESPACE, *, webhooks: bool = False, url: str = "", records: bool = False
) -> list[Object]:
    """What an operator needs that does not run in a Pod: kinds, rights, and webhooks and records, if API servers reach
    it."""
    documents = [
        Document("namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": describe_head(HERE, "")}),
        *_describe_definitions(),
        *map(label, describe_access()),
        label(Document("service", describe_service() if records else When(Not(COMPANION), describe_service()))),
        *(map(label, describe_records()) if records else ()),
        *(map(label, describe_webhooks(url)) if webhooks else ()),
    ]
    return _build(documents, values, namespace)


def _build(documents: list[Document], values: Values, namespace: str) -> list[Object]:
    return evaluate_all(documents, ValueScope(to_mapping(values), namespace))


def list_all_documents() -> list[Document]:
    """With the namespace itself, which Helm creates (`--create-namespace`)."""
    return [_describe_namespace(), *list_documents()]


def list_documents() -> list[Document]:
    """What the chart has."""
    documents = [
        describe_kubeflow_namespace(),
        *_describe_definitions(),
        *describe_access(),
        *describe_rest_access(),
        *describe_kubeflow_system(),
        *describe_settings(),
        *describe_workload(),
        *describe_rest(),
        describe_network_policy(),
        *describe_monitoring(),
        *describe_certificate(),
        *describe_records(),
        *describe_webhooks(),
    ]
    return [label(document) for document in documents]


def describe_records() -> list[Document]:
    """The API through which the cluster serves records."""
    return [Document("records", When(RECORDS, one)) for one in build_records_api(RecordsPlan(HERE, NAME))]


def _describe_namespace() -> Document:
    """Our Pods need nothing that this level forbids."""
    level = {POD_SECURITY_LEVEL: "restricted"}
    head = {**describe_head(HERE, ""), "labels": level}
    return Document("namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": head})


def _describe_definitions() -> list[Document]:
    kinds = [kind for kind in catalogue.build().kinds if kind.group in (TRAIN_JOBS.group, GROUP)]
    found = {kind.gvr.qualified: kind for kind in kinds}
    definitions = crd.build_all(kinds)
    return [_describe_definition(found[one["metadata"]["name"]], one) for one in definitions]


def _describe_definition(kind: Kind, definition: Object) -> Document:
    """They stay when the chart is uninstalled. A companion leaves upstream's alone."""
    wanted = Has(V1_JOBS.path, ALL_OF, kind.singular) if kind.group == GROUP else Not(COMPANION)
    head = {**definition["metadata"], "annotations": KEEP, "labels": LABELS}
    condition = All(Value("crds.enabled"), wanted)
    return Document(f"crds/{kind.plural}", When(condition, {**definition, "metadata": head}))
