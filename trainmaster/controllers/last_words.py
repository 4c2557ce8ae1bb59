"""Lets containers on a cluster keep what they printed last, where we write the Pod or its template. Pure."""

from __future__ import annotations

from trainmaster.api.meta import Object
from trainmaster.api.reading import list_items

POLICY = "FallbackToLogsOnError"


def keep_last_words(pod_spec: Object) -> None:
    """A container that fails without a message of its own gets the end of its log as termination message; otherwise
    `status.failure` would end with the exit code. A policy in the template is kept."""
    for container in (*list_items(pod_spec, "initContainers"), *list_items(pod_spec, "containers")):
        container.setdefault("terminationMessagePolicy", POLICY)
