"""The fields of a JobSet that this version carries out. Everything else is refused by name."""

from __future__ import annotations

from trainmaster.api.supported import Table

JOB_SET: Table = {
    "replicatedJobs": {"name": True, "groupName": True, "replicas": True, "template": True},
    "network": {"enableDNSHostnames": True, "subdomain": True, "publishNotReadyAddresses": True},
    "successPolicy": {"operator": True, "targetReplicatedJobs": True},
    "failurePolicy": {"maxRestarts": True, "restartStrategy": True},
    "startupPolicy": {"startupPolicyOrder": True},
    "suspend": True,
    "managedBy": True,
}

RESTART_STRATEGIES = ("Recreate", "BlockingRecreate")
STARTUP_ORDERS = ("AnyOrder",)
