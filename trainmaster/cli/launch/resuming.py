"""Finds the checkpoint that `run --resume-from JOB[@STEP]` names, and writes what the job's annotations say about
checkpoints."""

from __future__ import annotations

import argparse

from trainmaster.api.labels import KEEP_CHECKPOINTS, RESUME_FROM
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.launch.run_options import RunOptionError
from trainmaster.cli.servers.flags import is_cluster, read_job
from trainmaster.cli.servers.kept_jobs import find_uid
from trainmaster.history.checkpoints.choosing import NoCheckpoint, choose
from trainmaster.history.checkpoints.reading import read_checkpoints


def build_annotations(options: argparse.Namespace, context: CommandContext) -> dict[str, str]:
    """Raises RunOptionError."""
    annotations = {}
    if options.keep_checkpoints is not None:
        if options.keep_checkpoints < 1:
            raise RunOptionError(f"--keep-checkpoints {options.keep_checkpoints}: write 1 or more")
        annotations[KEEP_CHECKPOINTS] = str(options.keep_checkpoints)
    if options.resume_from:
        annotations[RESUME_FROM] = _find(options, context, options.resume_from)
    if annotations and is_cluster(options):
        text = "checkpoints on a cluster are on volumes, which Trainmaster does not read"
        raise RunOptionError(f"--keep-checkpoints and --resume-from are for jobs of this machine: {text}")
    return annotations


def _find(options: argparse.Namespace, context: CommandContext, text: str) -> str:
    job, sign, wanted = text.partition("@")
    if is_cluster(options):
        return text  # refused
    if not job or (sign and not wanted):
        raise RunOptionError(f"--resume-from {text}: write JOB, JOB@STEP or JOB@NAME")
    home = context.home(options)
    asked = argparse.Namespace(**{**vars(options), "job": read_job(job), "uid": ""})
    asked.namespace = options.namespace or "default"
    try:
        uid = find_uid(asked, context, home)
        item = choose(read_checkpoints(home.history, uid).items, f"@{wanted}" if wanted.isdigit() else wanted)
    except exits.Failure as error:
        raise RunOptionError(f"--resume-from {text}: {error}") from None
    except NoCheckpoint as error:
        raise RunOptionError(f"--resume-from {text}: {error}: see `trainmaster checkpoints list {job}`") from None
    if not item.complete:
        raise RunOptionError(f"--resume-from {text}: {item.name} is not complete: {item.problem}")
    return f"{uid}/{item.name}"
