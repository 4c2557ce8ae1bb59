"""The fidelity classes of parts that several kinds share, or that are long. See `fidelity` for how tables are read.

A value is a class, a class with a note for users, or a table for the fields below (whose key "" is the class of the
field itself). Each kind declares its own table (`Kind.fidelity`) from these. When upstream's schema gets a new field, a
test fails until it has an entry.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.api.declaring.kinds import Fidelity, FidelityTable

H = Fidelity.HONOURED
A = Fidelity.APPROXIMATED
R = Fidelity.REFUSED
N = Fidelity.IGNORED_BY_DESIGN

NO_CLOUD = (R, "needs a cloud or storage provider")
NO_IMAGE = "images are not pulled, but mapped to Python environments"
OBJECT: FidelityTable = {"apiVersion": H, "kind": H, "metadata": H}

SECURITY_CONTEXT: FidelityTable = {
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

CONTAINER: FidelityTable = {
    "args": H,
    "command": H,
    "env": H,
    "envFrom": H,
    "image": (A, NO_IMAGE),
    "imagePullPolicy": (N, NO_IMAGE),
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
        "requests": (H, "reserved for the job; with the setting node.overcommit jobs share CPUs"),
    },
    "restartPolicy": (A, "Always, for sidecars in init containers; otherwise refused"),
    "restartPolicyRules": R,
    "securityContext": SECURITY_CONTEXT,
    "startupProbe": H,
    "stdin": (H, "the first client to attach also gets the last 64 KiB that were printed before"),
    "stdinOnce": (H, "a server that is stopped or killed is no client: the input stays open for the next one"),
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

VOLUME: FidelityTable = {
    "awsElasticBlockStore": NO_CLOUD,
    "azureDisk": NO_CLOUD,
    "azureFile": NO_CLOUD,
    "cephfs": NO_CLOUD,
    "cinder": NO_CLOUD,
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
    "fc": NO_CLOUD,
    "flexVolume": NO_CLOUD,
    "flocker": NO_CLOUD,
    "gcePersistentDisk": NO_CLOUD,
    "gitRepo": (R, "clone in an init container, or upload the code with `trainmaster run`"),
    "glusterfs": NO_CLOUD,
    "hostPath": (H, "unless the setting node.host_paths forbids it"),
    "image": R,
    "iscsi": NO_CLOUD,
    "name": H,
    "nfs": NO_CLOUD,
    "persistentVolumeClaim": (A, "a directory in the home"),
    "photonPersistentDisk": NO_CLOUD,
    "portworxVolume": NO_CLOUD,
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
    "quobyte": NO_CLOUD,
    "rbd": NO_CLOUD,
    "scaleIO": NO_CLOUD,
    "secret": H,
    "storageos": NO_CLOUD,
    "vsphereVolume": NO_CLOUD,
}

POD_SECURITY: FidelityTable = {
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

POD_SPEC: FidelityTable = {
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
    "imagePullSecrets": (N, NO_IMAGE),
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
    "schedulerName": (
        A,
        "`volcano` and `scheduler-plugins-scheduler` are the same as the default; "
        "a Pod for another scheduler stays Pending",
    ),
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

POD_TEMPLATE: FidelityTable = {"metadata": H, "spec": POD_SPEC}

JOB_SPEC: FidelityTable = {
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

JOB_SET_SPEC: FidelityTable = {
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

RUNTIME_SPEC: FidelityTable = {
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

OVERRIDE_SPEC: FidelityTable = {
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
_PATCH_CONTAINER: FidelityTable = {
    "env": H,
    "name": H,
    "securityContext": SECURITY_CONTEXT,
    "volumeMounts": CONTAINER["volumeMounts"],
}
PATCH_SPEC: FidelityTable = {
    **OVERRIDE_SPEC,
    "containers": _PATCH_CONTAINER,
    "initContainers": _PATCH_CONTAINER,
    "securityContext": POD_SECURITY,
    "terminationGracePeriodSeconds": H,
}
_PATCH_JOBS: FidelityTable = {
    "name": H,
    "template": {"metadata": H, "spec": {"template": {"metadata": H, "spec": PATCH_SPEC}}},
}

TRAIN_JOB_SPEC: FidelityTable = {
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
        "image": (A, NO_IMAGE),
        "numNodes": H,
        "numProcPerNode": H,
        "resourcesPerNode": CONTAINER["resources"],
    },
    "ttlSecondsAfterFinished": H,
}

_REPLICA: FidelityTable = {"replicas": H, "restartPolicy": H, "template": POD_TEMPLATE}
_SCALING: FidelityTable = {
    "maxReplicas": H,
    "maxRestarts": H,
    "metrics": (A, "there is no autoscaler; use kubectl scale"),
    "minReplicas": H,
}
_V1_FIELDS: Mapping[str, FidelityTable] = {
    "pytorch": {
        "elasticPolicy": {
            **_SCALING,
            **dict.fromkeys(("nProcPerNode", "rdzvBackend", "rdzvConf", "rdzvHost", "rdzvId", "rdzvPort"), H),
            "standalone": H,
        },
        "nprocPerNode": H,
    },
    "tensorflow": {"enableDynamicWorker": H, "successPolicy": H},
    "mpi": {"cleanPodPolicy": H, "mainContainer": H, "slotsPerWorker": H},
    "paddle": {"elasticPolicy": _SCALING},
    "mxnet": {"jobMode": (H, "no controller interprets it, as upstream")},
}
"""Fields of spec that only jobs of this framework have."""
_RUN_POLICY: FidelityTable = {
    "activeDeadlineSeconds": H,
    "backoffLimit": H,
    "cleanPodPolicy": H,
    "managedBy": (A, "a job that is managed by another controller is not processed"),
    "schedulingPolicy": (
        A,
        "`minAvailable` Pods start together, by default all; queues, priority classes and timeouts are not used",
    ),
    "suspend": H,
    "ttlSecondsAfterFinished": H,
}


def build_v1_spec(framework: str, replicas_field: str) -> FidelityTable:
    return {**_V1_FIELDS.get(framework, {}), "runPolicy": _RUN_POLICY, replicas_field: {"*": _REPLICA}}


SHARED: Mapping[str, FidelityTable] = {
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
