"""Nobody grants what they do not have."""

from __future__ import annotations

import pytest

from tests.unit.auth.policies import DictPolicies, rule
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from trainmaster.api.status import NotFound, StatusError
from trainmaster.auth.contract import MASTERS
from trainmaster.auth.escalation import check_write
from trainmaster.auth.rbac import RbacAuthorizer
from trainmaster.client.contract import ActingIdentity

pytestmark = pytest.mark.unit

ANN = ActingIdentity("ann", groups=("system:authenticated",))


def world(*held: Object) -> RbacAuthorizer:
    policies = DictPolicies()
    policies.role("held", *held)
    policies.bind("held", ("User", "ann"))
    policies.role("powerful", rule(["*"], ["*"], ["*"]))
    policies.role("modest", rule(["get"], ["pods"]))
    return RbacAuthorizer(policies)


def role(*rules: Object) -> Object:
    return {"metadata": {"name": "new"}, "rules": list(rules)}


def binding(name: str) -> Object:
    return {"metadata": {"name": "new"}, "roleRef": {"kind": "ClusterRole", "name": name}, "subjects": []}


def test_a_role_with_only_held_rules_passes() -> None:
    authorizer = world(rule(["get", "list"], ["pods", "secrets"]))
    check_write(authorizer, ANN, ROLES, "a", role(rule(["get"], ["pods"])), None)


def test_a_role_with_a_rule_not_held_is_refused_with_the_missing_rule() -> None:
    authorizer = world(rule(["get"], ["pods"]))
    with pytest.raises(StatusError) as caught:
        check_write(authorizer, ANN, ROLES, "a", role(rule(["get", "delete"], ["pods"])), None)
    assert caught.value.code == 403
    assert caught.value.message == (
        'roles.rbac.authorization.k8s.io "new" is forbidden: user "ann" (groups=["system:authenticated"]) is '
        'attempting to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["pods"], '
        'Verbs:["delete"]}'
    )


def test_names_restrict_what_can_be_passed_on() -> None:
    authorizer = world(rule(["get"], ["secrets"], resourceNames=["one"]))
    check_write(authorizer, ANN, ROLES, "a", role(rule(["get"], ["secrets"], resourceNames=["one"])), None)
    with pytest.raises(StatusError):
        check_write(authorizer, ANN, ROLES, "a", role(rule(["get"], ["secrets"])), None)


def test_a_binding_to_a_role_beyond_the_writer_is_refused() -> None:
    authorizer = world(rule(["get"], ["pods"]))
    check_write(authorizer, ANN, CLUSTER_ROLE_BINDINGS, "", binding("modest"), None)
    with pytest.raises(StatusError):
        check_write(authorizer, ANN, ROLE_BINDINGS, "a", binding("powerful"), None)


def test_a_binding_to_a_role_that_does_not_exist_is_not_found() -> None:
    with pytest.raises(NotFound):
        check_write(world(), ANN, ROLE_BINDINGS, "a", binding("ghost"), None)


@pytest.mark.parametrize(
    ("verb", "resource", "gvr", "obj"),
    [
        pytest.param("escalate", "clusterroles", CLUSTER_ROLES, role(rule(["*"], ["*"], ["*"])), id="escalate"),
        pytest.param("bind", "clusterroles", CLUSTER_ROLE_BINDINGS, binding("powerful"), id="bind"),
    ],
)
def test_the_verbs_escalate_and_bind_lift_the_rule(verb: str, resource: str, gvr: GVR, obj: Object) -> None:
    authorizer = world(rule([verb], [resource], ["rbac.authorization.k8s.io"]))
    check_write(authorizer, ANN, gvr, "", obj, None)


def test_an_update_that_grants_nothing_new_passes() -> None:
    powerful = role(rule(["*"], ["*"], ["*"]))
    check_write(world(), ANN, CLUSTER_ROLES, "", {**powerful, "metadata": {"name": "new", "labels": {}}}, powerful)


def test_masters_are_not_checked() -> None:
    root = ActingIdentity("root", groups=(MASTERS,))
    check_write(world(), root, CLUSTER_ROLE_BINDINGS, "", binding("powerful"), None)
