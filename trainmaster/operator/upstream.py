"""Checks before the operator runs kinds of `kubeflow.org/v1`: who else runs them, and if there is a gang scheduler.

Two controllers for the same jobs would undo each other's work, so a kind that training-operator runs is refused at the
start. A webhook of training-operator for a kind that it does not run any more refuses every job of that kind.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import list_items, read_fields, read_labels, read_text
from trainmaster.api.resources import DEPLOYMENTS, VALIDATING_WEBHOOK_CONFIGURATIONS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.v1jobs.frameworks import GROUP
from trainmaster.client.contract import Client, ListOptions
from trainmaster.controllers.v1jobs.contract import V1Cluster
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.v1jobs import MODELS, V1Job
from trainmaster.operator.rights import TRAINING_OPERATOR_HOOKS

log = logging.getLogger(__name__)

_IMAGE = "training-operator"
_LABEL = ("control-plane", "kubeflow-training-operator")
_WEBHOOKS = ".training-operator.kubeflow.org"
_NAMESPACE_VARIABLE = "KUBEFLOW_NAMESPACE"
_REVIEWS = GVR("authorization.k8s.io", "v1", "subjectaccessreviews")
_SCHEMES = frozenset(model.framework.singular for model in MODELS)


@dataclass(frozen=True, slots=True)
class TrainingOperator:
    """A Deployment that runs training-operator."""

    namespace: str
    name: str
    schemes: frozenset[str]
    """The kinds that it runs: pytorchjob."""
    watched: str
    """The only namespace that it works in; "" is all."""
    account: str
    """Its service account."""

    def shares(self, namespaces: Sequence[str]) -> bool:
        """Whether an operator that works in these namespaces (() is all) would meet its jobs."""
        return not namespaces or not self.watched or self.watched in namespaces


def find_training_operator(deployment: Fields) -> TrainingOperator | None:
    one = ObjectModel(deployment)
    template = read_fields(one.spec, "template")
    containers = list_items(template, "spec", "containers")
    chosen = [container for container in containers if _read_program(container) == _IMAGE]
    key, value = _LABEL
    if not chosen and read_labels(template).get(key) == value:
        chosen = list(containers[:1])
    if not chosen or one.spec.get("replicas") == 0:
        return None
    arguments = [*list_items(chosen[0], "command"), *list_items(chosen[0], "args")]
    schemes = frozenset(text.lower() for text in _read_flags(arguments, "enable-scheme")) & _SCHEMES
    watched = [*_list_variables(chosen[0]), *_read_flags(arguments, "namespace")]
    account = read_text(template, "spec", "serviceAccountName") or "default"
    return TrainingOperator(one.namespace, one.name, schemes or _SCHEMES, watched[-1] if watched else "", account)


def _read_program(container: Fields) -> str:
    """The last part of the image's name: training-operator."""
    image = read_text(container, "image").partition("@")[0]
    return image.rpartition("/")[2].partition(":")[0]


def _list_variables(container: Fields) -> Iterator[str]:
    for variable in list_items(container, "env"):
        if variable.get("name") == _NAMESPACE_VARIABLE and variable.get("value"):
            yield variable["value"]


def _read_flags(arguments: Sequence[str], name: str) -> Iterator[str]:
    """The values of a flag as Go's flag package reads it: `-name=value`, `--name value`."""
    rest = iter(arguments)
    for argument in rest:
        key, equals, value = argument.partition("=")
        if key in (f"-{name}", f"--{name}"):
            yield value if equals else next(rest, "")


async def check_no_other_owner(client: Client, models: Sequence[type[V1Job]], namespaces: Sequence[str]) -> None:
    """Raises OSError with what to do if training-operator runs one of the kinds, or its webhook refuses them."""
    if not models:
        return
    if namespaces:
        # An operator that is limited to namespaces may look only there.
        text = "looking for training-operator only in the namespaces of this operator"
        log.info(text, extra={"action": "operator.owners", "namespaces": ",".join(namespaces)})
    found = [
        find_training_operator(item)
        for namespace in namespaces or ("",)
        for item in await _list_all(client, DEPLOYMENTS, namespace)
    ]
    operators = [one for one in found if one is not None and await _may_run_jobs(client, one)]
    for operator in operators:
        shared = [model for model in models if model.framework.singular in operator.schemes]
        if shared and operator.shares(namespaces):
            raise OSError(_explain_owner(operator, shared))
    served = frozenset[str]().union(*(operator.schemes for operator in operators))
    unserved = [model for model in models if model.framework.singular not in served]
    names = list(_list_webhooks(await _read_webhooks(client), unserved))
    if names:
        raise OSError(_explain_webhooks(TRAINING_OPERATOR_HOOKS, names))


