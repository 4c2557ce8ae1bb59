"""Checklist B: get in all its forms, describe, events."""

from __future__ import annotations

import time

import pytest

from tests.support.clients import Raw
from tests.support.kubectl import Kubectl
from tests.wire.scenario import Scenario, play, run, scenario, with_versions

pytestmark = pytest.mark.wire

PREPARE = run("create -f everything.yaml", out=None)
PART = "deploy/jobset-controller-manager -n kubeflow-system"
READ_ONLY = (
    "the server does not allow this method on the requested resource: Deployments show the parts of the control plane; "
    "to run a program, create a TrainJob, JobSet, Job or Pod"
)
SCENARIOS = [
    scenario(
        "Deployments show the parts of the control plane and cannot be written",
        run(f"rollout status {PART}", out='deployment "jobset-controller-manager" successfully rolled out'),
        run(
            f"wait --for=condition=Available {PART}",
            out="deployment.apps/jobset-controller-manager condition met",
        ),
        run(
            "get deploy -A",
            out="""
            NAMESPACE NAME READY UP-TO-DATE AVAILABLE AGE
            kubeflow-system jobset-controller-manager 1/1 1 1 <age>
            kubeflow-system kubeflow-trainer-controller-manager 1/1 1 1 <age>
            ...
            """,
        ),
        run(
            f"describe {PART}",
            out="""
            Name: jobset-controller-manager
            ...
            Selector: app.kubernetes.io/name=jobset-controller-manager
            Replicas: 1 desired | 1 updated | 1 total | 1 available | 0 unavailable
            ...
            Image: trainmaster:<word>
            ...
            Available True MinimumReplicasAvailable
            ...
            """,
        ),
        run("create deployment web --image=web", rc=1, err=f"error: failed to create deployment: {READ_ONLY}"),
        run(f"delete {PART}", rc=1, err=f"Error from server (MethodNotAllowed): {READ_ONLY}"),
        run(
            f'patch {PART} --type=merge --subresource=status -p {{"status":{{"replicas":2}}}}',
            rc=1,
            err=f"Error from server (MethodNotAllowed): {READ_ONLY}",
            since=24,
        ),
        run("get all", err="No resources found in {ns} namespace."),
    ),
    scenario(
        "get prints the columns of a custom kind",
        PREPARE,
        run(
            "get trainjob",
            out="""
            NAME   STATE   AGE     <any>
            tj1            <age>   <any>
            """,
        ),
        run(
            "get trainjob tj1 --show-labels",
            out="""
            NAME   STATE   AGE     <any> LABELS
            tj1            <age>   <any> app=tj
            """,
        ),
        run(
            "get trainjobs -A --show-labels",
            out="""
            NAMESPACE   NAME   STATE   AGE     <any> LABELS
            ...
            {ns}        tj1            <age>   <any> app=tj
            ...
            """,
        ),
        core=True,
        kube=True,
    ),
    scenario(
        "get prints the columns of built-in kinds",
        PREPARE,
        run(
            "get pods",
            out="""
            NAME   READY   STATUS    RESTARTS   AGE
            idle   0/1     Pending   0          <age>
            """,
        ),
        run(
            "get pods -o wide",
            out="""
            NAME   READY   STATUS    RESTARTS   AGE     IP       NODE     NOMINATED NODE   READINESS GATES
            idle   0/1     Pending   0          <age>   <none>   <none>   <none>           <none>
            """,
        ),
        run(
            "get configmap settings",
            out="""
            NAME       DATA   AGE
            settings   2      <age>
            """,
        ),
        run(
            "get service -o wide",
            out="""
            NAME   TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)           AGE     SELECTOR
            web    ClusterIP   None         <none>        80/TCP,9090/TCP   <age>   app=web
            """,
        ),
        run(
            "get ns {ns}",
            out="""
            NAME   STATUS   AGE
            {ns}   Active   <age>
            """,
        ),
        run(
            "get jobs crunch -o wide",
            out="""
            NAME     STATUS      COMPLETIONS   DURATION   AGE     CONTAINERS   IMAGES                     SELECTOR
            crunch   <word>      0/1           <any>      <age>   main         example.invalid/crunch:1   <any>
            """,
        ),
        core=True,
        kube=True,
    ),
    scenario(
        "several kinds are printed with their kind",
        PREPARE,
        run(
            "get trainjob,jobs,pods",
            out="""
            NAME                                STATE   AGE     <any>
            trainjob.trainer.kubeflow.org/tj1           <age>   <any>
            NAME               STATUS      COMPLETIONS   DURATION   AGE
            job.batch/crunch   <word>      0/1           <any>      <age>
            NAME       READY   STATUS    RESTARTS   AGE
            pod/idle   0/1     Pending   0          <age>
            """,
        ),
        run("get trainjob/tj1 pod/idle -o name", out="trainjob.trainer.kubeflow.org/tj1\npod/idle"),
    ),
    scenario(
        "get all covers the kinds of the category",
        PREPARE,
        run("get all -o name", out="pod/idle\nservice/web\njob.batch/crunch"),
        kube=True,
    ),
    scenario(
        "get prints objects in the formats of scripts",
        PREPARE,
        run("get trainjob -o name", out="trainjob.trainer.kubeflow.org/tj1"),
        run("get trainjob tj1 -o jsonpath={.spec.trainer.numNodes}", out="2"),
        run("get trainjob -o jsonpath={.items[*].metadata.name}", out="tj1"),
        run(
            "get trainjob -o custom-columns=N:.metadata.name,NODES:.spec.trainer.numNodes,X:.spec.nosuch",
            out="""
            N     NODES   X
            tj1   2       <none>
            """,
        ),
        run(
            "get trainjob tj1 -o go-template='{{.spec.runtimeRef.kind}}/{{.spec.runtimeRef.name}}'",
            out="TrainingRuntime/plain",
        ),
        run(
            "get trainjob tj1 -o yaml",
            out="""
            apiVersion: trainer.kubeflow.org/v1alpha1
            kind: TrainJob
            metadata:
            ...
              creationTimestamp: "<word>Z"
              generation: 1
              labels:
                app: tj
            ...
              name: tj1
              namespace: {ns}
              resourceVersion: "<int>"
              uid: <uid>
            spec:
              managedBy: kueue.x-k8s.io/multikueue
              runtimeRef:
                apiGroup: trainer.kubeflow.org
                kind: TrainingRuntime
                name: plain
              suspend: true
              trainer:
                command:
                - python
                - train.py
                numNodes: 2
            """,
        ),
        run(
            "get configmap settings -o json",
            out="""
            {
            "apiVersion": "v1",
            "data": {
            "color": "red",
            "size": "small"
            },
            "kind": "ConfigMap",
            ...
            }
            """,
        ),
        core=True,
        kube=True,
    ),
    scenario(
        "lists can be sorted and read in pieces",
        run("create configmap b1 --from-literal=n=3", out="configmap/b1 created"),
        run("create configmap b2 --from-literal=n=1", out="configmap/b2 created"),
        run("create configmap b3 --from-literal=n=2", out="configmap/b3 created"),
        run("label configmap b1 b2 b3 set=b", out=None),
        run("get cm -l set=b --sort-by=.data.n -o name", out="configmap/b2\nconfigmap/b3\nconfigmap/b1"),
        run(
            "get cm -l set=b --sort-by=.data.n",
            out="""
            NAME   DATA   AGE
            b2     1      <age>
            b3     1      <age>
            b1     1      <age>
            """,
        ),
        run("get cm -l set=b --chunk-size=1 -o name", out="configmap/b1\nconfigmap/b2\nconfigmap/b3"),
        run(
            "get cm -l set=b --chunk-size=2",
            out="""
            NAME   DATA   AGE
            b1     1      <age>
            b2     1      <age>
            b3     1      <age>
            """,
        ),
    ),
    scenario(
        "label selectors choose objects",
        run("create configmap a1", out=None),
        run("create configmap a2", out=None),
        run("create configmap a3", out=None),
        run("label configmap a1 tier=front env=dev", out="configmap/a1 labeled"),
        run("label configmap a2 tier=back env=dev", out="configmap/a2 labeled"),
        run("get cm -o name -l tier=front", out="configmap/a1"),
        run("get cm -o name -l env=dev,tier!=front", out="configmap/a2"),
        run("get cm -o name -l 'tier in (front, back)'", out="configmap/a1\nconfigmap/a2"),
        run("get cm -o name -l 'tier notin (front),env'", out="configmap/a2"),
        run("get cm -o name -l '!tier,tier!=front' --field-selector metadata.name=a3", out="configmap/a3"),
        run("get cm -l tier=nosuch", err="No resources found in {ns} namespace."),
        run("get cm -l 'tier in ('", rc=1, err=None, out=None),
        kube=True,
    ),
    scenario(
        "field selectors choose objects",
        PREPARE,
        run("get pods -o name --field-selector status.phase=Pending", out="pod/idle"),
        run("get pods -o name --field-selector status.phase!=Pending"),
        run("get pods -o name --field-selector metadata.name=idle,metadata.namespace={ns}", out="pod/idle"),
        run("get pods -o name --field-selector spec.nodeName=", out="pod/idle"),
        run(
            "get pods --field-selector spec.nosuch=1",
            rc=1,
            err='Error from server (BadRequest): Unable to find "/v1, Resource=pods" that match label selector "", '
            'field selector "spec.nosuch=1": field label not supported: spec.nosuch',
        ),
        run(
            "get trainjobs --field-selector spec.nosuch=1",
            rc=1,
            err='Error from server (BadRequest): Unable to find "trainer.kubeflow.org/v1alpha1, Resource=trainjobs" '
            'that match label selector "", field selector "spec.nosuch=1": field label not supported: spec.nosuch',
        ),
        kube=True,
    ),
    scenario(
        "what is not there is NotFound with exit code 1",
        run("get trainjob x", rc=1, err='Error from server (NotFound): trainjobs.trainer.kubeflow.org "x" not found'),
        run("get pod x", rc=1, err='Error from server (NotFound): pods "x" not found'),
        run("get job x", rc=1, err='Error from server (NotFound): jobs.batch "x" not found'),
        run("get ns nosuch-{ns}", rc=1, err='Error from server (NotFound): namespaces "nosuch-{ns}" not found'),
        run("get trainjob x --ignore-not-found"),
        run("get trainjob", err="No resources found in {ns} namespace."),
        run("get pods -n nosuch-{ns}", err="No resources found in nosuch-{ns} namespace."),
        core=True,
        kube=True,
    ),
    scenario(
        "the status subresource can be read",
        PREPARE,
        run("get trainjob tj1 --subresource=status -o jsonpath={.metadata.name}", out="tj1"),
        run("get job crunch --subresource=status -o jsonpath={.kind}", out="Job"),
        since=24,
    ),
    scenario(
        "raw paths can be read",
        run("get --raw /healthz", out="ok"),
        run("get --raw /livez", out="ok"),
        run("get --raw /readyz", out="ok"),
        run("get --raw /api/v1/namespaces/{ns}/configmaps?limit=1", out='{"kind":"ConfigMapList",<any>'),
        run(
            "get --raw /nosuch",
            rc=1,
            err="Error from server (NotFound): the server could not find the requested resource",
        ),
    ),
    scenario(
        "logs of a Pod that has not started are empty",
        run("create -f pod.yaml", out="pod/idle created"),
        run("logs idle"),
        run("logs -l app=idle"),
        run("logs idle -c nosuch", rc=1, err="error: container nosuch is not valid for pod idle<any>"),
        run("logs nosuch", rc=1, err='<any>rror from server (NotFound): pods "nosuch" not found<any>'),
        kube=True,
    ),
    scenario(
        "describe shows built-in kinds",
        PREPARE,
        run(
            "describe pod idle",
            out="""
            Name:         idle
            Namespace:    {ns}
            ...
            Labels:       app=idle
            ...
            Status:       Pending
            ...
            Containers:
              main:
                Image:      example.invalid/idle:1
            ...
            QoS Class:                   BestEffort
            ...
            """,
        ),
        run(
            "describe job crunch",
            out="""
            Name:             crunch
            Namespace:        {ns}
            ...
            Parallelism:      1
            Completions:      1
            ...
            Pods Statuses: <any>
            ...
            """,
        ),
        run(
            "describe configmap settings",
            out="""
            Name:         settings
            Namespace:    {ns}
            Labels:       app=demo
            Annotations:  <none>
            Data
            ====
            ...
            color:
            ----
            red
            ...
            """,
        ),
        run(
            "describe ns {ns}",
            out="""
            Name:         {ns}
            Labels:       kubernetes.io/metadata.name={ns}
            Annotations:  <none>
            Status:       Active
            No resource quota.
            No LimitRange resource.
            """,
        ),
        run(
            "describe service web",
            out="""
            Name:              web
            Namespace:         {ns}
            ...
            Selector:          app=web
            Type:              ClusterIP
            ...
            """,
            err=None,
        ),
        kube=True,
    ),
]


