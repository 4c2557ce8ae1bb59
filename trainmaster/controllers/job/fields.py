"""The fields of a Job that this version carries out. Everything else is refused by name."""

from __future__ import annotations

from trainmaster.api.supported import Table

JOB: Table = {
    "parallelism": True,
    "completions": True,
    "completionMode": True,
    "backoffLimit": True,
    "selector": True,
    "template": True,
    "suspend": True,
    "podReplacementPolicy": True,
    "managedBy": True,
}
