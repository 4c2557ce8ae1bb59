"""Records what a real API server does with managedFields, for tests/unit/api/patches/test_apply_observed.py.

Run it against a real cluster with the Trainer CRDs (KUBECONFIG set, token authentication):

    python tools/record_field_ownership.py tests/unit/api/patches/observed_ownership.jsonl

Each step is one write. The file keeps the object before it, the request, and the object (or the Status) after it, so
that the replay needs no server: it feeds `before` and the request to our functions and compares field ownership.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

NAMESPACE = "ownership"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
BATCH = f"/apis/batch/v1/namespaces/{NAMESPACE}"
TRAINER = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}"
JOBSET = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}"
RBAC = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"


class Server:
    def __init__(self) -> None:
        config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        self.url = cluster["server"]
        self.token = user.get("token", "")
        ca = cluster.get("certificate-authority-data")
        if ca:
            self.context = ssl.create_default_context(cadata=base64.b64decode(ca).decode())
        elif "certificate-authority" in cluster:
            self.context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        else:
            self.context = ssl._create_unverified_context()
        self.steps: list[dict[str, Any]] = []

    def call(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> tuple[int, Any]:
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            request.add_header("Content-Type", content_type)
        try:
            with urllib.request.urlopen(request, data, context=self.context) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def settled(self, path: str) -> tuple[int, Any]:
        """The object once no controller is about to write to it."""
        last: Any = None
        while True:
            code, obj = self.call("GET", path)
            if code != 200 or obj == last:
                return code, obj
            last = obj
            time.sleep(0.4)

    def step(
        self,
        name: str,
        method: str,
        path: str,
        body: Any,
        *,
        manager: str,
        content_type: str = JSON,
        force: bool = False,
    ) -> Any:
        """One write, recorded. For POST the object is looked up by name afterwards."""
        target = path if method != "POST" else f"{path}/{body['metadata']['name']}"
        root = target.removesuffix("/status")
        body = copy.deepcopy(body)
        code, before = self.settled(root)
        query = {"fieldManager": manager}
        if content_type == APPLY:
            query["force"] = "true" if force else "false"
        status, answer = self.call(method, f"{path}?{urllib.parse.urlencode(query)}", body, content_type)
        self.steps.append(
            {
                "name": name,
                "method": method,
                "manager": manager,
                "force": force,
                "subresource": "status" if path.endswith("/status") else "",
                "content_type": content_type,
                "body": body,
                "before": before if code == 200 else None,
                "code": status,
                "after": answer,
            }
        )
        print(status, name, "" if status < 300 else answer.get("message"))
        return answer

    def apply(self, name: str, path: str, body: Any, manager: str, *, force: bool = False) -> Any:
        return self.step(name, "PATCH", path, body, manager=manager, content_type=APPLY, force=force)

    def merge(self, name: str, path: str, body: Any, manager: str) -> Any:
        return self.step(name, "PATCH", path, body, manager=manager, content_type=MERGE)


def meta(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, **more}


def config_map(name: str, data: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    obj: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name, **more)}
    if data is not None:
        obj["data"] = data
    return obj


def record_config_maps(s: Server) -> None:
    cms = f"{CORE}/configmaps"
    one = f"{cms}/one"
    s.step(
        "create a ConfigMap", "POST", cms, config_map("one", {"a": "1", "b": "2"}, labels={"x": "y"}), manager="alice"
    )
    live = s.call("GET", one)[1]
    live["data"]["b"] = "3"
    live["data"]["c"] = "4"
    s.step("update takes changed keys", "PUT", one, live, manager="bob")
    s.merge("merge patch removes a key", one, {"data": {"a": None}}, "carol")
    s.merge("a patch that changes nothing", one, {"data": {"b": "3"}}, "carol")
    time.sleep(1.1)
    s.apply("apply a new key", one, config_map("one", {"d": "5"}), "dave")
    s.apply("apply meets one conflict", one, config_map("one", {"b": "9", "d": "5"}), "dave")
    s.apply("apply meets several conflicts", one, config_map("one", {"b": "9", "c": "9"}, labels={"x": "z"}), "dave")
    s.apply("apply an equal value co-owns", one, config_map("one", {"b": "3", "d": "5"}), "dave")
    time.sleep(1.1)
    s.apply("apply again changes nothing", one, config_map("one", {"b": "3", "d": "5"}), "dave")
    s.apply("apply equal values as a new manager", one, config_map("one", {"d": "5"}), "erin")
    s.apply("apply conflicts with an applier", one, config_map("one", {"d": "6"}), "erin")
    s.apply("apply by force", one, config_map("one", {"b": "9", "d": "6"}), "erin", force=True)
    s.apply("apply without a key that I alone own", one, config_map("one", {"d": "6"}), "erin")
    s.apply("apply nothing", one, config_map("one"), "erin")
    s.apply("apply null", one, config_map("one", {"n": None}), "nil")
    s.apply("apply a map of nothing", one, config_map("one", {}), "empty")
    s.apply("apply a wrong type", one, config_map("one", {"n": 5}), "nil")
    s.apply("apply with managedFields", one, config_map("one", managedFields=[]), "nil")
    s.apply("apply with another apiVersion", one, {**config_map("one"), "apiVersion": "v2"}, "nil")
    s.merge("reset by empty list", one, {"metadata": {"managedFields": [{}]}}, "frank")
    s.merge("untracked update", one, {"data": {"z": "1"}}, "frank")
    s.apply("first apply on an untracked object", one, config_map("one", {"z": "1"}), "gina")
    live = s.call("GET", one)[1]
    live["metadata"]["managedFields"] = [e for e in live["metadata"]["managedFields"] if e["operation"] == "Apply"]
    s.step("explicit managedFields are honoured", "PUT", one, live, manager="gina")
    live = s.call("GET", one)[1]
    live["metadata"]["managedFields"] = [{"manager": "m", "operation": "Nonsense"}]
    live["data"]["q"] = "1"
    s.step("broken managedFields are ignored", "PUT", one, live, manager="gina")
    many = f"{cms}/many"
    s.step("create for many managers", "POST", cms, config_map("many", {"k0": "0"}), manager="m00")
    for i in range(1, 13):
        s.merge(f"manager number {i}", many, {"data": {f"k{i}": "1"}}, f"m{i:02}")


def record_metadata(s: Server) -> None:
    cms = f"{CORE}/configmaps"
    path = f"{cms}/metas"
    s.call("POST", cms, config_map("two"))
    uids = [s.call("GET", f"{cms}/{name}")[1]["metadata"]["uid"] for name in ("one", "two")]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": uids[0]}
    s.step(
        "create with all kinds of metadata",
        "POST",
        cms,
        config_map(
            "metas",
            annotations={"a": "b"},
            labels={},
            finalizers=["example.com/a", "example.com/b"],
            ownerReferences=[owner],
        ),
        manager="alice",
    )
    s.apply(
        "apply a finalizer and an owner",
        path,
        config_map(
            "metas",
            finalizers=["example.com/c"],
            ownerReferences=[{**owner, "name": "two", "uid": uids[1], "controller": True}],
        ),
        "dave",
    )
    s.apply("apply drops the finalizer", path, config_map("metas"), "dave")
    s.step(
        "json patch of a list",
        "PATCH",
        path,
        [{"op": "remove", "path": "/metadata/finalizers/0"}],
        manager="carol",
        content_type=JSON_PATCH,
    )
    live = s.call("GET", path)[1]
    live["metadata"]["finalizers"] = []
    live["metadata"].pop("ownerReferences")
    s.step("update clears lists", "PUT", path, live, manager="bob")


def pod_spec() -> dict[str, Any]:
    return {
        "containers": [
            {
                "name": "main",
                "image": "example/one",
                "command": ["a", "b"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 80, "protocol": "UDP"}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeSelector": {"x": "y"},
        "serviceAccountName": "default",
        "automountServiceAccountToken": False,
    }


def pod(name: str, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta(name, **more), "spec": spec}


def record_pods(s: Server) -> None:
    pods = f"{CORE}/pods"
    path = f"{pods}/p"
    s.step("create a Pod", "POST", pods, pod("p", pod_spec(), labels={"a": "b"}), manager="alice")
    image = {"spec": {"containers": [{"name": "main", "image": "example/two"}]}}
    s.step("strategic patch of an image", "PATCH", path, image, manager="bob", content_type=STRATEGIC)
    s.apply(
        "apply labels and an image that differs",
        path,
        pod("p", {"containers": [{"name": "main", "image": "example/three"}]}, labels={"c": "d"}),
        "dave",
    )
    s.apply(
        "apply labels and an image by force",
        path,
        pod("p", {"containers": [{"name": "main", "image": "example/three"}]}, labels={"c": "d"}),
        "dave",
        force=True,
    )
    s.apply(
        "apply as status",
        f"{path}/status",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta("p", labels={"ignored": "no"}),
            "status": {"conditions": [{"type": "Special", "status": "True"}], "message": "hello"},
        },
        "kubelet",
    )
    s.step(
        "strategic patch of the status",
        "PATCH",
        f"{path}/status",
        {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
        manager="kubelet",
        content_type=STRATEGIC,
    )
    s.apply(
        "apply the status against its owner",
        f"{path}/status",
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta("p"), "status": {"phase": "Failed"}},
        "other",
    )
    s.apply("apply a Pod from nothing", f"{pods}/q", pod("q", pod_spec(), labels={"a": "b"}), "dave")
    s.apply(
        "apply twice the same container",
        f"{pods}/r",
        pod("r", {"containers": [{"name": "x", "image": "i"}, {"name": "x", "image": "i"}]}),
        "dave",
    )
    s.apply(
        "apply an unknown field",
        f"{pods}/r",
        pod("r", {"bogus": 1, "containers": [{"name": "x", "image": "i"}]}),
        "dave",
    )
    s.apply("apply a list item without its key", f"{pods}/r", pod("r", {"containers": [{"image": "i"}]}), "dave")


def job(name: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": pod_spec() | {"restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta(name),
        "spec": {"suspend": True, "template": template, **spec},
    }


def record_jobs(s: Server) -> None:
    jobs = f"{BATCH}/jobs"
    s.step("create a Job", "POST", jobs, job("j"), manager="alice")
    part = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta("j"),
        "spec": {"parallelism": 3, "backoffLimit": 0},
    }
    s.apply("apply to a Job conflicts with its creator", f"{jobs}/j", part, "dave")
    part["spec"] = {"activeDeadlineSeconds": 77}
    s.apply("apply an unset field of a Job", f"{jobs}/j", part, "dave")
    applied = job("k", ttlSecondsAfterFinished=5, backoffLimit=3)
    s.apply("apply a Job from nothing", f"{jobs}/k", applied, "dave")
    del applied["spec"]["backoffLimit"]
    s.apply("apply without a field that has a default", f"{jobs}/k", applied, "dave")


def record_nested_lists(s: Server) -> None:
    """PodTemplates are the one built-in kind whose Pod spec may change freely."""
    templates = f"{CORE}/podtemplates"
    path = f"{templates}/pt"
    applied: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": meta("pt"),
        "template": {"spec": pod_spec()},
    }
    s.apply("apply a PodTemplate from nothing", path, applied, "dave")
    containers = applied["template"]["spec"]["containers"]
    containers[0]["env"] = [{"name": "B", "value": "2"}, {"name": "C", "value": "3"}]
    containers[0]["ports"] = [{"containerPort": 80, "protocol": "UDP"}]
    containers.append({"name": "side", "image": "example/side"})
    s.apply("apply replaces items of nested lists", path, applied, "dave")
    containers.reverse()
    s.apply("apply a new order", path, applied, "dave")
    patch = {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "D", "value": "4"}]}]}}}
    s.step("strategic patch adds an env", "PATCH", path, patch, manager="bob", content_type=STRATEGIC)
    containers.pop(0)
    del containers[0]["env"]
    s.apply("apply without containers and env that others extended", path, applied, "dave")
    del applied["template"]["spec"]["volumes"]
    del containers[0]["resources"]
    del containers[0]["volumeMounts"]
    s.apply("apply without whole branches", path, applied, "dave")
    applied["template"]["spec"]["containers"] = [{"name": "third", "image": "example/third"}]
    s.apply("apply another container set as somebody else", path, applied, "erin")
    live = s.call("GET", path)[1]
    for container in live["template"]["spec"]["containers"]:
        if container["name"] == "main":
            container.pop("env", None)
            container["image"] = "example/edited"
    live["template"]["spec"].pop("tolerations")
    s.step("update edits and removes", "PUT", path, live, manager="editor")


def train_job(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": meta(name),
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "suspend": True, **spec},
    }


def record_train_jobs(s: Server) -> None:
    path = f"{TRAINER}/trainjobs"
    trainer = {"numNodes": 2, "image": "example/one", "command": ["x"], "env": [{"name": "A", "value": "1"}]}
    s.step("create a TrainJob", "POST", path, train_job("t", trainer=trainer, labels={"l": "m"}), manager="alice")
    s.merge("merge patch a TrainJob", f"{path}/t", {"spec": {"suspend": False}}, "bob")
    s.apply("apply to a TrainJob conflicts", f"{path}/t", train_job("t", trainer={"numNodes": 3}), "dave")
    s.apply("apply a TrainJob from nothing", f"{path}/u", train_job("u", trainer=trainer), "dave")
    trainer["env"] = [{"name": "B", "value": "2"}]
    del trainer["command"]
    s.apply("apply a changed TrainJob", f"{path}/u", train_job("u", trainer=trainer), "dave")
    condition = {
        "type": "Complete",
        "status": "True",
        "reason": "JobsCompleted",
        "message": "done",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    s.merge(
        "merge patch the status of a TrainJob",
        f"{path}/u/status",
        {"status": {"conditions": [condition]}, "spec": {"suspend": False}},
        "controller",
    )
    s.apply(
        "apply a status against its owner",
        f"{path}/u/status",
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": meta("u"),
            "status": {"conditions": [{**condition, "message": "other"}]},
        },
        "other",
    )


def record_runtimes(s: Server) -> None:
    path = f"{TRAINER}/trainingruntimes"
    node: dict[str, Any] = {"name": "node", "template": {"spec": {"template": {"spec": pod_spec()}}}}
    runtime: dict[str, Any] = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": meta("rt", labels={"trainer.kubeflow.org/framework": "torch"}),
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [node]}}},
    }
    s.apply("apply a TrainingRuntime from nothing", f"{path}/rt", runtime, "dave")
    runtime["spec"]["mlPolicy"] = {"numNodes": 2, "torch": {}}
    pod_template = node["template"]["spec"]["template"]["spec"]
    pod_template["containers"][0]["env"] = [{"name": "C", "value": "3"}]
    pod_template["containers"][0]["command"] = ["c"]
    del pod_template["nodeSelector"]
    s.apply("apply a changed TrainingRuntime", f"{path}/rt", runtime, "dave")
    s.merge(
        "merge patch a TrainingRuntime",
        f"{path}/rt",
        {"spec": {"mlPolicy": {"numNodes": 5, "torch": None}}, "metadata": {"annotations": {"x": "y"}}},
        "bob",
    )
    runtime["spec"].pop("mlPolicy")
    s.apply("apply without a branch that others share", f"{path}/rt", runtime, "dave")


def record_other_kinds(s: Server) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta("s"),
        "spec": {
            "clusterIP": "None",
            "selector": {"a": "b"},
            "ports": [{"port": 1, "name": "x"}, {"port": 1, "protocol": "UDP", "name": "y"}],
        },
    }
    s.step("create a Service", "POST", f"{CORE}/services", service, manager="alice")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta("s"), "stringData": {"a": "b"}, "type": "Opaque"}
    s.step("create a Secret", "POST", f"{CORE}/secrets", secret, manager="alice")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": meta("r"),
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    s.step("create a Role", "POST", f"{RBAC}/roles", role, manager="alice")
    s.apply("apply a Role", f"{RBAC}/roles/r", role, "dave")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta("q"), "spec": {"hard": {"pods": "5"}}}
    s.step("create a ResourceQuota", "POST", f"{CORE}/resourcequotas", quota, manager="alice")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ownership-two"}}
    s.step("create a Namespace", "POST", "/api/v1/namespaces", namespace, manager="alice")
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta("js"),
        "spec": {
            "suspend": True,
            "replicatedJobs": [
                {
                    "name": "node",
                    "replicas": 1,
                    "template": {"spec": {"template": {"spec": pod_spec() | {"restartPolicy": "Never"}}}},
                }
            ],
        },
    }
    s.step("create a JobSet", "POST", f"{JOBSET}/jobsets", job_set, manager="alice")
    s.apply("apply a JobSet", f"{JOBSET}/jobsets/js2", {**job_set, "metadata": meta("js2")}, "dave")


def main() -> None:
    server = Server()
    server.call(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    )
    time.sleep(2)
    record_config_maps(server)
    record_metadata(server)
    record_pods(server)
    record_jobs(server)
    record_nested_lists(server)
    record_train_jobs(server)
    record_runtimes(server)
    record_other_kinds(server)
    lines = (json.dumps(step, sort_keys=True, separators=(",", ":")) for step in server.steps)
    Path(sys.argv[1]).write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
