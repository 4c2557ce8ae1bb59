"""Checklist C, first half: create, validation, patch, edit, label, annotate, replace."""

from __future__ import annotations

import pytest

from tests.support.clients import Raw
from tests.support.kubectl import Kubectl
from tests.wire.scenario import Scenario, play, run, scenario, with_versions

pytestmark = pytest.mark.wire

RUNTIME = run("create -f runtime.yaml", out="trainingruntime.trainer.kubeflow.org/plain created")
SETTINGS = run("create -f cm.yaml", out="configmap/settings created")
TRAINJOB = run("create -f runtime.yaml -f trainjob.yaml", out=None)
NODES = "get trainingruntime plain -o jsonpath={.spec.mlPolicy.numNodes}"
UNKNOWN_FORMAT = (
    "the body of the request was in an unknown format - accepted media types include: "
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml<any>"
)

SCENARIOS = [
    scenario(
        "create -f creates what a file holds",
        run("create -f cm.yaml", out="configmap/settings created"),
        run("create -f two.yaml", out="configmap/one created\nconfigmap/two created"),
        RUNTIME,
        run("create -f trainjob.yaml", out="trainjob.trainer.kubeflow.org/tj1 created"),
        run("create -f job.yaml -f pod.yaml", out="job.batch/crunch created\npod/idle created"),
        run(
            "get cm settings -o jsonpath={.data}",
            out='{"color":"red","size":"small"}',
        ),
        core=True,
        kube=True,
    ),
    scenario(
        "what exists already is refused",
        SETTINGS,
        run(
            "create -f cm.yaml",
            rc=1,
            err='Error from server (AlreadyExists): error when creating "cm.yaml": '
            'configmaps "settings" already exists',
        ),
        TRAINJOB,
        run(
            "create -f trainjob.yaml",
            rc=1,
            err='Error from server (AlreadyExists): error when creating "trainjob.yaml": '
            'trainjobs.trainer.kubeflow.org "tj1" already exists',
        ),
        run("create ns {ns}", rc=1, err='Error from server (AlreadyExists): namespaces "{ns}" already exists'),
        kube=True,
    ),
    scenario(
        "a missing namespace is refused",
        run(
            "create -f cm.yaml -n nosuch-{ns}",
            rc=1,
            err='Error from server (NotFound): error when creating "cm.yaml": namespaces "nosuch-{ns}" not found',
        ),
        run(
            "create configmap x -n nosuch-{ns}",
            rc=1,
            err={
                0: 'Error from server (NotFound): namespaces "nosuch-{ns}" not found',
                23: 'error: failed to create configmap: namespaces "nosuch-{ns}" not found',
            },
        ),
        kube=True,
    ),
    scenario(
        "the generators of kubectl create work",
        run("create namespace {ns}-b", out="namespace/{ns}-b created"),
        run("create configmap c --from-literal=a=1 --from-literal=b=2", out="configmap/c created"),
        run("get cm c -o jsonpath={.data.a}{.data.b}", out="12"),
        run("create secret generic s --from-literal=password=x", out="secret/s created"),
        run("get secret s -o jsonpath={.type}:{.data.password}", out="Opaque:eA=="),
        run(
            "get secret s",
            out="""
            NAME   TYPE     DATA   AGE
            s      Opaque   1      <age>
            """,
        ),
        run("create serviceaccount robot", out="serviceaccount/robot created"),
        run(
            "create job j --image=example.invalid/x:1 --dry-run=server -- true",
            out="job.batch/j created (server dry run)",
        ),
        run("create service clusterip svc --clusterip=None", out="service/svc created"),
        run("create quota q --hard=pods=2", out="resourcequota/q created"),
        run("create priorityclass pc-{ns} --value=7", out="priorityclass.scheduling.k8s.io/pc-{ns} created"),
        run("delete priorityclass pc-{ns}", out='priorityclass.scheduling.k8s.io "pc-{ns}" deleted', err=None),
        run("create role r --verb=get --resource=pods", out="role.rbac.authorization.k8s.io/r created"),
        run(
            "create rolebinding rb --role=r --user=bob",
            out="rolebinding.rbac.authorization.k8s.io/rb created",
        ),
        run("delete namespace {ns}-b", out='namespace "{ns}-b" deleted', err=None),
        core=True,
        kube=True,
    ),
    scenario(
        "generateName gets a suffix of five letters",
        RUNTIME,
        run("create -f trainjob-generate.yaml -o name", out="trainjob.trainer.kubeflow.org/tj-<word>"),
        run("create -f trainjob-generate.yaml", out="trainjob.trainer.kubeflow.org/tj-<word> created"),
        run(
            "get trainjob -o name",
            out="trainjob.trainer.kubeflow.org/tj-<word>\ntrainjob.trainer.kubeflow.org/tj-<word>",
        ),
    ),
    scenario(
        "unknown fields are refused by default",
        RUNTIME,
        run(
            "create -f trainjob-unknown.yaml",
            rc=1,
            err={
                0: 'error: error validating "trainjob-unknown.yaml": error validating data: '
                'ValidationError(TrainJob.spec): unknown field "colour" in <word>.TrainJob.spec; '
                "if you choose to ignore these errors, turn validation off with --validate=false",
                27: 'Error from server (BadRequest): error when creating "trainjob-unknown.yaml": TrainJob in version '
                '"v1alpha1" cannot be handled as a TrainJob: strict decoding error: unknown field "spec.colour"',
            },
        ),
        run(
            "create -f cm-unknown.yaml",
            rc=1,
            err={
                0: 'error: error validating "cm-unknown.yaml": error validating data: ValidationError(ConfigMap): '
                'unknown field "colour" in <word>.ConfigMap; '
                "if you choose to ignore these errors, turn validation off with --validate=false",
                27: 'Error from server (BadRequest): error when creating "cm-unknown.yaml": ConfigMap in version '
                '"v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "colour"',
            },
        ),
        core=True,
        kube=True,
    ),
    scenario(
        "unknown fields are let in when asked for",
        RUNTIME,
        run(
            "create -f trainjob-unknown.yaml --validate=warn",
            out="trainjob.trainer.kubeflow.org/tj1 created",
            err='Warning: unknown field "spec.colour"',
            since=25,
        ),
        run("delete trainjob tj1", out=None, since=25),
        run(
            "create -f trainjob-unknown.yaml --validate=false",
            out="trainjob.trainer.kubeflow.org/tj1 created",
            # The oldest says nothing about validation to the server, whose default is to warn.
            err={0: 'Warning: unknown field "spec.colour"', 25: ""},
        ),
        run("get trainjob tj1 -o jsonpath={.spec.colour}"),
        run(
            "create -f cm-unknown.yaml --validate=warn",
            out="configmap/settings created",
            err='Warning: unknown field "colour"',
            since=25,
        ),
        kube=True,
    ),
    scenario(
        "a wrong type in a custom kind is named with its field",
        RUNTIME,
        run(
            "create -f trainjob-wrong-type.yaml",
            rc=1,
            err={
                0: 'error: error validating "trainjob-wrong-type.yaml": error validating data: '
                "ValidationError(TrainJob.spec.trainer.numNodes): invalid type for <word>.numNodes: "
                'got "string", expected "integer"; '
                "if you choose to ignore these errors, turn validation off with --validate=false",
                27: """
                The TrainJob "tj1" is invalid:
                * spec.trainer.numNodes: Invalid value: "string": spec.trainer.numNodes \
                in body must be of type integer: "string"
                * <nil>: Invalid value: <word> some validation rules were not \
            checked because the object was invalid; correct the existing errors to complete validation
                """,
            },
        ),
        kube=True,
    ),
    scenario(
        "every broken rule of a custom kind is listed",
        run(
            "create -f trainjob-invalid.yaml --validate=false",
            rc=1,
            err="""
            The TrainJob "tj1" is invalid:
            * spec.runtimeRef: Required value
            * <nil>: Invalid value: <word> some validation rules were not \
            checked because the object was invalid; correct the existing errors to complete validation
            """,
        ),
        kube=True,
    ),
    scenario(
        "every broken rule of a built-in kind is listed",
        run(
            "create -f job-invalid.yaml",
            rc=1,
            err="""
            The Job "crunch" is invalid:
            * spec.template.spec.containers[0].name: Invalid value: "Main!": \
            a lowercase RFC 1123 label must consist of <any>
            * spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"
            """,
        ),
        kube=True,
    ),
    scenario(
        "a wrong type in a built-in kind is refused",
        run(
            "create -f - --validate=false",
            stdin='{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"n": 1}}',
            rc=1,
            err='Error from server (BadRequest): error when creating "STDIN": ConfigMap in version "v1" cannot be '
            "handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        run("create configmap Not_A_Name", rc=1, out=None, err=None),
        kube=True,
    ),
    scenario(
        "dry runs store nothing",
        run("create -f cm.yaml --dry-run=client", out="configmap/settings created (dry run)"),
        run("create -f cm.yaml --dry-run=server", out="configmap/settings created (server dry run)"),
        run("get cm settings", rc=1, err='Error from server (NotFound): configmaps "settings" not found'),
        RUNTIME,
        run(
            "create -f trainjob.yaml --dry-run=server -o jsonpath={.spec.runtimeRef.apiGroup}",
            out="trainer.kubeflow.org",
        ),
        SETTINGS,
        run("delete cm settings --dry-run=server", out='configmap "settings" deleted <any>(server dry run)'),
        run("label cm settings x=y --dry-run=server", out="configmap/settings labeled<any>"),
        run("get cm settings -o jsonpath={.metadata.labels.x}"),
        kube=True,
    ),
    scenario(
        "patches of every type change an object",
        TRAINJOB,
        run(
            """patch trainingruntime plain --type=merge -p '{"spec":{"mlPolicy":{"numNodes":5}}}'""",
            out="trainingruntime.trainer.kubeflow.org/plain patched",
        ),
        run(NODES, out="5"),
        run(
            """patch trainingruntime plain --type=merge -p '{"spec":{"mlPolicy":{"numNodes":5}}}'""",
            out="trainingruntime.trainer.kubeflow.org/plain patched (no change)",
        ),
        run(
            """patch trainingruntime plain --type=json -p '[{"op":"test","path":"/spec/mlPolicy/numNodes","value":5},"""
            """{"op":"replace","path":"/spec/mlPolicy/numNodes","value":6}]'""",
            out="trainingruntime.trainer.kubeflow.org/plain patched",
        ),
        run(NODES, out="6"),
        run("create -f service.yaml", out="service/web created"),
        run(
            """patch service web -p '{"spec":{"ports":[{"port":9090,"name":"stats"}]}}'""",
            out="service/web patched",
        ),
        run("get service web -o jsonpath={.spec.ports[*].name}", out="http stats"),
        core=True,
        kube=True,
    ),
    scenario(
        "patches that do not fit are refused",
        TRAINJOB,
        run(
            """patch trainjob tj1 -p '{"spec":{"suspend":false}}'""",
            rc=1,
            err={
                0: f"Error from server (UnsupportedMediaType): {UNKNOWN_FORMAT}",
                27: "error: application/strategic-merge-patch+json is not supported by "
                f"trainer.kubeflow.org/v1alpha1, Kind=TrainJob: {UNKNOWN_FORMAT}",
            },
        ),
        run(
            """patch trainjob tj1 --type=json -p '[{"op":"test","path":"/spec/trainer/numNodes","value":9}]'""",
            rc=1,
            err="The request is invalid<any>",
        ),
        run(
            """patch trainjob tj1 --type=json -p '[{"op":"remove","path":"/spec/nosuch"}]'""",
            rc=1,
            err="The request is invalid<any>",
        ),
        run(
            """patch trainjob tj1 --type=merge -p '{"metadata":{"resourceVersion":"1"}}'""",
            rc=1,
            err='Error from server (Conflict): Operation cannot be fulfilled on trainjobs.trainer.kubeflow.org "tj1": '
            "the object has been modified; please apply your changes to the latest version and try again",
        ),
        run(
            """patch trainjob tj1 --type=merge -p '{"spec":{"runtimeRef":null}}'""",
            rc=1,
            err=None,
        ),
        run(
            """patch trainjob nosuch --type=merge -p '{}'""",
            rc=1,
            err='Error from server (NotFound): trainjobs.trainer.kubeflow.org "nosuch" not found',
        ),
        kube=True,
    ),
    scenario(
        "spec and status are written apart",
        TRAINJOB,
        run(
            """patch trainjob tj1 --type=merge --subresource=status -p """
            """'{"spec":{"trainer":{"numNodes":9}},"status":{"jobsStatus":[{"name":"node","ready":1,"succeeded":0,"failed":0,"active":1,"suspended":0}]}}'""",
            out="trainjob.trainer.kubeflow.org/tj1 patched",
        ),
        run("get trainjob tj1 -o jsonpath={.spec.trainer.numNodes}/{.status.jobsStatus[0].name}", out="2/node"),
        run(
            """patch trainjob tj1 --type=merge -p '{"status":null,"spec":{"suspend":false}}'""",
            out="trainjob.trainer.kubeflow.org/tj1 patched",
        ),
        run("get trainjob tj1 -o jsonpath={.spec.suspend}/{.status.jobsStatus[0].name}", out="false/node"),
        run("get trainjob tj1 -o jsonpath={.metadata.generation}", out="2"),
        since=24,
        kube=True,
    ),
    scenario(
        "labels and annotations are set, kept and removed",
        SETTINGS,
        run("label cm settings tier=front", out="configmap/settings labeled"),
        run(
            "label cm settings tier=back",
            rc=1,
            err="error: 'tier' already has a value (front), and --overwrite is false",
        ),
        run("label cm settings tier=back --overwrite", out="configmap/settings labeled"),
        run(
            "label cm settings tier=back --overwrite",
            out="configmap/settings not labeled",
        ),
        run(
            "get cm settings --show-labels --no-headers",
            out="settings 2 <age> app=demo,tier=back",
        ),
        run("label cm settings tier-", out={0: "configmap/settings labeled", 21: "configmap/settings unlabeled"}),
        run("annotate cm settings note='two words'", out="configmap/settings annotated"),
        run("get cm settings -o jsonpath={.metadata.annotations.note}", out="two words"),
        run("annotate cm settings note-", out="configmap/settings annotated"),
        run("label cm settings 'bad=not valid!'", rc=1, out=None, err=None),
        kube=True,
    ),
    scenario(
        "replace needs the object and keeps what it may not change",
        run(
            "replace -f cm.yaml",
            rc=1,
            err='Error from server (NotFound): error when replacing "cm.yaml": configmaps "settings" not found',
        ),
        SETTINGS,
        run("replace -f cm-changed.yaml", out="configmap/settings replaced"),
        run("get cm settings -o jsonpath={.data.color}{.data.size}", out="blue"),
        TRAINJOB,
        run("replace -f runtime-changed.yaml", out="trainingruntime.trainer.kubeflow.org/plain replaced"),
        run(NODES, out="3"),
        run(
            "replace -f trainjob-immutable.yaml",
            rc=1,
            err='The TrainJob "tj1" is invalid: spec.trainer: Invalid value: <any>field is immutable',
        ),
        kube=True,
    ),
    scenario(
        "replace --force deletes and creates again",
        SETTINGS,
        run("replace --force -f cm-changed.yaml", out='configmap "settings" deleted<any>\nconfigmap/settings replaced'),
        run("get cm settings -o jsonpath={.data.color}", out="blue"),
    ),
    scenario(
        "edit stores what the editor leaves",
        SETTINGS,
        run("edit cm settings", editor='sed -i s/red/green/ "$1"', out="configmap/settings edited"),
        run("get cm settings -o jsonpath={.data.color}", out="green"),
        run(
            "edit cm settings",
            editor="true",
            err="Edit cancelled, no changes made.",
        ),
        TRAINJOB,
        run(
            "edit trainingruntime plain",
            editor='sed -i "s/numNodes: 1/numNodes: 7/" "$1"',
            out="trainingruntime.trainer.kubeflow.org/plain edited",
        ),
        run(NODES, out="7"),
        core=True,
        kube=True,
    ),
    scenario(
        "edit of an invalid object says so and keeps a copy",
        TRAINJOB,
        run(
            "edit trainingruntime plain",
            # The second visit of the editor leaves the file as it is, which ends the edit.
            editor='grep -q "numNodes: lots" "$1" || sed -i "s/numNodes: 1/numNodes: lots/" "$1"',
            rc=1,
            out=None,
            err="""
            error: trainingruntimes.trainer.kubeflow.org "plain" is invalid
            ...
            A copy of your changes has been stored to <any>
            ...
            """,
        ),
        run(NODES, out="1"),
        kube=True,
    ),
]


def test_kubectl(scenario: Scenario, kubectl: Kubectl) -> None:
    play(scenario, kubectl)


@with_versions("full")
def test_a_stale_replace_is_a_conflict(kubectl: Kubectl, raw: Raw) -> None:
    kubectl.must("create -f cm.yaml")
    old = kubectl.must("get cm settings -o json")
    raw.merge(f"/api/v1/namespaces/{kubectl.namespace}/configmaps/settings", {"data": {"size": "large"}})
    answer = kubectl.run("replace -f -", stdin=old)
    assert answer.rc == 1
    assert answer.err == (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on configmaps '
        '"settings": the object has been modified; please apply your changes to the latest version and try again\n'
    )


@with_versions("full")
def test_field_managers_are_named_after_the_command(kubectl: Kubectl, raw: Raw) -> None:
    kubectl.must("create -f cm.yaml")
    kubectl.must("label cm settings x=y")
    kubectl.must("""patch cm settings -p '{"data":{"shape":"round"}}'""")
    stored = raw.get(f"/api/v1/namespaces/{kubectl.namespace}/configmaps/settings")
    managers = [entry["manager"] for entry in stored["metadata"]["managedFields"]]
    assert managers == ["kubectl-create", "kubectl-label", "kubectl-patch"]
