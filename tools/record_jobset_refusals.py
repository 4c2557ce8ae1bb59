"""Sends the JobSets of `tests/unit/api/kindsets/jobset_cases.py` to the cluster of $KUBECONFIG and stores its answers.

    python -m tools.record_jobset_refusals     (with a control plane that runs the real JobSet manager)

The result is what our own admission is compared with; run it again for a new version of JobSet.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.api.kindsets.jobset_cases import CREATED, UPDATED
from tools.refusals import Answers, Recorder, store

TARGET = Path(__file__).parents[1] / "tests" / "unit" / "api" / "kindsets" / "jobset_refusals.json"


def mask(cause: str) -> str:
    """Values that are whole lists are left out."""
    return re.sub(r"Invalid value: \[.*\]: ", "Invalid value: [...]: ", cause)


def main() -> None:
    recorder = Recorder("jobset", mask)
    answers: Answers = {"created": {}, "updated": {}}
    for name, body in CREATED.items():
        answers["created"][name] = recorder.send("create", body, "--dry-run=server")
    for number, (name, (body, change)) in enumerate(UPDATED.items()):
        standing = recorder.make(body, f"js{number}")
        change(standing)
        answers["updated"][name] = recorder.send("replace", standing)
        recorder.delete(f"js{number}")
    store(answers, TARGET)


if __name__ == "__main__":
    main()
