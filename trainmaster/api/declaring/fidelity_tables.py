"""The fidelity class of every field, one table per kind. See `fidelity` for how tables are read.

A value is a class, a class with a note for users, or a table for the fields below (whose key "" is the class of the
field itself). Pod templates occur in five kinds and share one table. When upstream's schema gets a new field, a test
fails until it has an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, Union

from trainmaster.api.declaring.kinds import Fidelity

Rule: TypeAlias = Fidelity | tuple[Fidelity, str]
Table: TypeAlias = Mapping[str, Union[Rule, "Table"]]

H = Fidelity.HONOURED
A = Fidelity.APPROXIMATED
R = Fidelity.REFUSED
N = Fidelity.IGNORED_BY_DESIGN

_NO_CLOUD = (R, "needs a cloud or storage provider")
_NO_IMAGE = "images are not pulled, but mapped to Python environments"
_OBJECT: Table = {"apiVersion": H, "kind": H, "metadata": H}

SECURITY_CONTEXT: Table = {
    "allowPrivilegeEscalation": (A, "off by default, where the node can enforce it"),
    "appArmorProfile": R,
    "capabilities": (A, "can be dropped, not added"),
    "privileged": (R, "Pods have only the privileges of their user; `trainmaster doctor` shows the isolation level"),
    "procMount": R,
    "readOnlyRootFilesystem": (A, "in a sandbox; not at the plain level, which reports it"),
    "runAsGroup": (A, "needs a server that runs as root"),
    "runAsNonRoot": H,
    "runAsUser": (A, "needs a server that runs as root"),
    "seLinuxOptions": R,
    "seccompProfile": (A, "RuntimeDefault becomes the node's own rules; Localhost is refused"),
    "windowsOptions": R,
}

CONTAINER: Table = {
    "args": H,
    "command": H,
    "env": H,
    "envFrom": H,
    "image": (A, _NO_IMAGE),
    "imagePullPolicy": (N, _NO_IMAGE),
    "lifecycle": {"postStart": H, "preStop": H, "stopSignal": H},
    "livenessProbe": H,
    "name": H,
    "ports": {
        "containerPort": H,
        "hostIP": (R, "a Pod has its own address; use port-forward"),
        "hostPort": (R, "a Pod has its own address; use port-forward"),
        "name": H,
        "protocol": H,
    },
    "readinessProbe": H,
    "resizePolicy": (R, "running Pods are not resized"),
    "resources": {
        "claims": (R, "no dynamic resource allocation"),
        "limits": (A, "CPU, memory and devices; enforcement depends on the machine and is shown on the Node"),
        "requests": H,
    },
    "restartPolicy": (A, "Always, for sidecars in init containers; otherwise refused"),
    "restartPolicyRules": R,
    "securityContext": SECURITY_CONTEXT,
    "startupProbe": H,
    "stdin": H,
    "stdinOnce": H,
    "terminationMessagePath": (
        A,
        "as on a cluster; the plain level rewrites it in command, arguments and variables, and sets "
        "TRAINMASTER_TERMINATION_LOG to the file",
    ),
    "terminationMessagePolicy": H,
    "tty": H,
    "volumeDevices": (R, "no block devices"),
    "volumeMounts": {
        "mountPath": H,
        "mountPropagation": (A, "None; others are refused"),
        "name": H,
        "readOnly": H,
        "recursiveReadOnly": (A, "Disabled; others are refused"),
        "subPath": H,
        "subPathExpr": H,
    },
    "workingDir": H,
}

VOLUME: Table = {
    "awsElasticBlockStore": _NO_CLOUD,
    "azureDisk": _NO_CLOUD,
    "azureFile": _NO_CLOUD,
    "cephfs": _NO_CLOUD,
    "cinder": _NO_CLOUD,
    "configMap": H,
    "csi": {
        "driver": (A, "code.trainmaster.dev, the code of a job (docs/code.md); others are refused"),
        "fsType": R,
        "nodePublishSecretRef": R,
        "readOnly": H,
        "volumeAttributes": H,
    },
    "downwardAPI": H,
    "emptyDir": {
        "medium": H,
        "sizeLimit": (A, "enforced by the kernel at /dev/shm; elsewhere measured, and a Pod over it is evicted"),
    },
    "ephemeral": (A, "a directory that is deleted with the Pod"),
    "fc": _NO_CLOUD,
    "flexVolume": _NO_CLOUD,
    "flocker": _NO_CLOUD,
    "gcePersistentDisk": _NO_CLOUD,
    "gitRepo": (R, "clone in an init container, or upload the code with `trainmaster run`"),
    "glusterfs": _NO_CLOUD,
    "hostPath": (H, "unless the setting node.host_paths forbids it"),
    "image": R,
    "iscsi": _NO_CLOUD,
    "name": H,
    "nfs": _NO_CLOUD,
    "persistentVolumeClaim": (A, "a directory in the home"),
    "photonPersistentDisk": _NO_CLOUD,
    "portworxVolume": _NO_CLOUD,
    "projected": {
        "defaultMode": H,
        "sources": {
            "clusterTrustBundle": R,
            "configMap": H,
            "downwardAPI": H,
            "podCertificate": R,
            "secret": H,
            "serviceAccountToken": H,
        },
    },
    "quobyte": _NO_CLOUD,
    "rbd": _NO_CLOUD,
    "scaleIO": _NO_CLOUD,
    "secret": H,
    "storageos": _NO_CLOUD,
    "vsphereVolume": _NO_CLOUD,
}

POD_SECURITY: Table = {
    "appArmorProfile": R,
    "fsGroup": (A, "needs a server that runs as root"),
    "fsGroupChangePolicy": (N, "files belong to the group from the start"),
    "runAsGroup": (A, "needs a server that runs as root"),
    "runAsNonRoot": H,
    "runAsUser": (A, "needs a server that runs as root"),
    "seLinuxChangePolicy": R,
    "seLinuxOptions": R,
    "seccompProfile": (A, "RuntimeDefault becomes the node's own rules; Localhost is refused"),
    "supplementalGroups": (A, "needs a server that runs as root"),
    "supplementalGroupsPolicy": R,
    "sysctls": (R, "set them on the machine"),
    "windowsOptions": R,
}

POD_SPEC: Table = {
    "activeDeadlineSeconds": H,
    "affinity": (A, "nodeAffinity with the one Node; a Pod with required podAffinity or podAntiAffinity waits"),
    "automountServiceAccountToken": H,
    "containers": CONTAINER,
    "dnsConfig": (R, "names are resolved by the machine and by Services"),
    "dnsPolicy": (A, "names of peers and Services; other names as on the machine"),
    "enableServiceLinks": (A, "only the variables of the API server: other Services have no virtual address"),
    "ephemeralContainers": (R, "use `kubectl exec`"),
    "hostAliases": H,
    "hostIPC": (R, "ranks of one Pod share memory through /dev/shm"),
    "hostNetwork": (H, "for the owner; tenants are refused"),
    "hostPID": (R, "Pods see their own processes; use `trainmaster exec`"),
    "hostUsers": R,
    "hostname": H,
    "hostnameOverride": R,
    "imagePullSecrets": (N, _NO_IMAGE),
    "initContainers": CONTAINER,
    "nodeName": H,
    "nodeSelector": H,
    "os": (A, "linux only"),
    "overhead": R,
    "preemptionPolicy": (A, "priority orders the queue; running Pods are not preempted"),
    "priority": H,
    "priorityClassName": H,
    "readinessGates": H,
    "resourceClaims": (R, "no dynamic resource allocation"),
    "resources": (R, "set resources on containers"),
    "restartPolicy": H,
    "runtimeClassName": (R, "there is only one way to run Pods here"),
    "schedulerName": (A, "a Pod for another scheduler stays Pending"),
    "schedulingGates": H,
    "schedulingGroup": (R, "gangs come from the JobSet"),
    "securityContext": POD_SECURITY,
    "serviceAccount": (H, "the older name of serviceAccountName"),
    "serviceAccountName": H,
    "setHostnameAsFQDN": H,
    "shareProcessNamespace": (A, "the containers of a Pod always share it"),
    "subdomain": H,
    "terminationGracePeriodSeconds": H,
    "tolerations": H,
    "topologySpreadConstraints": (A, "there is only one node, which must have the label"),
    "volumes": VOLUME,
}

POD_TEMPLATE: Table = {"metadata": H, "spec": POD_SPEC}

JOB_SPEC: Table = {
    "activeDeadlineSeconds": H,
    "backoffLimit": H,
    "backoffLimitPerIndex": H,
    "completionMode": H,
    "completions": H,
    "managedBy": H,
    "manualSelector": H,
    "maxFailedIndexes": H,
    "parallelism": H,
    "podFailurePolicy": H,
    "podReplacementPolicy": H,
    "selector": H,
    "successPolicy": H,
    "suspend": H,
    "template": POD_TEMPLATE,
    "ttlSecondsAfterFinished": H,
}

JOB_SET_SPEC: Table = {
    "coordinator": H,
    "failurePolicy": {
        "maxRestarts": H,
        "restartStrategy": (A, "InPlaceRestart is refused"),
        "rules": H,
    },
    "managedBy": H,
    "network": H,
    "replicatedJobs": {
        "dependsOn": H,
        "groupName": H,
        "name": H,
        "replicas": H,
        "template": {"metadata": H, "spec": JOB_SPEC},
    },
    "startupPolicy": H,
    "successPolicy": H,
    "suspend": H,
    "ttlSecondsAfterFinished": (H, "inside a runtime, it does not make the TrainJob run again"),
    "volumeClaimPolicies": (A, "claims are directories in the home"),
}

RUNTIME_SPEC: Table = {
    "activeDeadlineSeconds": H,
    "mlPolicy": {
        "flux": (R, "no Flux broker"),
        "jax": H,
        "mpi": H,
        "numNodes": H,
        "torch": {
            "": H,
            "elasticPolicy": {
                "maxNodes": H,
                "maxRestarts": H,
                "metrics": (R, "jobs are not scaled automatically"),
                "minNodes": H,
            },
            "envInjection": H,
            "numProcPerNode": (H, "the field of Trainer 2.1"),
        },
        "xgboost": H,
    },
    "podGroupPolicy": (A, "only whole gangs are admitted; the timeouts of other schedulers have no effect"),
    "runPolicy": {"": H, "activeDeadlineSeconds": H, "ttlSecondsAfterFinished": H},
    "template": {"metadata": H, "spec": JOB_SET_SPEC},
    "ttlSecondsAfterFinished": H,
}

OVERRIDE_SPEC: Table = {
    "affinity": POD_SPEC["affinity"],
    "containers": {"env": H, "name": H, "volumeMounts": CONTAINER["volumeMounts"]},
    "imagePullSecrets": POD_SPEC["imagePullSecrets"],
    "initContainers": {"env": H, "name": H, "volumeMounts": CONTAINER["volumeMounts"]},
    "nodeSelector": H,
    "schedulingGates": H,
    "serviceAccountName": H,
    "tolerations": H,
    "volumes": VOLUME,
}
_PATCH_CONTAINER: Table = {
    "env": H,
    "name": H,
    "securityContext": SECURITY_CONTEXT,
    "volumeMounts": CONTAINER["volumeMounts"],
}
PATCH_SPEC: Table = {
    **OVERRIDE_SPEC,
    "containers": _PATCH_CONTAINER,
    "initContainers": _PATCH_CONTAINER,
    "securityContext": POD_SECURITY,
    "terminationGracePeriodSeconds": H,
}
_PATCH_JOBS: Table = {
    "name": H,
    "template": {"metadata": H, "spec": {"template": {"metadata": H, "spec": PATCH_SPEC}}},
}

TRAIN_JOB_SPEC: Table = {
    "activeDeadlineSeconds": H,
    "annotations": (H, "the field of Trainer 2.1"),
    "cleanupPolicy": {
        "": (H, "an alternative to ttlSecondsAfterFinished"),
        "ttlSecondsAfterFinished": H,
    },
    "initializer": H,
    "labels": (H, "the field of Trainer 2.1"),
    "managedBy": (A, "a TrainJob that is managed by another controller is not processed"),
    "podSpecOverrides": {
        "": (H, "the field of Trainer 2.0"),
        "targetJobs": H,
        **{name: rule for name, rule in OVERRIDE_SPEC.items() if name not in ("affinity", "imagePullSecrets")},
    },
    "podTemplateOverrides": {
        "": (H, "the field of Trainer 2.1"),
        "metadata": H,
        "spec": OVERRIDE_SPEC,
        "targetJobs": H,
    },
    "runtimePatches": {
        "manager": H,
        "time": H,
        "trainingRuntimeSpec": {"template": {"metadata": H, "spec": {"replicatedJobs": _PATCH_JOBS}}},
    },
    "runtimeRef": H,
    "suspend": H,
    "trainer": {
        "args": H,
        "command": H,
        "env": H,
        "image": (A, _NO_IMAGE),
        "numNodes": H,
        "numProcPerNode": H,
        "resourcesPerNode": CONTAINER["resources"],
    },
    "ttlSecondsAfterFinished": H,
}

SERVICE_SPEC: Table = {
    "allocateLoadBalancerNodePorts": R,
    "clusterIP": (A, "the name of a Service resolves to the addresses of its Pods; there is no virtual address"),
    "clusterIPs": (A, "as clusterIP"),
    "externalIPs": R,
    "externalName": R,
    "externalTrafficPolicy": (N, "there is only one node"),
    "healthCheckNodePort": R,
    "internalTrafficPolicy": (N, "there is only one node"),
    "ipFamilies": (A, "IPv4"),
    "ipFamilyPolicy": (A, "single stack"),
    "loadBalancerClass": R,
    "loadBalancerIP": R,
    "loadBalancerSourceRanges": R,
    "ports": {"appProtocol": N, "name": H, "nodePort": R, "port": H, "protocol": H, "targetPort": H},
    "publishNotReadyAddresses": H,
    "selector": H,
    "sessionAffinity": R,
    "sessionAffinityConfig": R,
    "trafficDistribution": (N, "there is only one node"),
    "type": (A, "ClusterIP; others are refused"),
}

_CLOUD_SOURCES = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume", "flocker",
    "gcePersistentDisk", "glusterfs", "iscsi", "nfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd",
    "scaleIO", "storageos", "vsphereVolume",
)  # fmt: skip
_ACCESS: Table = {**_OBJECT, "spec": H, "status": H}
_RUNTIME: Table = {**_OBJECT, "spec": RUNTIME_SPEC}

TABLES: Mapping[tuple[str, str], Table] = {
    ("", "ConfigMap"): {**_OBJECT, "binaryData": H, "data": H, "immutable": H},
    ("", "Endpoints"): {**_OBJECT, "subsets": H},
    ("", "Event"): {
        **_OBJECT,
        **dict.fromkeys(("action", "count", "eventTime", "firstTimestamp", "involvedObject", "lastTimestamp"), H),
        **dict.fromkeys(("message", "reason", "related", "reportingComponent", "reportingInstance", "series"), H),
        **dict.fromkeys(("source", "type"), H),
    },
    ("", "LimitRange"): {**_OBJECT, "spec": H},
    ("", "Namespace"): {**_OBJECT, "spec": H, "status": H},
    ("", "Node"): {
        **_OBJECT,
        "spec": {
            "configSource": N,
            "externalID": N,
            "podCIDR": N,
            "podCIDRs": N,
            "providerID": N,
            "taints": H,
            "unschedulable": H,
        },
        "status": H,
    },
    ("", "PersistentVolumeClaim"): {
        **_OBJECT,
        "spec": {
            "accessModes": (A, "all modes are allowed, because there is only one machine"),
            "dataSource": R,
            "dataSourceRef": R,
            "resources": (A, "the size is recorded, not enforced"),
            "selector": R,
            "storageClassName": (A, "`local-directory`, or volumes that you create yourself"),
            "volumeAttributesClassName": R,
            "volumeMode": (A, "Filesystem"),
            "volumeName": H,
        },
        "status": H,
    },
    ("", "PersistentVolume"): {
        **_OBJECT,
        "spec": {
            **dict.fromkeys(_CLOUD_SOURCES, _NO_CLOUD),
            "accessModes": (A, "all modes are allowed, because there is only one machine"),
            "capacity": (A, "recorded, not enforced"),
            "claimRef": H,
            "csi": (A, "only our own driver, whose handle is a directory in the home"),
            "hostPath": H,
            "local": (A, "as hostPath"),
            "mountOptions": R,
            "nodeAffinity": (N, "there is only one node"),
            "persistentVolumeReclaimPolicy": (A, "Delete removes directories in the home; others are kept"),
            "storageClassName": H,
            "volumeAttributesClassName": R,
            "volumeMode": (A, "Filesystem"),
        },
        "status": H,
    },
    ("", "Pod"): {**_OBJECT, "spec": POD_SPEC, "status": H},
    ("", "ResourceQuota"): {
        **_OBJECT,
        "spec": {"hard": H, "scopeSelector": R, "scopes": R},
        "status": H,
    },
    ("", "Secret"): {**_OBJECT, "data": H, "immutable": H, "stringData": H, "type": H},
    ("", "Service"): {**_OBJECT, "spec": SERVICE_SPEC, "status": H},
    ("", "ServiceAccount"): {
        **_OBJECT,
        "automountServiceAccountToken": H,
        "imagePullSecrets": (N, _NO_IMAGE),
        "secrets": N,
    },
    ("events.k8s.io", "Event"): {
        **_OBJECT,
        **dict.fromkeys(("action", "deprecatedCount", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"), H),
        **dict.fromkeys(("deprecatedSource", "eventTime", "note", "reason", "regarding", "related"), H),
        **dict.fromkeys(("reportingController", "reportingInstance", "series", "type"), H),
    },
    ("authentication.k8s.io", "SelfSubjectReview"): {**_OBJECT, "status": H},
    ("authentication.k8s.io", "TokenReview"): _ACCESS,
    ("authorization.k8s.io", "LocalSubjectAccessReview"): _ACCESS,
    ("authorization.k8s.io", "SelfSubjectAccessReview"): _ACCESS,
    ("authorization.k8s.io", "SelfSubjectRulesReview"): _ACCESS,
    ("authorization.k8s.io", "SubjectAccessReview"): _ACCESS,
    ("batch", "Job"): {**_OBJECT, "spec": JOB_SPEC, "status": H},
    ("rbac.authorization.k8s.io", "ClusterRole"): {**_OBJECT, "aggregationRule": H, "rules": H},
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): {**_OBJECT, "roleRef": H, "subjects": H},
    ("rbac.authorization.k8s.io", "Role"): {**_OBJECT, "rules": H},
    ("rbac.authorization.k8s.io", "RoleBinding"): {**_OBJECT, "roleRef": H, "subjects": H},
    ("apiextensions.k8s.io", "CustomResourceDefinition"): {
        **_OBJECT,
        "spec": (H, "readable; the custom kinds are built in"),
        "status": H,
    },
    ("metrics.k8s.io", "NodeMetrics"): {**_OBJECT, "timestamp": H, "usage": H, "window": H},
    ("metrics.k8s.io", "PodMetrics"): {**_OBJECT, "containers": H, "timestamp": H, "window": H},
    ("scheduling.k8s.io", "PriorityClass"): {
        **_OBJECT,
        "description": H,
        "globalDefault": H,
        "preemptionPolicy": H,
        "value": H,
    },
    ("storage.k8s.io", "StorageClass"): {
        **_OBJECT,
        "allowVolumeExpansion": (A, "always: sizes are not enforced"),
        "allowedTopologies": (N, "there is only one node"),
        "mountOptions": R,
        "parameters": R,
        "provisioner": (
            A,
            "volumes are created for our own provisioner; claims of others wait for a volume that you create",
        ),
        "reclaimPolicy": H,
        "volumeBindingMode": (A, "Immediate"),
    },
    ("coordination.k8s.io", "Lease"): {**_OBJECT, "spec": H},
    ("jobset.x-k8s.io", "JobSet"): {**_OBJECT, "spec": JOB_SET_SPEC, "status": H},
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): _RUNTIME,
    ("trainer.kubeflow.org", "TrainingRuntime"): _RUNTIME,
    ("trainer.kubeflow.org", "TrainJob"): {**_OBJECT, "spec": TRAIN_JOB_SPEC, "status": H},
}

SHARED: Mapping[str, Table] = {
    "Runtime spec": RUNTIME_SPEC,
    "JobSet spec": JOB_SET_SPEC,
    "Job spec": JOB_SPEC,
    "Pod spec": POD_SPEC,
    "Container": CONTAINER,
    "Volume": VOLUME,
    "Security context of a Pod": POD_SECURITY,
    "Security context of a container": SECURITY_CONTEXT,
    "Override of a Pod spec": OVERRIDE_SPEC,
    "Patch of a Pod spec": PATCH_SPEC,
}
"""Tables that occur in several places, by the name under which the documentation shows each once."""
