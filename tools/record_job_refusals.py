"""Sends the Jobs of `tests/unit/api/kindsets/job_cases.py` to the cluster of $KUBECONFIG and stores its answers.

    python -m tools.record_job_refusals

The result is what our own admission is compared with; run it again for a new version of Kubernetes.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.api.kindsets.job_cases import CREATED, STATUSES, UPDATED, with_status
from tools.refusals import Answers, Recorder, store

TARGET = Path(__file__).parents[1] / "tests" / "unit" / "api" / "kindsets" / "job_refusals.json"


def mask(cause: str) -> str:
    """Values that are structures are written in the server's own language; uids differ."""
    cause = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", cause)
    return re.sub(r"(Invalid value: )(\{.*\}|\[.*\]|null|[a-z0-9.]*\{.*\}): ", r"\1...: ", cause)


def main() -> None:
    recorder = Recorder("job", mask)
    answers: Answers = {"created": {}, "updated": {}, "statuses": {}}
    for name, body in CREATED.items():
        answers["created"][name] = recorder.send("create", body, "--dry-run=server")
    for number, (name, (body, change)) in enumerate(UPDATED.items()):
        standing = recorder.make(body, f"u{number}")
        change(standing)
        answers["updated"][name] = recorder.send("replace", standing)
    for number, (name, (body, (before, after))) in enumerate(STATUSES.items()):
        standing = recorder.make(body, f"s{number}")
        if before:
            fault = recorder.send("replace", with_status(standing, before), "--subresource=status")
            assert not fault, f"{name}: {fault}"
        answers["statuses"][name] = recorder.send("replace", with_status(standing, after), "--subresource=status")
    store(answers, TARGET)


if __name__ == "__main__":
    main()
