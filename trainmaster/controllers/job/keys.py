"""Annotation keys that only the Job controller reads and writes."""

from __future__ import annotations

EXPECTED_PODS = "trainmaster.dev/pods"
"""On unfinished Jobs: which Pods are expected to exist, and the attempts of each index (see `expected_pods`)."""
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
"""On Pods of Jobs with backoffLimitPerIndex: how many Pods of the index failed before. Also read by users."""
IGNORED_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"
"""The same for failures that a rule of the Pod failure policy ignored."""
