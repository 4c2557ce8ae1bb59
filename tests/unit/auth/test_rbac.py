"""Who may do what: rules, bindings, aggregation, and that no decision outlives its policies."""

from __future__ import annotations

import pytest

from tests.unit.auth.policies import DictPolicies, rule
from trainmaster.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS
from trainmaster.auth import roles
from trainmaster.auth.contract import MASTERS
from trainmaster.auth.rbac import RbacAuthorizer
from trainmaster.client.contract import ActingIdentity

pytestmark = pytest.mark.unit

BOB = ActingIdentity("bob", groups=("dev",))


def make() -> tuple[DictPolicies, RbacAuthorizer]:
    policies = DictPolicies()
    return policies, RbacAuthorizer(policies)


def test_without_a_binding_everything_is_denied() -> None:
    policies, authorizer = make()
    policies.role("reader", rule(["get"], ["pods"]))
    assert not authorizer.allows(BOB, "get", "", "pods", "default")


def test_masters_may_do_everything_without_any_policy() -> None:
    _, authorizer = make()
    root = ActingIdentity("root", groups=(MASTERS,))
    assert authorizer.allows(root, "delete", "x", "y/z", "n", "m") and authorizer.allows_path(root, "get", "/metrics")


def test_a_cluster_binding_grants_in_every_namespace_and_at_cluster_scope() -> None:
    policies, authorizer = make()
    policies.role("reader", rule(["get"], ["pods"]))
    policies.bind("reader", ("User", "bob"))
    assert authorizer.allows(BOB, "get", "", "pods", "a")
    assert authorizer.allows(BOB, "get", "", "pods", "")
    assert not authorizer.allows(BOB, "list", "", "pods", "a")


def test_a_role_binding_grants_in_its_namespace_only() -> None:
    policies, authorizer = make()
    policies.role("reader", rule(["get"], ["pods"]))
    policies.bind("reader", ("Group", "dev"), namespace="a")
    assert authorizer.allows(BOB, "get", "", "pods", "a")
    assert not authorizer.allows(BOB, "get", "", "pods", "b")
    assert not authorizer.allows(BOB, "get", "", "pods", "")


@pytest.mark.parametrize(
    ("granted", "asked", "want_allowed"),
    [
        pytest.param("pods", "pods/log", False, id="a resource does not grant its subresources"),
        pytest.param("pods/log", "pods/log", True, id="a subresource by name"),
        pytest.param("*/log", "pods/log", True, id="a subresource of every resource"),
        pytest.param("*", "pods/log", True, id="the star grants subresources"),
        pytest.param("pods/log", "pods", False, id="a subresource does not grant the resource"),
    ],
)
def test_subresources_are_granted_by_name(granted: str, asked: str, want_allowed: bool) -> None:
    policies, authorizer = make()
    policies.role("r", rule(["get"], [granted]))
    policies.bind("r", ("User", "bob"))
    assert authorizer.allows(BOB, "get", "", asked, "a") is want_allowed


def test_resource_names_restrict_a_rule_to_those_names() -> None:
    policies, authorizer = make()
    policies.role("r", rule(["get"], ["secrets"], resourceNames=["mine"]))
    policies.bind("r", ("User", "bob"))
    assert authorizer.allows(BOB, "get", "", "secrets", "a", "mine")
    assert not authorizer.allows(BOB, "get", "", "secrets", "a", "other")
    assert not authorizer.allows(BOB, "get", "", "secrets", "a")


def test_service_accounts_are_bound_by_namespace_and_name() -> None:
    policies, authorizer = make()
    policies.role("r", rule(["get"], ["pods"]), namespace="a")
    policies.put(
        ROLE_BINDINGS,
        {
            "metadata": {"name": "b", "namespace": "a"},
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "runner", "namespace": "other"}],
        },
    )
    assert authorizer.allows(ActingIdentity("system:serviceaccount:other:runner"), "get", "", "pods", "a")
    assert not authorizer.allows(ActingIdentity("system:serviceaccount:a:runner"), "get", "", "pods", "a")


def test_a_revoked_binding_stops_working_at_once() -> None:
    policies, authorizer = make()
    policies.role("r", rule(["get"], ["pods"]))
    policies.bind("r", ("User", "bob"))
    assert authorizer.allows(BOB, "get", "", "pods", "a")
    policies.delete(CLUSTER_ROLE_BINDINGS, "", "r-binding")
    assert not authorizer.allows(BOB, "get", "", "pods", "a")


def test_a_changed_role_takes_effect_at_once() -> None:
    policies, authorizer = make()
    policies.role("r", rule(["get"], ["pods"]))
    policies.bind("r", ("User", "bob"))
    assert not authorizer.allows(BOB, "delete", "", "pods", "a")
    policies.role("r", rule(["delete"], ["pods"]))
    assert authorizer.allows(BOB, "delete", "", "pods", "a")
    assert not authorizer.allows(BOB, "get", "", "pods", "a")


