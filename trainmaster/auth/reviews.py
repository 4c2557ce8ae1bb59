"""The review kinds: SubjectAccessReview and its variants, SelfSubjectReview and TokenReview.

Answered from the authorizer and the authenticator; nothing is stored. The registry calls `answer` for a posted review
and returns the object with its status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainmaster.api import fields, status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.fields import FieldError
from trainmaster.api.kindsets.authentication_v1 import SELF_SUBJECT_REVIEW, TOKEN_REVIEW
from trainmaster.api.kindsets.authorization_v1 import (
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    SUBJECT_ACCESS_REVIEW,
)
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import list_items, read_fields, read_metadata, read_spec, read_text
from trainmaster.auth.contract import MASTERS, Authenticator
from trainmaster.auth.rbac import AccessRule, RbacAuthorizer
from trainmaster.client.contract import ActingIdentity

Answer = Callable[[ActingIdentity, Object], Object]
"""(who sent the review, the review) to its status."""


class Reviews:
    def __init__(self, authenticator: Authenticator, authorizer: RbacAuthorizer) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self.answers: Mapping[GVR, Answer] = {
            SELF_SUBJECT_ACCESS_REVIEW.gvr: self._self_access,
            SUBJECT_ACCESS_REVIEW.gvr: self._subject_access,
            LOCAL_SUBJECT_ACCESS_REVIEW.gvr: self._local_access,
            SELF_SUBJECT_RULES_REVIEW.gvr: self._self_rules,
            SELF_SUBJECT_REVIEW.gvr: self._self_subject,
            TOKEN_REVIEW.gvr: self._token,
        }

    def answer(self, gvr: GVR, identity: ActingIdentity, review: Object) -> Object:
        """The review with its status. Raises StatusError 422 if the review is incomplete or contradictory."""
        return {**review, "status": self.answers[gvr](identity, review)}

    # authorization.k8s.io

    def _self_access(self, identity: ActingIdentity, review: Object) -> Object:
        spec = read_spec(review)
        _check_attributes(SELF_SUBJECT_ACCESS_REVIEW, spec, [])
        return self._decide(identity, spec)

    def _subject_access(self, identity: ActingIdentity, review: Object) -> Object:
        spec = read_spec(review)
        _check_attributes(SUBJECT_ACCESS_REVIEW, spec, _subject_errors(spec))
        return self._decide(_subject(spec), spec)

    def _local_access(self, identity: ActingIdentity, review: Object) -> Object:
        spec = read_spec(review)
        errors = _subject_errors(spec)
        resource = read_fields(spec, "resourceAttributes")
        namespace = read_metadata(review).get("namespace", "")
        if spec.get("nonResourceAttributes"):
            errors.append(fields.invalid("spec.nonResourceAttributes", None, "disallowed on this kind of request"))
        if resource.get("namespace") != namespace:
            text = "spec.resourceAttributes.namespace must match namespace"
            errors.append(fields.invalid("spec.resourceAttributes.namespace", resource.get("namespace", ""), text))
        _check_attributes(LOCAL_SUBJECT_ACCESS_REVIEW, spec, errors)
        return self._decide(_subject(spec), spec)

    def _decide(self, identity: ActingIdentity, spec: Fields) -> Object:
        resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if resource:
            name = read_text(resource, "resource")
            if resource.get("subresource"):
                name += f"/{resource['subresource']}"
            namespace = read_text(resource, "namespace")
            allowed = self._authorizer.allows(
                identity,
                read_text(resource, "verb"),
                read_text(resource, "group"),
                name,
                namespace,
                read_text(resource, "name"),
            )
            missing = [] if allowed else self._authorizer.missing_roles(identity, namespace)
        else:
            assert path is not None
            allowed = self._authorizer.allows_path(identity, read_text(path, "verb"), read_text(path, "path"))
            missing = []
        answer: Object = {"allowed": allowed}
        if missing:
            answer["reason"] = "RBAC: " + ", ".join(missing)
        return answer

    def _self_rules(self, identity: ActingIdentity, review: Object) -> Object:
        namespace = read_text(review, "spec", "namespace")
        if not namespace:
            raise status.bad_request("no namespace on request")
        rules = list(self._authorizer.rules_for(identity, namespace))
        if MASTERS in identity.groups:
            everything = frozenset({"*"})
            rules = [AccessRule(everything, everything, everything), AccessRule(everything, paths=("*",)), *rules]
        unique = list(dict.fromkeys(rules))
        return {
            "resourceRules": [_resource_rule(rule) for rule in unique if not rule.paths],
            "nonResourceRules": [
                {"verbs": sorted(rule.verbs), "nonResourceURLs": list(rule.paths)} for rule in unique if rule.paths
            ],
            "incomplete": False,
        }

    # authentication.k8s.io

    def _self_subject(self, identity: ActingIdentity, review: Object) -> Object:
        return {"userInfo": describe_user(identity)}

    def _token(self, identity: ActingIdentity, review: Object) -> Object:
        spec = read_spec(review)
        token = spec.get("token")
        if not token or not isinstance(token, str):
            raise status.bad_request("token is required for TokenReview in authentication")
        audiences = tuple(value for value in list_items(spec, "audiences") if isinstance(value, str))
        found = self._authenticator.review(token, audiences)
        if found is None:
            return {"user": {}, "error": "invalid bearer token"}
        owner, good_for = found
        answer: Object = {"authenticated": True, "user": describe_user(owner)}
        if good_for:
            answer["audiences"] = list(good_for)
        return answer


def describe_user(identity: ActingIdentity) -> Object:
    user: Object = {"username": identity.user}
    if identity.uid:
        user["uid"] = identity.uid
    if identity.groups:
        user["groups"] = list(identity.groups)
    if identity.extra:
        user["extra"] = {key: list(values) for key, values in identity.extra.items()}
    return user


def _subject(spec: Fields) -> ActingIdentity:
    extra = {str(key): tuple(values) for key, values in read_fields(spec, "extra").items()}
    return ActingIdentity(read_text(spec, "user"), read_text(spec, "uid"), tuple(list_items(spec, "groups")), extra)


def _subject_errors(spec: Fields) -> list[FieldError]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [fields.invalid("spec.user", read_text(spec, "user"), "at least one of user or group must be specified")]


def _check_attributes(kind: Kind, spec: Fields, errors: list[FieldError]) -> None:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if bool(resource) == bool(path):
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        wrong = resource or None
        errors.append(fields.invalid("spec.resourceAttributes", wrong, text))
    if errors:
        raise status.invalid(kind.group, kind.kind, "", errors)


def _resource_rule(rule: AccessRule) -> Object:
    answer: Object = {
        "verbs": sorted(rule.verbs),
        "apiGroups": sorted(rule.groups),
        "resources": sorted(rule.resources),
    }
    if rule.names:
        answer["resourceNames"] = sorted(rule.names)
    return answer
