"""Checklist C, second half: apply on the client's and on the server's side, diff, kustomize."""

from __future__ import annotations

import json

import pytest

from tests.support.clients import Raw
from tests.support.kubectl import Kubectl
from tests.wire.scenario import Scenario, play, run, scenario, with_versions

pytestmark = pytest.mark.wire

COLOR = "get cm settings -o jsonpath={.data.color}/{.data.size}"
NODES = "get trainingruntime plain -o jsonpath={.spec.mlPolicy.numNodes}"
PLAIN = "trainingruntime.trainer.kubeflow.org/plain"

SCENARIOS = [
    scenario(
        "apply creates, leaves alone and changes a built-in kind",
        run("apply -f cm.yaml", out="configmap/settings created"),
        run("apply -f cm.yaml", out="configmap/settings unchanged"),
        run("apply -f cm-changed.yaml", out="configmap/settings configured"),
        run(COLOR, out="blue/"),
        run("apply view-last-applied cm settings -o json", out=None),
        core=True,
        kube=True,
    ),
    scenario(
        "apply creates, leaves alone and changes a custom kind",
        run("apply -f runtime.yaml", out=f"{PLAIN} created"),
        run("apply -f runtime.yaml", out=f"{PLAIN} unchanged"),
        run("apply -f runtime-changed.yaml", out=f"{PLAIN} configured"),
        run(NODES, out="3"),
        run("apply -f trainjob.yaml", out="trainjob.trainer.kubeflow.org/tj1 created"),
        run("apply -f trainjob.yaml", out="trainjob.trainer.kubeflow.org/tj1 unchanged"),
        core=True,
        kube=True,
    ),
    scenario(
        "apply merges the lists of a built-in kind by their key",
        run("apply -f service.yaml", out="service/web created"),
        run(
            """patch service web -p '{"spec":{"ports":[{"port":7070,"name":"debug"}]}}'""",
            out="service/web patched",
        ),
        run("apply -f service-changed.yaml", out="service/web configured"),
        run(
            """get service web -o 'jsonpath={.spec.ports[?(@.name=="http")].port} """
            """{.spec.ports[?(@.name=="metrics")].port} {.spec.ports[?(@.name=="debug")].port}'""",
            out="8080 9091 7070",
        ),
        kube=True,
    ),
    scenario(
        "apply takes several files and says what happened to each",
        run(
            "apply -f cm.yaml -f runtime.yaml -f job.yaml -f pod.yaml",
            out=f"""
            configmap/settings created
            {PLAIN} created
            job.batch/crunch created
            pod/idle created
            """,
        ),
        run(
            "apply -f cm-changed.yaml -f runtime.yaml -f job.yaml -f pod.yaml",
            out=f"""
            configmap/settings configured
            {PLAIN} unchanged
            job.batch/crunch unchanged
            pod/idle unchanged
            """,
        ),
    ),
    scenario(
        "apply warns about an object that it did not create",
        run("create -f cm.yaml", out="configmap/settings created"),
        run(
            "apply -f cm-changed.yaml",
            out="configmap/settings configured",
            err="Warning: resource configmaps/settings is missing the kubectl.kubernetes.io/last-applied-configuration "
            "annotation which is required by <any>",
        ),
    ),
    scenario(
        "apply refuses unknown fields and wrong values",
        run("apply -f cm-unknown.yaml", rc=1, err=None),
        run("apply -f trainjob-wrong-type.yaml", rc=1, err=None),
        run("get cm,trainjob -o name -l app", err=None),
        run("apply -f runtime.yaml -f trainjob.yaml", out=None),
        run(
            "apply -f trainjob-immutable.yaml",
            rc=1,
            err='The TrainJob "tj1" is invalid: spec.trainer: Invalid value: <any>field is immutable',
        ),
    ),
    scenario(
        "apply has dry runs on both sides",
        run("apply -f cm.yaml --dry-run=client", out="configmap/settings created (dry run)"),
        run("apply -f cm.yaml --dry-run=server", out="configmap/settings created (server dry run)"),
        run("apply -f cm.yaml", out="configmap/settings created"),
        run("apply -f cm-changed.yaml --dry-run=server", out="configmap/settings configured (server dry run)"),
        run("apply -f cm.yaml --dry-run=server", out="configmap/settings unchanged (server dry run)"),
        run(COLOR, out="red/small"),
        kube=True,
    ),
    scenario(
        "diff shows the change and exits with 1",
        run(
            "diff -f cm.yaml",
            rc=1,
            out="""
            diff -u <any>
            ...
            +data:
            + color: red
            + size: small
            ...
            """,
        ),
        run("apply -f cm.yaml", out=None),
        run("diff -f cm.yaml"),
        run(
            "diff -f cm-changed.yaml",
            rc=1,
            out="""
            diff -u <any>
            ...
            - color: red
            - size: small
            + color: blue
            ...
            """,
        ),
        run(COLOR, out="red/small"),
        run("apply -f runtime.yaml", out=None),
        run(
            "diff -f runtime-changed.yaml",
            rc=1,
            out="""
            diff -u <any>
            ...
            - numNodes: 1
            + numNodes: 3
            ...
            """,
        ),
        core=True,
        kube=True,
    ),
    scenario(
        "apply -k builds and applies a kustomization",
        run("apply -k kustomize", out="configmap/dev-settings created", err=None),
        run("get cm dev-settings -o jsonpath={.metadata.labels.stage}/{.data.color}", out="dev/red"),
        run("apply -k kustomize", out="configmap/dev-settings unchanged", err=None),
        run("delete -k kustomize", out='configmap "dev-settings" deleted<any>', err=None),
    ),
    scenario(
        "server-side apply creates and changes",
        run("apply --server-side -f cm.yaml", out="configmap/settings serverside-applied"),
        run("apply --server-side -f cm.yaml", out="configmap/settings serverside-applied"),
        run("apply --server-side -f cm-changed.yaml", out="configmap/settings serverside-applied"),
        # The field left out of the second file was ours alone, so it is gone.
        run(COLOR, out="blue/"),
        run("apply --server-side -f runtime.yaml", out=f"{PLAIN} serverside-applied"),
        run("apply --server-side -f runtime-changed.yaml", out=f"{PLAIN} serverside-applied"),
        run(NODES, out="3"),
        run(
            "apply --server-side --dry-run=server -f cm.yaml",
            out={0: "configmap/settings serverside-applied (server dry run)"},
        ),
        run(COLOR, out="blue/"),
        core=True,
        kube=True,
    ),
    scenario(
        "server-side apply refuses to take over fields",
        run("apply --server-side --field-manager=alice -f cm.yaml", out="configmap/settings serverside-applied"),
        run(
            "apply --server-side --field-manager=bob -f cm-other-owner.yaml",
            rc=1,
            err="""
            error: Apply failed with 1 conflict: conflict with "alice": .data.color
            Please review the fields above--they currently have other managers. Here
            are the ways you can resolve this warning:
            ...
            """,
        ),
        run(COLOR, out="red/small"),
        run(
            "apply --server-side --field-manager=bob --force-conflicts -f cm-other-owner.yaml",
            out="configmap/settings serverside-applied",
        ),
        run(COLOR, out="green/small"),
        # Alice gives up a field that is now Bob's: it stays.
        run(
            "apply --server-side --field-manager=alice -f -",
            stdin='{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"size":"large"}}',
            out="configmap/settings serverside-applied",
        ),
        run(COLOR, out="green/large"),
        core=True,
        kube=True,
    ),
    scenario(
        "server-side apply of a custom kind names the conflict with its version",
        run("apply --server-side --field-manager=alice -f runtime.yaml", out=f"{PLAIN} serverside-applied"),
        run(
            "apply --server-side --field-manager=bob -f runtime-changed.yaml",
            rc=1,
            err="""
            error: Apply failed with 1 conflict: conflict with "alice": .spec.mlPolicy.numNodes
            ...
            """,
        ),
        run(
            """patch trainingruntime plain --type=merge -p '{"spec":{"mlPolicy":{"numNodes":8}}}'""",
            out=f"{PLAIN} patched",
        ),
        run(
            "apply --server-side --field-manager=alice -f runtime.yaml",
            rc=1,
            err="""
            error: Apply failed with 1 conflict: conflict with "kubectl-patch" \
            using trainer.kubeflow.org/v1alpha1: .spec.mlPolicy.numNodes
            ...
            """,
        ),
        kube=True,
    ),
    scenario(
        "an object moves from client-side to server-side apply and back",
        run("apply -f cm.yaml", out="configmap/settings created"),
        run(
            "apply --server-side -f cm-changed.yaml",
            out="configmap/settings serverside-applied",
            # The oldest does not migrate the ownership that client-side apply has left.
            rc=0,
            since=26,
        ),
        run(COLOR, out="blue/", since=26),
        run("apply --server-side -f cm.yaml", out="configmap/settings serverside-applied", since=26),
        run("apply -f cm-changed.yaml", out="configmap/settings configured", err=None),
        run("get cm settings -o jsonpath={.data.color}", out="blue"),
        kube=True,
    ),
    scenario(
        "apply set-last-applied and create --save-config prepare for apply",
        run("create -f cm.yaml --save-config", out="configmap/settings created"),
        run("apply -f cm-changed.yaml", out="configmap/settings configured"),
        run("create -f runtime.yaml", out=f"{PLAIN} created"),
        run("apply set-last-applied --create-annotation -f runtime.yaml", out=f"{PLAIN} configured"),
        run("apply -f runtime-changed.yaml", out=f"{PLAIN} configured"),
    ),
    scenario(
        "apply --prune deletes what left the files",
        run("apply -f two.yaml", out="configmap/one created\nconfigmap/two created"),
        run("label cm one two group=g", out=None),
        run(
            "apply -f - --prune -l group=g --prune-allowlist=core/v1/ConfigMap",
            stdin='{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","labels":{"group":"g"}}}',
            out=None,
            err=None,
        ),
        run("get cm -l group=g -o name", out="configmap/one"),
        since=26,
    ),
]


