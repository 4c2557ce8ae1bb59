"""Checklist D: delete in all its forms, and wait."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.support.clients import Raw
from tests.support.kubectl import Kubectl
from tests.wire.scenario import Scenario, play, run, scenario, with_versions

pytestmark = pytest.mark.wire

SETTINGS = run("create -f cm.yaml", out="configmap/settings created")
TRAINJOB = run("create -f runtime.yaml -f trainjob.yaml", out=None)
CONDITION = {
    "type": "Complete",
    "status": "True",
    "reason": "Done",
    "message": "done",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}

SCENARIOS = [
    scenario(
        "delete removes and waits until it is gone",
        SETTINGS,
        run("delete cm settings", out='configmap "settings" deleted<any>'),
        run("get cm settings --ignore-not-found"),
        TRAINJOB,
        run("delete trainjob/tj1", out='trainjob.trainer.kubeflow.org "tj1" deleted<any>'),
        run("get trainjob -o name"),
        run("create -f pod.yaml", out="pod/idle created"),
        run("delete pod idle", out='pod "idle" deleted<any>'),
        run("get pod idle --ignore-not-found"),
        core=True,
        kube=True,
    ),
    scenario(
        "a runtime in use is kept, and the refusal says by whom and what to do",
        TRAINJOB,
        run(
            "delete trainingruntime plain",
            err='Error from server (Forbidden): trainingruntimes.trainer.kubeflow.org "plain" is forbidden: '
            "in use by TrainJob {ns}/tj1. Delete it first, or allow it with: "
            "kubectl annotate trainingruntime plain -n {ns} trainmaster.dev/allow-delete-in-use=true",
            rc=1,
        ),
        run(
            "annotate trainingruntime plain -n {ns} trainmaster.dev/allow-delete-in-use=true",
            out="trainingruntime.trainer.kubeflow.org/plain annotated",
        ),
        run("delete trainingruntime plain", out='trainingruntime.trainer.kubeflow.org "plain" deleted<any>'),
    ),
    scenario(
        "delete --wait=false returns at once",
        SETTINGS,
        run("delete cm settings --wait=false", out='configmap "settings" deleted<any>'),
        run("create -f pod.yaml", out="pod/idle created"),
        run("delete pod idle --now --wait=false", out='pod "idle" deleted<any>', err=None),
        run(
            "delete pod nosuch --grace-period=0 --force",
            rc=1,
            out=None,
            err="""
            <any>arning: Immediate deletion does not wait for confirmation that the running resource has been \
            terminated. The resource may continue to run on the cluster indefinitely.
            Error from server (NotFound): pods "nosuch" not found
            """,
        ),
    ),
    scenario(
        "delete of what is not there is an error unless ignored",
        run("delete cm nosuch", rc=1, err='Error from server (NotFound): configmaps "nosuch" not found'),
        run("delete cm nosuch --ignore-not-found"),
        run(
            "delete -f trainjob.yaml",
            rc=1,
            err='Error from server (NotFound): error when deleting "trainjob.yaml": '
            'trainjobs.trainer.kubeflow.org "tj1" not found',
        ),
        run("delete -f trainjob.yaml --ignore-not-found"),
        core=True,
        kube=True,
    ),
    scenario(
        "delete chooses by label, by file and all",
        run("create -f two.yaml -f cm.yaml", out=None),
        run("delete cm -l app=demo", out='configmap "settings" deleted<any>'),
        run("delete -f two.yaml", out='configmap "one" deleted<any>\nconfigmap "two" deleted<any>'),
        run("create -f runtime.yaml -f trainjob.yaml", out=None),
        run("delete trainjob --all", out='trainjob.trainer.kubeflow.org "tj1" deleted<any>'),
        run("delete trainjob --all", out="No resources found"),
        run("delete cm -l app=nosuch", out="No resources found"),
        kube=True,
    ),
    scenario(
        "delete of a namespace takes everything with it",
        run("create ns {ns}-gone", out="namespace/{ns}-gone created"),
        run("create -f cm.yaml -f runtime.yaml -n {ns}-gone", out=None),
        run("delete ns {ns}-gone --timeout=50s", out='namespace "{ns}-gone" deleted', err=None),
        run("get ns {ns}-gone --ignore-not-found"),
        run("get cm settings -n {ns}-gone", rc=1, err='Error from server (NotFound): namespaces "{ns}-gone" not found'),
        core=True,
        kube=True,
    ),
    scenario(
        "wait returns when the condition is already true",
        TRAINJOB,
        run(
            "wait --for=delete trainjob/nosuch --timeout=5s",
            since=21,
        ),
        run(
            "wait --for=jsonpath={.spec.suspend}=true trainjob/tj1 --timeout=5s",
            out="trainjob.trainer.kubeflow.org/tj1 condition met",
            since=23,
        ),
        run(
            "wait --for=create trainjob/tj1 --timeout=5s",
            out="trainjob.trainer.kubeflow.org/tj1 condition met",
            since=31,
        ),
        kube=True,
    ),
    scenario(
        "wait runs into its time-out with exit code 1",
        TRAINJOB,
        run(
            "wait --for=condition=Complete trainjob/tj1 --timeout=1s",
            rc=1,
            err="error: timed out waiting for the condition on trainjobs/tj1",
        ),
        run(
            "wait --for=condition=Complete trainjob/nosuch --timeout=1s",
            rc=1,
            err='Error from server (NotFound): trainjobs.trainer.kubeflow.org "nosuch" not found',
        ),
        kube=True,
    ),
]


def test_kubectl(scenario: Scenario, kubectl: Kubectl) -> None:
    play(scenario, kubectl)


def trainjobs(kubectl: Kubectl) -> str:
    return f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{kubectl.namespace}/trainjobs"


def configmaps(kubectl: Kubectl) -> str:
    return f"/api/v1/namespaces/{kubectl.namespace}/configmaps"


def while_running(kubectl: Kubectl, line: str, change: Callable[[], object]) -> subprocess.CompletedProcess[str]:
    """Runs a command that has to wait, and makes the change that it waits for."""
    with kubectl.start(line) as process:
        try:
            # The command is on its way to the server or already waits there; both orders must end the same.
            process.wait(0.3)
        except subprocess.TimeoutExpired:
            change()
        out, err = process.communicate(timeout=40)
    return subprocess.CompletedProcess(line, process.returncode, out, err)


def hold(raw: Raw, path: str) -> None:
    raw.merge(path, {"metadata": {"finalizers": ["example.org/hold"]}})


def release(raw: Raw, path: str) -> None:
    raw.merge(path, {"metadata": {"finalizers": None}})


@with_versions("core")
def test_delete_waits_for_a_slow_deletion(kubectl: Kubectl, raw: Raw) -> None:
    kubectl.must("create -f runtime.yaml -f trainjob.yaml")
    path = f"{trainjobs(kubectl)}/tj1"
    hold(raw, path)
    done = while_running(kubectl, "delete trainjob tj1", lambda: release(raw, path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('trainjob.trainer.kubeflow.org "tj1" deleted')
    assert not raw.exists(path)


@with_versions("full")
def test_delete_gives_up_after_its_timeout(kubectl: Kubectl, raw: Raw) -> None:
    kubectl.must("create -f cm.yaml")
    path = f"{configmaps(kubectl)}/settings"
    hold(raw, path)
    answer = kubectl.run("delete cm settings --timeout=1s")
    assert raw.get(path)["metadata"]["deletionTimestamp"]
    release(raw, path)
    assert answer.rc == 1
    assert "timed out waiting for the condition" in answer.err


@with_versions("core")
def test_wait_returns_when_the_condition_comes(kubectl: Kubectl, raw: Raw) -> None:
    kubectl.must("create -f runtime.yaml -f trainjob.yaml")
    status = f"{trainjobs(kubectl)}/tj1/status"
    done = while_running(
        kubectl,
        # The name of a condition is compared without regard to case.
        "wait --for=condition=complete trainjob/tj1 --timeout=30s",
        lambda: raw.merge(status, {"status": {"conditions": [CONDITION]}}),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "trainjob.trainer.kubeflow.org/tj1 condition met\n"


@with_versions("full")
def test_wait_for_delete_returns_when_the_object_is_gone(kubectl: Kubectl, raw: Raw) -> None:
    kubectl.must("create -f cm.yaml")
    path = f"{configmaps(kubectl)}/settings"
    done = while_running(kubectl, "wait --for=delete cm/settings --timeout=30s", lambda: raw.delete(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "configmap/settings condition met\n"


@with_versions("full")
def test_wait_for_a_jsonpath_returns_when_it_is_true(kubectl: Kubectl, raw: Raw) -> None:
    kubectl.must("create -f cm.yaml")
    if kubectl.minor < 23:
        assert kubectl.run("wait --for=jsonpath={.data.color}=blue cm/settings").rc == 1  # not known to it
        return
    done = while_running(
        kubectl,
        "wait --for=jsonpath={.data.color}=blue cm/settings --timeout=30s",
        lambda: raw.merge(f"{configmaps(kubectl)}/settings", {"data": {"color": "blue"}}),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "configmap/settings condition met\n", "")


@with_versions("newest")
def test_wait_for_create_returns_when_the_object_appears(kubectl: Kubectl, raw: Raw) -> None:
    done = while_running(
        kubectl,
        "wait --for=create cm/late --timeout=30s",
        lambda: raw.create(configmaps(kubectl), {"metadata": {"name": "late"}}),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "configmap/late condition met\n", "")


def await_gone(raw: Raw, path: str) -> None:
    """Garbage collection has no end that one could be told of, so this looks until it is there."""
    end = time.monotonic() + 30
    while raw.exists(path):
        assert time.monotonic() < end, f"{path} is still there"
        time.sleep(0.02)


def family(kubectl: Kubectl, raw: Raw) -> tuple[str, str]:
    """A parent and a child that it owns; returns their paths."""
    parent = raw.create(configmaps(kubectl), {"metadata": {"name": "parent"}})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": parent["metadata"]["uid"]}
    owner["blockOwnerDeletion"] = True
    raw.create(configmaps(kubectl), {"metadata": {"name": "child", "ownerReferences": [owner]}})
    return f"{configmaps(kubectl)}/parent", f"{configmaps(kubectl)}/child"


@with_versions("full")
def test_background_deletion_takes_the_children_later(kubectl: Kubectl, raw: Raw) -> None:
    _, child = family(kubectl, raw)
    kubectl.must("delete cm parent --cascade=background")
    await_gone(raw, child)


@with_versions("full")
def test_foreground_deletion_takes_the_children_first(kubectl: Kubectl, raw: Raw) -> None:
    parent, child = family(kubectl, raw)
    hold(raw, child)
    with kubectl.start("delete cm parent --cascade=foreground --timeout=30s") as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        going = raw.get(parent)["metadata"]
        release(raw, child)
        _, err = process.communicate(timeout=40)
    assert going["deletionTimestamp"]
    assert going["finalizers"] == ["foregroundDeletion"]
    assert (process.returncode, err) == (0, "")
    assert not raw.exists(parent)
    assert not raw.exists(child)


@with_versions("full")
def test_orphans_stay(kubectl: Kubectl, raw: Raw) -> None:
    parent, child = family(kubectl, raw)
    kubectl.must("delete cm parent --cascade=orphan")
    assert not raw.exists(parent)
    assert "ownerReferences" not in raw.get(child)["metadata"]
