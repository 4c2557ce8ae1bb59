"""The fields of a JobSet that this version carries out. Everything else is refused by name."""

from __future__ import annotations

from trainmaster.api.declaring.supported import Table

JOB_SET: Table = {
    "replicatedJobs": {"name": True, "groupName": True, "replicas": True, "template": True, "dependsOn": True},
    "network": {"enableDNSHostnames": True, "subdomain": True, "publishNotReadyAddresses": True},
    "successPolicy": {"operator": True, "targetReplicatedJobs": True},
    "failurePolicy": {
        "maxRestarts": True,
        "restartStrategy": True,
        "rules": {
            "name": True,
            "action": True,
            "onJobFailureReasons": True,
            "onJobFailureMessagePatterns": True,
            "targetReplicatedJobs": True,
        },
    },
    "startupPolicy": {"startupPolicyOrder": True},
    "suspend": True,
    "coordinator": {"replicatedJob": True, "jobIndex": True, "podIndex": True},
    "managedBy": True,
    "ttlSecondsAfterFinished": True,
    "volumeClaimPolicies": {"templates": True, "retentionPolicy": True},
}

RESTART_STRATEGIES = ("Recreate", "BlockingRecreate")
"""InPlaceRestart needs an agent inside the Pods that talks to the API; admission refuses it as upstream's default."""
