"""deploy/rest/: the files say what the code says, and nothing that belongs to somebody else."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.house.tree import ROOT
from tools.rest_manifests import FILE, render_tenant_role
from trainmaster.app import settings
from trainmaster.app.settings import list_settings

pytestmark = pytest.mark.unit

DEPLOY = ROOT / "deploy" / "rest"
VERBS = {"create", "get", "list", "update", "patch", "delete"}


def read(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def test_the_tenants_role_is_what_the_code_says() -> None:
    assert FILE.read_text() == render_tenant_role(), "run python -m tools.rest_manifests"


def test_the_base_role_is_the_guides_with_token_reviews() -> None:
    (role,) = [item for item in read("base.yaml") if item["kind"] == "ClusterRole"]
    rules = {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert rules == {
        ("", "configmaps"): VERBS,
        ("", "pods"): VERBS,
        ("", "pods/log"): VERBS,
        ("trainer.kubeflow.org", "trainjobs"): VERBS | {"watch"},
        ("authentication.k8s.io", "tokenreviews"): {"create"},
    }


def test_what_gives_more_is_not_applied_by_default() -> None:
    (kustomization,) = read("kustomization.yaml")
    applied = set(kustomization["resources"])
    assert {path.name for path in DEPLOY.glob("*.yaml")} - applied == {
        "kustomization.yaml",
        "sign-up.yaml",
        "oidc.yaml",
    }
    bound = [item for name in applied for item in read(name) if item["kind"] == "ClusterRoleBinding"]
    account = [item["roleRef"]["name"] for item in bound if item["subjects"][0]["kind"] == "ServiceAccount"]
    assert account == ["trainmaster-rest"]


def test_the_deployments_settings_exist_and_its_image_names_no_registry() -> None:
    config, deployment, service = read("deployment.yaml")
    known = list_settings()
    found = settings.read_environment(config["data"], known)
    assert len(found) == len(config["data"])
    assert settings.load(None, config["data"], {}).settings.rest.port == 8443
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "/" not in container["image"] and "." not in container["image"]
    # Else a Service's variables could be taken for settings.
    assert pod["enableServiceLinks"] is False and not service["metadata"]["name"].startswith("trainmaster")
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
