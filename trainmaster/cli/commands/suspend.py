"""Suspend TrainJobs: their Pods are stopped and their resources released; `trainmaster resume` continues them.

Programs have the grace period of their Pods to save (SIGTERM, then SIGKILL). With --wait the command returns when all
their Pods have stopped.

Exit codes: 0 success, 1 a job has already finished, 6 timed out (--wait), 7 no such TrainJob.
"""

from __future__ import annotations

import argparse

from trainmaster.cli import suspending as toggling
from trainmaster.cli.context import CommandContext

add_arguments = toggling.add_arguments


def run(options: argparse.Namespace, context: CommandContext) -> int:
    return toggling.run(options, context, suspend=True)