async def _read_webhooks(client: Client) -> Object:
    """Those of training-operator; empty if there are none, or if we may not look."""
    try:
        return await client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, TRAINING_OPERATOR_HOOKS)
    except StatusError as error:
        if error.code == 403:
            _log_unseen(error)
        elif error.code != 404:
            raise
        return {}


def _log_unseen(error: StatusError) -> None:
    text = "cannot see whether training-operator runs the same kinds"
    log.warning(text, extra={"action": "operator.owners", "error": error.message})


async def _list_all(client: Client, gvr: GVR, namespace: str = "") -> Sequence[Object]:
    try:
        return (await client.list(gvr, namespace)).items
    except StatusError as error:
        if error.code != 403:
            raise
        _log_unseen(error)
        return ()


async def _may_run_jobs(client: Client, operator: TrainingOperator) -> bool:
    """Whether its service account may write what it does to jobs. Otherwise any user who may create a Deployment could
    prevent this operator from starting. True if we may not ask."""
    kind = next(model for model in MODELS if model.framework.singular in operator.schemes)
    attributes = {"group": GROUP, "resource": kind.gvr.plural, "subresource": "status", "verb": "update"}
    if operator.watched:
        attributes["namespace"] = operator.watched
    accounts = ("system:serviceaccounts", f"system:serviceaccounts:{operator.namespace}", "system:authenticated")
    user = f"system:serviceaccount:{operator.namespace}:{operator.account}"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": list(accounts), "resourceAttributes": attributes},
    }
    try:
        answer = await client.create(_REVIEWS, review)
    except StatusError as error:
        if error.code != 403:
            raise
        return True
    return bool(answer["status"].get("allowed"))


def _list_webhooks(configuration: Fields, models: Sequence[type[V1Job]]) -> Iterator[str]:
    """Of training-operator, for these kinds."""
    plurals = {model.gvr.plural for model in models}
    for webhook in list_items(configuration, "webhooks"):
        rules = list_items(webhook, "rules")
        asked = {name for rule in rules if GROUP in list_items(rule, "apiGroups") for name in rule["resources"]}
        if read_text(webhook, "name").endswith(_WEBHOOKS) and asked & plurals:
            yield webhook["name"]


def _explain_owner(operator: TrainingOperator, models: Sequence[type[V1Job]]) -> str:
    kinds = ", ".join(f"{model.framework.kind}s" for model in models)
    words = ",".join(model.framework.singular for model in models)
    return (
        f"training-operator (Deployment {operator.name} in the namespace {operator.namespace}) runs {kinds}, and two "
        f"controllers for the same jobs would undo each other's work: leave {words} out of --v1-jobs, or start "
        "training-operator with --enable-scheme=KIND for each kind that it should keep, or remove it"
    )


def _explain_webhooks(configuration: str, names: Sequence[str]) -> str:
    return (
        f"the ValidatingWebhookConfiguration {configuration} sends jobs to training-operator, which does not run them, "
        f"so that every new one would be refused: remove {', '.join(names)} with "
        f"`kubectl edit validatingwebhookconfiguration {configuration}`"
    )


async def check_pod_groups(client: Client, cluster: V1Cluster, namespaces: Sequence[str] = ()) -> None:
    """Raises OSError if the PodGroups of the gang scheduler are not served, as upstream."""
    if cluster.pod_groups is None:
        return
    try:
        await client.list(cluster.pod_groups, next(iter(namespaces), ""), ListOptions(limit=1))
    except NotFound:
        group = cluster.pod_groups.group
        raise OSError(
            f"--gang-scheduler-name {cluster.gang_scheduler}: the cluster has no PodGroups of {group}; install "
            f"{'Volcano' if cluster.is_volcano else 'the coscheduling plugin (scheduler-plugins)'} first"
        ) from None
    except StatusError as error:
        if error.code != 403:
            raise
