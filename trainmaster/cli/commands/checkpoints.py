"""Checkpoints of jobs, also of deleted ones: which there are, whether they are whole, which are kept.

Found in $TRAINMASTER_CHECKPOINT_DIR, and by their format in the outputs of the job: files of torch.save, directories of
torch.distributed.checkpoint and of Hugging Face's Trainer, safetensors. A checkpoint is named as `list` shows it, or by
@STEP; without either, the newest complete one is meant.

  trainmaster checkpoints list my-job
  trainmaster checkpoints verify my-job @400
  trainmaster checkpoints get my-job @400 here
  trainmaster checkpoints pin my-job step-000400
  trainmaster checkpoints prune my-job --keep-last 3 --keep-every 1000

`verify` reads everything and compares checksums; `list` looks only for what can be seen quickly, such as files that
were cut. `prune` shows its plan and asks; it never removes the newest complete checkpoint, the one that the last
attempt resumed from, pinned ones, or files in the outputs.

Exit codes: 0 success, 1 failure, or a checkpoint is damaged (verify), 7 no such TrainJob or checkpoint.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from trainmaster.bundles.walking import format_bytes
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_output
from trainmaster.cli.output import print_data, print_table
from trainmaster.cli.servers.kept_jobs import add_action, find_uid
from trainmaster.cli.terminal import confirm
from trainmaster.history.checkpoints.choosing import NoCheckpoint, choose
from trainmaster.history.checkpoints.copying import copy
from trainmaster.history.checkpoints.keeping import decide_removals, explain_kept, remove
from trainmaster.history.checkpoints.model import NO_POLICY, Checkpoint, Policy
from trainmaster.history.checkpoints.notes import read_attempts, read_pins, write_pins
from trainmaster.history.checkpoints.reading import CheckpointList, read_checkpoints
from trainmaster.history.checkpoints.verifying import verify
from trainmaster.history.results import RESULTS
from trainmaster.jobs.janitor import describe_age
from trainmaster.kit.clock import SystemClock

_REASONS = {
    "newest": "newest complete one",
    "resumed": "the last attempt resumed from it",
    "pinned": "pinned",
    "last": "one of the last",
    "every": "every so many steps",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = add_action(commands, "list", "all of them with step, attempt, size and state, the newest first")
    add_output(listing)
    verifying = add_action(commands, "verify", "read them completely and name damaged files")
    _add_name(verifying, "only this one (default: all)")
    add_output(verifying)
    get = add_action(commands, "get", "copy one to a directory of yours")
    _add_name(get, "which one (default: the newest complete one)")
    get.add_argument("to", nargs="?", default="", metavar="DIR", help="where to put it (default: here)")
    prune = add_action(commands, "prune", "remove old ones; shows its plan and asks")
    prune.add_argument("--keep-last", type=_read_count, default=0, metavar="N", help="keep the N newest complete ones")
    prune.add_argument(
        "--keep-every", type=_read_count, default=0, metavar="K", help="keep those whose step is a multiple of K, too"
    )
    prune.add_argument(
        "--incomplete", action="store_true", help="also remove incomplete ones that are older than a complete one"
    )
    prune.add_argument("--dry-run", action="store_true", help="only show the plan")
    prune.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    for name, text in (("pin", "never let it be removed by a policy or prune"), ("unpin", "undo pin")):
        pinning = add_action(commands, name, text)
        pinning.add_argument("checkpoint", metavar="NAME|@STEP", help="which one")


def _add_name(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("checkpoint", nargs="?", default="", metavar="NAME|@STEP", help=text)


def _read_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:16]) < 10**15):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    home = context.home(options)
    uid = find_uid(options, context, home)
    found = read_checkpoints(home.history, uid)
    for note in found.notes:
        context.note(note)
    try:
        return _ACTIONS[options.action](options, context, found, home.history / RESULTS / uid)
    except NoCheckpoint as error:
        look = f"`trainmaster checkpoints list {options.job}` shows what there is"
        raise exits.Failure(f"{options.job}: {error}: {look}", exits.NOT_FOUND) from None


def _list(options: argparse.Namespace, context: CommandContext, found: CheckpointList, folder: Path) -> int:
    items = explain_kept(found.items, NO_POLICY, read_attempts(folder).resumed)
    if options.output != "table":
        print_data(context, [_to_data(item) for item in items], options.output)
    elif not items:
        context.note(f"{options.job} has no checkpoints so far: see `trainmaster checkpoints --help` for where they go")
    else:
        _print(context, items)
    return exits.OK


def _print(context: CommandContext, items: Sequence[Checkpoint]) -> None:
    now = SystemClock().unix()
    rows = [
        (
            item.name,
            "-" if item.step is None else str(item.step),
            "-" if item.attempt is None else str(item.attempt),
            format_bytes(item.bytes),
            item.format,
            "complete" if item.complete else "incomplete",
            describe_age(max(0.0, now - item.modified)),
            item.problem or ", ".join(_REASONS[reason] for reason in item.kept),
        )
        for item in items
    ]
    print_table(context, ("NAME", "STEP", "ATTEMPT", "SIZE", "FORMAT", "STATE", "AGE", "WHY"), rows)


def _verify(options: argparse.Namespace, context: CommandContext, found: CheckpointList, folder: Path) -> int:
    chosen = [choose(found.items, options.checkpoint)] if options.checkpoint else list(found.items)
    if not chosen:
        raise NoCheckpoint("it has no checkpoints")
    damaged = 0
    data = []
    for item in chosen:
        result = verify(item)
        damaged += bool(result.problems)
        data.append({"name": item.name, "step": item.step, "bytes": item.bytes, "problems": list(result.problems)})
        if options.output != "table":
            continue
        if not result.problems:
            digests = f", {result.digests} compared with their SHA-256" if result.digests else ""
            context.say(f"{item.name}: whole ({len(item.source.files):,} files, {format_bytes(item.bytes)}{digests})")
        for problem in result.problems:
            context.say(f"{item.name}: {problem}")
    if options.output != "table":
        print_data(context, data, options.output)
    return exits.FAILED if damaged else exits.OK


def _get(options: argparse.Namespace, context: CommandContext, found: CheckpointList, folder: Path) -> int:
    item = choose(found.items, options.checkpoint)
    if not item.complete:
        context.note(f"{item.name} is not complete: {item.problem}")
    to = Path(options.to or ".")
    target = to / os.path.basename(item.source.path)
    if os.path.lexists(target):
        raise exits.Failure(f"{target} exists: choose another directory")
    try:
        to.mkdir(parents=True, exist_ok=True)
        copy(item.source, target)
    except OSError as error:
        raise exits.Failure(f"{item.name} cannot be copied to {to}: {error.strerror or error}") from None
    left_out = len(item.source.others)
    if left_out:
        context.note(f"{left_out} that are no files, such as links, were left out")
    context.say(f"{item.name}, {format_bytes(item.bytes)}: {target}")
    return exits.OK


def _prune(options: argparse.Namespace, context: CommandContext, found: CheckpointList, folder: Path) -> int:
    policy = Policy(options.keep_last, options.keep_every)
    if not policy.is_given and not options.incomplete:
        raise exits.Failure("say what to keep: --keep-last N, --keep-every K, or --incomplete", exits.USAGE)
    items = explain_kept(found.items, policy, read_attempts(folder).resumed)
    plan = decide_removals(items, policy, incomplete=options.incomplete)
    if not plan:
        context.say("there is nothing to remove")
        return exits.OK
    _print(context, plan)
    text = f"{len(plan)} of {len(items)}, {format_bytes(sum(item.bytes for item in plan))}"
    if options.dry_run:
        context.note(f"would remove {text}")
        return exits.OK
    if not confirm(context, f"remove these {text}?", yes=options.yes):
        return exits.FAILED
    left = [item.name for item in plan if not remove(item)]
    context.say(f"removed {len(plan) - len(left)}, {format_bytes(sum(i.bytes for i in plan if i.name not in left))}")
    if left:
        raise exits.Failure(f"could not be removed: {', '.join(left[:5])}")
    return exits.OK


def _pin(options: argparse.Namespace, context: CommandContext, found: CheckpointList, folder: Path) -> int:
    item = choose(found.items, options.checkpoint)
    if item.place != "checkpoints":
        raise exits.Failure(f"{item.name} is an output, and outputs are never removed by a policy")
    pins = {*read_pins(folder), item.source.path}
    if options.action == "unpin":
        pins.discard(item.source.path)
    # Of those that are gone nothing is kept.
    there = {other.source.path for other in found.items if other.place == "checkpoints"}
    try:
        write_pins(folder, pins & there)
    except OSError as error:
        raise exits.Failure(f"{item.name} cannot be {options.action}ned: {error.strerror}") from None
    context.say(f"{item.name} {'is pinned' if options.action == 'pin' else 'is no longer pinned'}")
    return exits.OK


def _to_data(item: Checkpoint) -> dict[str, object]:
    return {
        "name": item.name,
        "place": item.place,
        "format": item.format,
        "step": item.step,
        "attempt": item.attempt,
        "bytes": item.bytes,
        "files": len(item.source.files),
        "complete": item.complete,
        "committed": item.committed,
        "problem": item.problem or None,
        "modified": datetime.fromtimestamp(item.modified, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "pinned": item.pinned,
        "kept": list(item.kept),
        "from": item.origin or None,
    }


_Action = Callable[[argparse.Namespace, CommandContext, CheckpointList, Path], int]
_ACTIONS: Mapping[str, _Action] = {
    "list": _list,
    "verify": _verify,
    "get": _get,
    "prune": _prune,
    "pin": _pin,
    "unpin": _pin,
}
