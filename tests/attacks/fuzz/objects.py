"""Objects that a server takes: what the fuzzer bends. Small, and such that no Pod runs for long."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.attacks.fuzz.words import TEXTS
from trainmaster.api.v1jobs.frameworks import API_VERSION, FRAMEWORKS, V1Framework

CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": "plain",
    "command": ["true"],
    "env": [{"name": "A", "value": "b"}, {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}},
    "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a"}],
    "workingDir": "/v",
    "ports": [{"containerPort": 80, "name": "p"}],
}
TERM: dict[str, Any] = {
    "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}, {"key": "b", "operator": "Gt", "values": ["1"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["local"]}],
}
POD_SPEC: dict[str, Any] = {
    "restartPolicy": "Never",
    "containers": [CONTAINER],
    "hostname": "a",
    "subdomain": "b",
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"}],
    "terminationGracePeriodSeconds": 0,
    "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "c", "configMap": {"name": "c"}}],
}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}
JOB_SPEC: dict[str, Any] = {
    "parallelism": 1,
    "completions": 1,
    "backoffLimit": 0,
    "template": TEMPLATE,
    "suspend": True,
}
JOBS: list[Any] = [{"name": "node", "replicas": 1, "template": {"spec": JOB_SPEC}}]


def _build_v1_job(framework: V1Framework) -> tuple[str, str, str, dict[str, Any]]:
    """A suspended job of one kind of training-operator, with every field that its controller reads."""
    containers = [
        {**CONTAINER, "name": framework.container, "ports": [{"containerPort": 80, "name": framework.port_name}]}
    ]
    replica = {
        "replicas": 1,
        "restartPolicy": "ExitCode",
        "template": {**TEMPLATE, "spec": {**POD_SPEC, "containers": containers}},
    }
    policy = {
        "suspend": True,
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": 9,
        "activeDeadlineSeconds": 9,
        "backoffLimit": 3,
        "schedulingPolicy": {
            "minAvailable": 1,
            "queue": "q",
            "priorityClass": "p",
            "minResources": {"cpu": "1"},
            "scheduleTimeoutSeconds": 5,
        },
    }
    spec = {
        framework.replicas_field: dict.fromkeys(framework.types, replica),
        "runPolicy": policy,
        **_V1_MORE.get(framework.kind, {}),
    }
    return API_VERSION, framework.kind, f"/apis/{API_VERSION}", {"spec": spec}


_V1_MORE: dict[str, dict[str, Any]] = {
    "PyTorchJob": {"nprocPerNode": "2", "elasticPolicy": {"minReplicas": 1, "maxReplicas": 2, "rdzvBackend": "c10d",
                                                         "rdzvConf": [{"key": "a", "value": "b"}], "maxRestarts": 3}},
    "TFJob": {"successPolicy": "AllWorkers", "enableDynamicWorker": True},
    "MPIJob": {"slotsPerWorker": 2, "mainContainer": "mpi"},
    "MXJob": {"jobMode": "MXTrain"},
}  # fmt: skip
BODIES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    # plural: apiVersion, kind, path of its group, the rest of the object
    "configmaps": ("v1", "ConfigMap", "/api/v1", {"data": {"a": "b"}, "binaryData": {"c": "YQ=="}}),
    "secrets": ("v1", "Secret", "/api/v1", {"type": "Opaque", "data": {"a": "YQ=="}, "stringData": {"b": "c"}}),
    "pods": ("v1", "Pod", "/api/v1", {"spec": POD_SPEC}),
    "services": ("v1", "Service", "/api/v1", {"spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": []}}),
    "events": ("v1", "Event", "/api/v1", {"involvedObject": {"kind": "Pod", "name": "a"}, "message": "m", "reason": "R"}),
    "serviceaccounts": ("v1", "ServiceAccount", "/api/v1", {}),
    "persistentvolumeclaims": (
        "v1", "PersistentVolumeClaim", "/api/v1",
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}},
    ),
    "resourcequotas": ("v1", "ResourceQuota", "/api/v1", {"spec": {"hard": {"pods": "5", "requests.cpu": "1"}}}),
    "limitranges": ("v1", "LimitRange", "/api/v1", {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}),
    "jobs": ("batch/v1", "Job", "/apis/batch/v1", {"spec": JOB_SPEC}),
    "leases": ("coordination.k8s.io/v1", "Lease", "/apis/coordination.k8s.io/v1",
               {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 5, "renewTime": "2026-01-01T00:00:00.000000Z"}}),
    "roles": ("rbac.authorization.k8s.io/v1", "Role", "/apis/rbac.authorization.k8s.io/v1",
              {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
    "jobsets": ("jobset.x-k8s.io/v1alpha2", "JobSet", "/apis/jobset.x-k8s.io/v1alpha2",
                {"spec": {"suspend": True, "replicatedJobs": JOBS, "successPolicy": {"operator": "All"}}}),
    "trainjobs": ("trainer.kubeflow.org/v1alpha1", "TrainJob", "/apis/trainer.kubeflow.org/v1alpha1",
                  {"spec": {"suspend": True, "runtimeRef": {"name": "torch-distributed"},
                            "trainer": {"numNodes": 1, "env": [{"name": "A", "value": "b"}], "numProcPerNode": "auto",
                                        "resourcesPerNode": {"limits": {"nvidia.com/gpu": "1", "cpu": "1"}}},
                            "podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {}}}]}}),
    "trainingruntimes": ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", "/apis/trainer.kubeflow.org/v1alpha1",
                         {"spec": {"mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
                                   "template": {"spec": {"replicatedJobs": JOBS}}}}),
    "selfsubjectaccessreviews": (
        "authorization.k8s.io/v1", "SelfSubjectAccessReview", "/apis/authorization.k8s.io/v1",
        {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"}}},
    ),
    **{framework.plural: _build_v1_job(framework) for framework in FRAMEWORKS},
    "tokenreviews": ("authentication.k8s.io/v1", "TokenReview", "/apis/authentication.k8s.io/v1", {"spec": {"token": "a.b.c"}}),
}  # fmt: skip
CLUSTER_WIDE = frozenset({"selfsubjectaccessreviews", "tokenreviews"})
PERSISTENT = tuple(plural for plural in BODIES if plural not in CLUSTER_WIDE)

ANNOTATIONS = (
    "trainmaster.dev/packages", "trainmaster.dev/environment", "trainmaster.dev/warm", "trainmaster.dev/code",
    "trainmaster.dev/unix-user", "trainmaster.dev/devices", "trainer.kubeflow.org/x", "batch.kubernetes.io/job-tracking",
    "jobset.sigs.k8s.io/exclusive-topology", "kubectl.kubernetes.io/last-applied-configuration",
)  # fmt: skip


def build_object(random: Random, plural: str, name: str) -> dict[str, Any]:
    api_version, kind, _, rest = BODIES[plural]
    metadata: dict[str, Any] = {"name": name, "labels": {"fuzz": "yes"}, "annotations": {"a": "b"}}
    if random.random() < 0.2:
        metadata["annotations"][random.choice(ANNOTATIONS)] = random.choice(TEXTS)
    if random.random() < 0.1:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}]
    if random.random() < 0.1:
        fields = {"f:data": {"f:a": {}, ".": {}}, "f:metadata": {"f:labels": {"f:a": {}}}}
        entry = {"manager": "m", "operation": "Update", "apiVersion": api_version, "fieldsType": "FieldsV1"}
        metadata["managedFields"] = [{**entry, "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


PATHS = (
    "a", "a/b", "../a", "/a", "a/../b", "a/../../b", ".", "..", "", "a//b", "./a", "a/.", "~", "$HOME", "$(A)", "a\x00b",
    "a\nb", "a" * 300, "a/" * 100, "\\\\host\\a", "C:a", "proc/self/root", "/proc/self/root", "/dev/mem", "/sys", "/etc",
    "/", "//", "/v/../..", "\u2215etc", "..\u2044..", "....//", "%2e%2e", "a\r", "-rf", "*", "?", "[a]", "\ud800", "a ", " a",
)  # fmt: skip


def build_pod_with_paths(random: Random, name: str) -> dict[str, Any]:
    """Every place of a Pod that names a file, with something that is hardly one."""

    def pick() -> str:
        return random.choice(PATHS)

    volume = random.choice(
        (
            {"emptyDir": {"medium": random.choice(("", "Memory", pick()))}},
            {
                "hostPath": {
                    "path": pick(),
                    "type": random.choice(("", "Directory", "DirectoryOrCreate", "File", pick())),
                }
            },
            {
                "configMap": {
                    "name": "c",
                    "items": [{"key": pick(), "path": pick(), "mode": random.choice((0, 511, 4095))}],
                }
            },
            {"secret": {"secretName": pick(), "items": [{"key": pick(), "path": pick()}]}},
            {"persistentVolumeClaim": {"claimName": pick()}},
            {"downwardAPI": {"items": [{"path": pick(), "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"projected": {"sources": [{"serviceAccountToken": {"path": pick()}}, {"configMap": {"name": pick()}}]}},
            {"csi": {"driver": pick()}},
        )
    )
    mount: dict[str, Any] = {"name": "v", "mountPath": pick()}
    mount[random.choice(("subPath", "subPathExpr", "mountPropagation", "readOnly"))] = pick()
    container = {**CONTAINER, "volumeMounts": [mount], "workingDir": pick(), "terminationMessagePath": pick()}
    spec = {**POD_SPEC, "containers": [container], "volumes": [{"name": "v", **volume}], "hostname": pick()}
    spec["subdomain"] = pick()
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
