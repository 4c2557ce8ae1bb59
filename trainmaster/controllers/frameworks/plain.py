"""No framework: only the number of nodes and the TrainJob's own environment."""

from __future__ import annotations

from trainmaster.controllers.frameworks.contract import (
    Framework,
    FrameworkContext,
    Injection,
    Training,
    list_no_problems,
)


def _inject(training: Training, context: FrameworkContext) -> Injection:
    return Injection()


FRAMEWORK = Framework("plain", _inject, list_no_problems)
