"""Credentials to identities, and the reviews that ask about them."""

from __future__ import annotations

import pytest

from tests.unit.auth.policies import DictPolicies, rule
from trainmaster.api.meta import GVR
from trainmaster.api.status import Invalid, StatusError
from trainmaster.auth.identities import Credentials, StaticTokens, digest, read_certificate
from trainmaster.auth.rbac import RbacAuthorizer
from trainmaster.auth.reviews import Reviews
from trainmaster.client.contract import ActingIdentity

pytestmark = pytest.mark.unit

ANN = ActingIdentity("ann", groups=("dev", "system:authenticated"))


def credentials() -> Credentials:
    return Credentials([StaticTokens({digest("secret"): ActingIdentity("ann", groups=("dev",))})])


def reviews() -> Reviews:
    policies = DictPolicies()
    policies.role("r", rule(["get"], ["pods"]), {"nonResourceURLs": ["/version"], "verbs": ["get"]})
    policies.bind("r", ("User", "ann"))
    return Reviews(credentials(), RbacAuthorizer(policies))


def access(plural: str) -> GVR:
    return GVR("authorization.k8s.io", "v1", plural)


def test_a_bearer_token_identifies_its_owner_and_adds_the_authenticated_group() -> None:
    assert credentials().identify("Bearer secret", None) == ANN


def test_no_credentials_are_nobody() -> None:
    assert credentials().identify(None, None) is None


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Bearer ", "Basic c2VjcmV0", "secret", "", "Bearer secret, Bearer x"]
)
def test_wrong_credentials_are_refused(header: str) -> None:
    with pytest.raises(StatusError) as caught:
        credentials().identify(header, None)
    assert (caught.value.code, caught.value.reason) == (401, "Unauthorized")


def test_a_certificate_names_user_and_groups() -> None:
    subject = ((("organizationName", "one"),), (("organizationName", "two"),), (("commonName", "ann"),))
    assert read_certificate({"subject": subject}) == ActingIdentity(
        "ann", groups=("one", "two", "system:authenticated")
    )


def test_a_certificate_without_a_common_name_is_nobody() -> None:
    assert read_certificate({"subject": ((("organizationName", "one"),),)}) is None


def test_a_self_access_review_answers_for_the_caller() -> None:
    gvr = access("selfsubjectaccessreviews")
    yes = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"}}}
    no = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "pods", "namespace": "a"}}}
    path = {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/version"}}}
    assert reviews().answer(gvr, ANN, yes)["status"] == {"allowed": True}
    assert reviews().answer(gvr, ANN, no)["status"] == {"allowed": False}
    assert reviews().answer(gvr, ANN, path)["status"] == {"allowed": True}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="nothing asked"),
        pytest.param({"resourceAttributes": {"verb": "x"}, "nonResourceAttributes": {"path": "/"}}, id="both asked"),
    ],
)
def test_a_review_asks_exactly_one_thing(spec: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="exactly one of nonResourceAttributes or resourceAttributes"):
        reviews().answer(access("selfsubjectaccessreviews"), ANN, {"spec": spec})


def test_a_subject_access_review_answers_for_somebody_else() -> None:
    spec = {"user": "ann", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"}}
    answer = reviews().answer(access("subjectaccessreviews"), ActingIdentity("root"), {"spec": spec})
    assert answer["status"] == {"allowed": True}
    with pytest.raises(Invalid, match="at least one of user or group must be specified"):
        reviews().answer(access("subjectaccessreviews"), ANN, {"spec": {**spec, "user": ""}})


def test_a_local_review_stays_in_its_namespace() -> None:
    spec = {"user": "ann", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"}}
    gvr = access("localsubjectaccessreviews")
    assert reviews().answer(gvr, ANN, {"metadata": {"namespace": "a"}, "spec": spec})["status"] == {"allowed": True}
    with pytest.raises(Invalid, match="must match namespace"):
        reviews().answer(gvr, ANN, {"metadata": {"namespace": "b"}, "spec": spec})


def test_a_rules_review_lists_what_the_caller_may_do() -> None:
    answer = reviews().answer(access("selfsubjectrulesreviews"), ANN, {"spec": {"namespace": "a"}})
    assert answer["status"] == {
        "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/version"]}],
        "incomplete": False,
    }


def test_who_am_i_and_whose_token_is_this() -> None:
    whoami = reviews().answer(GVR("authentication.k8s.io", "v1", "selfsubjectreviews"), ANN, {})
    assert whoami["status"]["userInfo"] == {"username": "ann", "groups": ["dev", "system:authenticated"]}
    gvr = GVR("authentication.k8s.io", "v1", "tokenreviews")
    good = reviews().answer(gvr, ANN, {"spec": {"token": "secret"}})["status"]
    bad = reviews().answer(gvr, ANN, {"spec": {"token": "wrong"}})["status"]
    assert good["authenticated"] is True and good["user"]["username"] == "ann"
    assert "authenticated" not in bad and bad["error"]