def test_kubectl(scenario: Scenario, kubectl: Kubectl) -> None:
    play(scenario, kubectl)


@with_versions("full")
def test_describe_shows_a_node_with_the_pods_on_it(kubectl: Kubectl, raw: Raw) -> None:
    node = f"node-{kubectl.namespace}"
    raw.create("/api/v1/nodes", {"metadata": {"name": node, "labels": {"pool": "wire"}}})
    try:
        text = kubectl.must(f"describe node {node}")
    finally:
        raw.delete(f"/api/v1/nodes/{node}")
    assert text.startswith(f"Name:               {node}\n")
    assert "pool=wire" in text
    assert "Non-terminated Pods:          (0 in total)" in text


@with_versions("full")
def test_get_shows_the_last_condition_of_a_trainjob_as_its_state(kubectl: Kubectl, raw: Raw) -> None:
    kubectl.must("create -f runtime.yaml -f trainjob.yaml")
    condition = {
        "type": "Complete",
        "status": "True",
        "reason": "Done",
        "message": "done",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{kubectl.namespace}/trainjobs/tj1/status"
    raw.merge(path, {"status": {"conditions": [condition]}})
    header, row = kubectl.must("get trainjob").splitlines()
    assert header.split()[:3] == ["NAME", "STATE", "AGE"]
    assert row.split()[:2] == ["tj1", "Complete"]


DESCRIBED = """
Name:         tj1
Namespace:    {ns}
Labels:       app=tj
...
API Version:  trainer.kubeflow.org/v1alpha1
Kind:         TrainJob
Metadata:
  Creation Timestamp:  <word>
...
Spec:
  Managed By:  kueue.x-k8s.io/multikueue
  Runtime Ref:
    API Group:  trainer.kubeflow.org
    Kind:       TrainingRuntime
    Name:       plain
  Suspend:      true
...
    Num Nodes:  2
Events:
  Type    Reason  Age   From       Message
  ----    ------  ----  ----       -------
  Normal  Paused  <age> wire-test  waiting for somebody else
"""


def trainjob_with_event(kubectl: Kubectl, raw: Raw) -> None:
    """tj1 with one event that names it by uid, as describe asks for."""
    kubectl.must("create -f runtime.yaml -f trainjob.yaml")
    job = raw.get(f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{kubectl.namespace}/trainjobs/tj1")
    raw.create(
        f"/api/v1/namespaces/{kubectl.namespace}/events",
        {
            "metadata": {"name": "tj1.1"},
            "involvedObject": {
                "apiVersion": job["apiVersion"],
                "kind": job["kind"],
                "name": "tj1",
                "namespace": kubectl.namespace,
                "uid": job["metadata"]["uid"],
            },
            "reason": "Paused",
            "message": "waiting for somebody else",
            "type": "Normal",
            "count": 1,
            "firstTimestamp": "2026-01-02T03:04:05Z",
            "lastTimestamp": "2026-01-02T03:04:05Z",
            "source": {"component": "wire-test"},
        },
    )


@with_versions("core")
def test_describe_shows_a_trainjob_with_its_events(kubectl: Kubectl, raw: Raw) -> None:
    trainjob_with_event(kubectl, raw)
    play(scenario("describe", run("describe trainjob tj1", out=DESCRIBED)), kubectl)


@with_versions("full")
def test_events_are_listed_for_a_namespace_and_for_an_object(kubectl: Kubectl, raw: Raw) -> None:
    trainjob_with_event(kubectl, raw)
    play(EVENTS, kubectl)


EVENTS = scenario(
    "events",
    run(
        "get events --field-selector involvedObject.name=tj1",
        out="""
        LAST SEEN   TYPE     REASON   OBJECT         MESSAGE
        <age>       Normal   Paused   trainjob/tj1   waiting for somebody else
        """,
    ),
    run(
        "events --for trainjob/tj1",
        out="""
        LAST SEEN         TYPE     REASON   OBJECT         MESSAGE
        <any>       Normal   Paused   TrainJob/tj1   waiting for somebody else
        """,
        since=26,
    ),
    run(
        "events",
        out="""
        LAST SEEN <any>
        ...
        <any>       Normal   Paused   TrainJob/tj1   waiting for somebody else
        ...
        """,
        since=26,
    ),
    run(
        "get events.events.k8s.io tj1.1 -o jsonpath={.regarding.name}/{.note}/{.deprecatedCount}",
        out="tj1/waiting for somebody else/1",
    ),
)


SPEAKER = """
apiVersion: v1
kind: Pod
metadata: {name: speaker, labels: {app: speaker}}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: python, command: ["sh", "-c", "echo one; echo two; echo three"]}
"""


@with_versions("full")
def test_logs_are_those_of_the_process(kubectl: Kubectl) -> None:
    kubectl.must("create -f -", stdin=SPEAKER)
    while "Succeeded" not in kubectl.must("get pod speaker -o jsonpath={.status.phase}"):
        time.sleep(0.1)
    play(
        scenario(
            "logs",
            run("logs speaker", out="one\ntwo\nthree"),
            run("logs -f speaker", out="one\ntwo\nthree"),
            run("logs speaker -c main --tail=1", out="three"),
            run("logs -l app=speaker --tail=-1", out="one\ntwo\nthree"),
            run("logs speaker --limit-bytes=3", out="one"),
        ),
        kubectl,
    )
