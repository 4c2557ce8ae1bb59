"""The ConfigMap in which an administrator says which Python environment stands in for which image."""

from __future__ import annotations

NAMESPACE = "kubeflow-system"
NAME = "image-rules"
KEY = "rules.yaml"
