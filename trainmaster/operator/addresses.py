"""Where Pods and API servers find operators that run in Pods: their Service. Pure."""

from __future__ import annotations

from trainmaster.operator.names import NAME

PROGRESS_PORT, METRICS_PORT, HEALTH_PORT = 10443, 8443, 8081
"""The ports of Kubeflow Trainer's manager."""


def build_progress_url(namespace: str, port: int = PROGRESS_PORT) -> str:
    """The URL at which Pods of the cluster reach the status server of operators in Pods."""
    return f"https://{NAME}.{namespace}.svc:{port}"
