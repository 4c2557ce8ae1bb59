"""No framework: the number of nodes and the TrainJob's own environment, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.controllers.frameworks.contract import Framework, Injection, Training


def _inject(training: Training) -> Injection:
    return Injection()


def _list_problems(policy: Mapping[str, Any], training: Training) -> Sequence[str]:
    return ()


FRAMEWORK = Framework("plain", _inject, _list_problems)
