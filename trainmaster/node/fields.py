"""The fields of a Pod that the plain level carries out. A Pod that asks for anything else fails, naming the field.

Fields that mean nothing on one machine without containers are listed (dnsPolicy, imagePullSecrets and the like), and
so are those that the scheduler has heeded before the Pod came here. What is approximated is said in an event.
"""

from __future__ import annotations

from trainmaster.api.supported import Table

CONTAINER: Table = {
    "name": True,
    "image": True,
    "imagePullPolicy": True,
    "command": True,
    "args": True,
    "workingDir": True,
    "env": {
        "name": True,
        "value": True,
        "valueFrom": {"fieldRef": True},
    },
    "ports": {"name": True, "containerPort": True, "protocol": True},
    "resources": {"limits": True, "requests": True},
    "terminationMessagePath": True,
    "terminationMessagePolicy": True,
}

POD: Table = {
    "containers": CONTAINER,
    "restartPolicy": True,
    "terminationGracePeriodSeconds": True,
    "nodeName": True,
    "nodeSelector": True,
    "hostname": True,
    "subdomain": True,
    "serviceAccountName": True,
    "serviceAccount": True,
    "automountServiceAccountToken": True,
    "schedulerName": True,
    "schedulingGates": True,
    "affinity": True,
    "topologySpreadConstraints": True,
    "imagePullSecrets": True,
    "tolerations": True,
    "priority": True,
    "priorityClassName": True,
    "preemptionPolicy": True,
    "dnsPolicy": True,
    "enableServiceLinks": True,
}
