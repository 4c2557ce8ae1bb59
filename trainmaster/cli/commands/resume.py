"""Continue suspended TrainJobs. Their processes start again, and continue from a checkpoint if they load one.

Exit codes: 0 success, 1 a job has already finished, 6 timed out (--wait), 7 no such TrainJob.
"""

from __future__ import annotations

import argparse

from trainmaster.cli import suspending as toggling
from trainmaster.cli.context import CommandContext

add_arguments = toggling.add_arguments


def run(options: argparse.Namespace, context: CommandContext) -> int:
    return toggling.run(options, context, suspend=False)