def test_a_binding_that_changes_its_subjects_forgets_the_old_ones() -> None:
    policies, authorizer = make()
    policies.role("r", rule(["get"], ["pods"]))
    policies.bind("r", ("User", "bob"), name="b")
    policies.bind("r", ("User", "ann"), name="b")
    assert not authorizer.allows(BOB, "get", "", "pods", "a")
    assert authorizer.allows(ActingIdentity("ann"), "get", "", "pods", "a")


def test_policies_that_exist_before_the_authorizer_count() -> None:
    policies = DictPolicies()
    policies.role("r", rule(["get"], ["pods"]))
    policies.bind("r", ("User", "bob"))
    assert RbacAuthorizer(policies).allows(BOB, "get", "", "pods", "a")


def test_an_aggregated_role_has_the_rules_of_what_it_selects_through_several_steps() -> None:
    policies, authorizer = make()
    policies.role("outer", aggregate={"to": "outer"})
    policies.role("inner", labels={"to": "outer"}, aggregate={"to": "inner"})
    policies.role("leaf", rule(["get"], ["pods"]), labels={"to": "inner"})
    policies.bind("outer", ("User", "bob"))
    assert authorizer.allows(BOB, "get", "", "pods", "a")
    policies.delete(CLUSTER_ROLES, "", "leaf")
    assert not authorizer.allows(BOB, "get", "", "pods", "a")


def test_roles_that_aggregate_each_other_end() -> None:
    policies, authorizer = make()
    policies.role("a", labels={"x": "y"}, aggregate={"x": "y"})
    policies.role("b", labels={"x": "y"}, aggregate={"x": "y"})
    policies.bind("a", ("User", "bob"))
    assert not authorizer.allows(BOB, "get", "", "pods", "a")


def test_paths_are_granted_by_cluster_bindings_with_prefixes() -> None:
    policies, authorizer = make()
    policies.role("p", {"nonResourceURLs": ["/api/*", "/version"], "verbs": ["get"]})
    policies.bind("p", ("Group", "dev"))
    assert authorizer.allows_path(BOB, "get", "/api/v1") and authorizer.allows_path(BOB, "get", "/version")
    assert not authorizer.allows_path(BOB, "get", "/metrics")
    assert not authorizer.allows_path(BOB, "post", "/version")


def test_a_missing_role_is_named_in_the_reason() -> None:
    policies, authorizer = make()
    policies.bind("ghost", ("User", "bob"))
    assert authorizer.missing_roles(BOB, "a") == ['clusterrole.rbac.authorization.k8s.io "ghost" not found']


@pytest.mark.parametrize(
    ("role", "verb", "group", "resource", "want_allowed"),
    [
        pytest.param("view", "list", "trainer.kubeflow.org", "trainjobs", True, id="view reads TrainJobs"),
        pytest.param("view", "create", "trainer.kubeflow.org", "trainjobs", False, id="view does not write"),
        pytest.param("view", "get", "", "secrets", False, id="view does not read Secrets"),
        pytest.param("view", "get", "", "pods/log", True, id="view reads logs"),
        pytest.param("edit", "create", "trainer.kubeflow.org", "trainjobs", True, id="edit submits TrainJobs"),
        pytest.param("edit", "get", "", "pods", True, id="edit contains view"),
        pytest.param("edit", "create", "rbac.authorization.k8s.io", "roles", False, id="edit grants nothing"),
        pytest.param("admin", "create", "rbac.authorization.k8s.io", "rolebindings", True, id="admin grants"),
        pytest.param("admin", "patch", "", "configmaps", True, id="admin contains edit"),
        pytest.param("admin", "update", "", "resourcequotas", False, id="admin does not change quotas"),
    ],
)
def test_the_built_in_roles_grant_what_their_names_say(
    role: str, verb: str, group: str, resource: str, want_allowed: bool
) -> None:
    policies, authorizer = make()
    for obj in roles.build_cluster_roles():
        policies.put(CLUSTER_ROLES, obj)
    policies.bind(role, ("User", "bob"), namespace="a")
    assert authorizer.allows(BOB, verb, group, resource, "a") is want_allowed
    assert not authorizer.allows(BOB, verb, group, resource, "b")


def test_everybody_who_is_known_sees_the_cluster_runtimes_that_a_trainjob_can_name() -> None:
    policies, authorizer = make()
    for obj in roles.build_cluster_roles():
        policies.put(CLUSTER_ROLES, obj)
    for obj in roles.build_cluster_role_bindings():
        policies.put(CLUSTER_ROLE_BINDINGS, obj)
    known = ActingIdentity("ann", groups=("system:authenticated",))
    stranger = ActingIdentity("system:anonymous", groups=("system:unauthenticated",))
    runtimes = ("trainer.kubeflow.org", "clustertrainingruntimes", "")
    assert authorizer.allows(known, "list", *runtimes) and authorizer.allows(known, "get", *runtimes)
    assert not authorizer.allows(known, "update", *runtimes)
    assert not authorizer.allows(stranger, "list", *runtimes)
