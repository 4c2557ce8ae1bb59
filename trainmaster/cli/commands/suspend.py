"""Suspend TrainJobs: their Pods are stopped and their room is given to others; `trainmaster resume` lets them go on.

Programs get the time to save that their Pods grant (SIGTERM, then SIGKILL). With --wait the command returns when
nothing of them runs any more.

Exit codes: 0 done, 1 one has already ended, 6 timed out (--wait), 7 no such TrainJob.
"""

from __future__ import annotations

import argparse

from trainmaster.cli import suspending as toggling
from trainmaster.cli.context import CommandContext

add_arguments = toggling.add_arguments


def run(options: argparse.Namespace, context: CommandContext) -> int:
    return toggling.run(options, context, suspend=True)
