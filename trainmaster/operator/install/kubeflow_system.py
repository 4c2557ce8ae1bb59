"""What is in the namespace `kubeflow-system`: the installation's retention policy, and what the Kubeflow SDK reads."""

from __future__ import annotations

from trainmaster.api.lifecycle import policy
from trainmaster.app.public_info import build_public_info, build_public_role, build_public_role_binding
from trainmaster.operator.install.contradictions import POLICY
from trainmaster.operator.install.parts import KEEP, describe_config_map, describe_head
from trainmaster.operator.rights import COMPANION
from trainmaster.operator.templating.nodes import All, Document, Either, Given, IsNew, Not, Text, Value, When

_PUBLIC = All(Value("kubeflowSystem.publicConfigMap"), Not(COMPANION))
_NUMBERS = ("ttlSecondsAfterFinished", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")


def describe_kubeflow_namespace() -> Document:
    head = describe_head(policy.NAMESPACE, "", KEEP)
    wanted = All(Value("kubeflowSystem.createNamespace"), Either(_PUBLIC, POLICY))
    # A Namespace that somebody else created does not become part of a release.
    condition = All(wanted, IsNew("v1", "Namespace", policy.NAMESPACE))
    return Document("kubeflow-system", When(condition, {"apiVersion": "v1", "kind": "Namespace", "metadata": head}))


def describe_kubeflow_system() -> list[Document]:
    retention = Value("jobRetentionPolicy")
    data = {
        "jobRetentionPolicy": When(retention, retention),
        "ttlEnforced": When(Value("ttlEnforced"), "true"),
        **{key: When(Given(key), Text(Value(key))) for key in _NUMBERS},
    }
    public = (build_public_info(), build_public_role(), build_public_role_binding())
    return [
        *(Document("public-information", When(_PUBLIC, one)) for one in public),
        Document("policy", When(POLICY, describe_config_map(policy.NAME, data, policy.NAMESPACE))),
    ]
