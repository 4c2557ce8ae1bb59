"""The fields of a Job that this version carries out. Everything else is refused by name."""

from __future__ import annotations

from trainmaster.api.declaring.supported import Table

JOB: Table = dict.fromkeys(
    (
        "activeDeadlineSeconds",
        "backoffLimit",
        "backoffLimitPerIndex",
        "completionMode",
        "completions",
        "managedBy",
        "manualSelector",
        "maxFailedIndexes",
        "parallelism",
        "podFailurePolicy",
        "podReplacementPolicy",
        "selector",
        "successPolicy",
        "suspend",
        "template",
        "ttlSecondsAfterFinished",
    ),
    True,
)
