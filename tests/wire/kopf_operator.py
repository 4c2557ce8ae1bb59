"""An ordinary kopf operator: it knows nothing of the server it runs against. `test_kopf.py` starts it as a process.

It notes each call in the file named by JOURNAL, one word per line, and writes to the objects it is told about, so that
finalizers, patches, status and events are all in use.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kopf


def note(word: str) -> None:
    with Path(os.environ["JOURNAL"]).open("a") as journal:
        journal.write(f"{word}\n")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.watching.server_timeout = 20
    settings.posting.level = 20


@kopf.on.create("trainer.kubeflow.org", "v1alpha1", "trainjobs")
def created(name: str, patch: kopf.Patch, body: kopf.Body, **_: Any) -> None:
    note(f"created {name}")
    patch.metadata.annotations["example.org/seen"] = "created"
    kopf.info(body, reason="Seen", message="the operator has seen it")


@kopf.on.update("trainer.kubeflow.org", "v1alpha1", "trainjobs", field="metadata.labels")
def updated(name: str, patch: kopf.Patch, **_: Any) -> None:
    note(f"updated {name}")
    patch.metadata.annotations["example.org/seen"] = "updated"


@kopf.on.delete("trainer.kubeflow.org", "v1alpha1", "trainjobs")
def deleted(name: str, **_: Any) -> None:
    note(f"deleted {name}")


@kopf.on.event("", "v1", "pods")
def pod_event(name: str, type: str | None, **_: Any) -> None:
    note(f"pod {name} {type}")