def test_kubectl(scenario: Scenario, kubectl: Kubectl) -> None:
    play(scenario, kubectl)


@with_versions("full")
def test_apply_on_a_terminating_object_warns(kubectl: Kubectl, raw: Raw) -> None:
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps/settings"
    kubectl.must("apply -f cm.yaml")
    raw.merge(path, {"metadata": {"finalizers": ["example.org/hold"]}})
    raw.delete(path)
    answer = kubectl.run("apply -f cm-changed.yaml")
    raw.merge(path, {"metadata": {"finalizers": None}})
    assert answer.rc == 0, answer.err
    assert answer.out == "configmap/settings configured\n"
    assert "Warning: Detected changes to resource settings which is currently being deleted." in answer.err
    assert not raw.exists(path)


@with_versions("full")
def test_server_side_apply_records_who_owns_which_fields(kubectl: Kubectl, raw: Raw) -> None:
    kubectl.must("apply --server-side --field-manager=alice -f cm.yaml")
    stored = raw.get(f"/api/v1/namespaces/{kubectl.namespace}/configmaps/settings")
    (entry,) = stored["metadata"]["managedFields"]
    assert {key: entry[key] for key in ("manager", "operation", "apiVersion", "fieldsType", "fieldsV1")} == {
        "manager": "alice",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:color": {}, "f:size": {}}, "f:metadata": {"f:labels": {"f:app": {}}}},
    }


def test_managed_fields_are_shown_on_request(kubectl: Kubectl) -> None:
    kubectl.must("apply --server-side -f cm.yaml")
    assert "managedFields" not in kubectl.must("get cm settings -o yaml")
    assert "manager: kubectl" in kubectl.must("get cm settings -o yaml --show-managed-fields")


def test_a_shipped_runtime_is_applied_without_a_conflict(kubectl: Kubectl) -> None:
    pod = {"containers": [{"name": "node", "image": "mine:1"}]}
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "xgboost-distributed"},
        "spec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    answer = kubectl.run("apply --server-side -f -", stdin=json.dumps(runtime))
    assert (answer.rc, answer.err) == (0, "")
