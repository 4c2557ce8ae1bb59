"""Let suspended TrainJobs go on. Their processes start anew, and go on from a checkpoint if they load one.

Exit codes: 0 done, 1 one has already ended, 6 timed out (--wait), 7 no such TrainJob.
"""

from __future__ import annotations

import argparse

from trainmaster.cli import suspending as toggling
from trainmaster.cli.context import CommandContext

add_arguments = toggling.add_arguments


def run(options: argparse.Namespace, context: CommandContext) -> int:
    return toggling.run(options, context, suspend=False)
