"""A tenant with 200 MB of disk: scratch of many Pods, a claim beyond its size, and nobody else is touched."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.attacks.site import Caller, Site, add_tenant, unique
from tests.support.clients import JSON

pytestmark = pytest.mark.attacks

STORAGE = "trainmaster.dev/storage"
SLOWLY = "i=0; while true; do dd if=/dev/zero of={where}/f$i bs=1M count=8 2>/dev/null; i=$((i+1)); sleep 0.3; done"


@pytest.fixture(scope="module")
def small(site: Site) -> Caller:
    return add_tenant(site.server, unique("small"), "--storage", "200M")


def _wait(check: Callable[[], Any], seconds: float = 90) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    return found


def _read_used(site: Site, namespace: str) -> str:
    quota = site.owner.kube.get(f"/api/v1/namespaces/{namespace}/resourcequotas/tenant")
    return str(quota["status"].get("used", {}).get(STORAGE, ""))


def _build_claim(name: str, size: str) -> JSON:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def test_a_tenant_above_its_budget_is_stopped_and_nobody_else(site: Site, small: Caller) -> None:
    bystander = unique("bystander")
    site.bob.start_pod(bystander, "sleep 300")
    for number in range(3):
        small.start_pod(f"taker{number}", SLOWLY.format(where="/tmp"))
    _wait(lambda: any(_is_evicted(small, f"taker{number}") for number in range(3)))
    evicted = next(n for n in range(3) if _is_evicted(small, f"taker{n}"))
    message = small.kube.get(small.path("pods", f"taker{evicted}"))["status"]["message"]
    assert f"namespace {small.namespace} keeps" in message and "trainmaster.dev/storage" in message
    assert site.bob.wait_for_pod(bystander, "Running")["status"]["phase"] == "Running"
    _wait(lambda: _read_used(site, small.namespace) not in ("", "0"))
    for number in range(3):
        small.kube.call("DELETE", f"{small.path('pods', f'taker{number}')}?gracePeriodSeconds=0")
    site.bob.kube.call("DELETE", f"{site.bob.path('pods', bystander)}?gracePeriodSeconds=0")


def test_above_its_budget_a_tenant_starts_nothing_new_until_it_has_tidied_up(site: Site, small: Caller) -> None:
    name = unique("keep")
    claim = _build_claim(name, "190M")
    _wait(lambda: small.kube.call("POST", small.path("persistentvolumeclaims"), claim)[0] == 201)
    mount = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    script = "dd if=/dev/zero of=/data/f bs=1M count=260 2>/dev/null; sleep 1"
    small.start_pod(name, script, container=mount, volumes=volumes)
    small.wait_for_pod(name)
    body = small.build_pod(unique("more"), "true")
    code, answer = _wait(lambda: _refused(small.kube.call("POST", f"{small.path('pods')}?dryRun=All", body)))
    assert code == 403 and "exceeded quota: tenant, used: trainmaster.dev/storage=" in answer["message"]
    small.kube.delete(small.path("pods", name))
    small.kube.delete(small.path("persistentvolumeclaims", name))
    _wait(lambda: small.kube.call("POST", f"{small.path('pods')}?dryRun=All", body)[0] == 201)


def _refused(answer: tuple[int, Any]) -> tuple[int, Any] | None:
    return answer if answer[0] == 403 else None


def _is_evicted(caller: Caller, name: str) -> bool:
    pod: JSON = caller.kube.get(caller.path("pods", name))
    return bool((pod.get("status") or {}).get("reason") == "Evicted")
