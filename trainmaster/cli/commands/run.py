"""Train a script: start a server if needed, upload the code, submit a TrainJob, show it live, return its exit code.

  trainmaster run train.py --lr 0.1                     one node
  trainmaster run --nodes 2 --nproc 2 train.py          two nodes with two processes each (torchrun)
  trainmaster run --nodes 2 -- python -m mypackage      any command, on every node
  trainmaster run --dry-run train.py                    prints the manifest instead of submitting it
  trainmaster run --context my-cluster train.py         on a cluster, with the code

Options come before the script; everything after it is passed to the script. Ctrl-C asks whether to detach or to stop
the job. The exit code is that of the first rank that failed (128 + signal). Codes from 240 on concern `run` itself: 240
invalid command line, 241 no server, 242 refused, 243 code not uploaded, 244 server lost, 245 ended without a failed
rank, 247 detached. See docs/run.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.api.labels import ON_STALL
from trainmaster.api.lifecycle.stalls import POLICIES, RESTART
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.launch import run_options
from trainmaster.cli.launch.programs import TrainingProgram
from trainmaster.cli.launch.run_options import RunOptionError
from trainmaster.cli.launch.servers import StartingServer
from trainmaster.cli.servers.flags import add_server
from trainmaster.cli.spans import parse_span
from trainmaster.cli.terminal import is_terminal
from trainmaster.jobs.compose.request import JobRequest, RequestedMount, SecretVariable
from trainmaster.kit.ids import SystemIds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "trainmaster run [options] SCRIPT [arguments]\n       trainmaster run [options] -- COMMAND [arguments]"
    )
    add_server(parser)
    add = parser.add_argument
    add("--name", default="", help="name of the job (default: from the script, with a random suffix)")
    add("--nodes", type=int, default=1, metavar="N", help="number of nodes (default 1)")
    add("--nproc", default="", metavar="N", help="processes per node: a number, auto, cpu or gpu")
    add(
        "--runtime",
        default="",
        metavar="NAME",
        help="runtime (default: chosen by the script's imports, else torch-distributed)",
    )
    add("--image", default="", metavar="IMAGE", help="image (default: the runtime's)")
    add(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="environment variable; without a value, your own is passed",
    )
    add(
        "--volume",
        action="append",
        default=[],
        metavar="SOURCE[:PATH][:ro]",
        help="mount a path of this machine (../data; without PATH at the same place) or a claim (data:/data)",
    )
    add(
        "--secret",
        action="append",
        default=[],
        metavar="NAME[:PATH|/KEY=VAR]",
        help="a Secret as variables, as files, or one key as a variable",
    )
    add("--gpu", default="", metavar="N", help="GPUs per node")
    add("--cpu", default="", metavar="N", help="CPUs per node")
    add(
        "--overcommit",
        action="store_true",
        help="do not reserve the CPUs of --cpu: share them with other nodes and jobs",
    )
    add("--memory", default="", metavar="AMOUNT", help="memory per node, such as 4Gi")
    add("--package", action="append", default=[], metavar="REQUIREMENT", help="Python package to install")
    add("--requirements", default="", metavar="FILE", help="install packages from a file")
    add(
        "--max-restarts",
        type=int,
        default=0,
        metavar="N",
        help="number of restarts of all ranks after a failure (default 0)",
    )
    _add_checkpoint_options(parser)
    add("--on-stall", choices=POLICIES, default="", help="if its steps stand still: observe, restart, or fail")
    add("--deadline", default="", metavar="SPAN", help="maximum duration, such as 2h; then the job fails")
    add("--ttl", default="", metavar="SPAN", help="delete the job this long after it finished, such as 7d")
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="label of the job")
    add("--code", default="", metavar="DIR", help="directory with the code (default: the current one)")
    add("--code-limit", default="1Gi", metavar="SIZE", help="maximum size of the code (default 1Gi)")
    add("--no-code", action="store_true", help="do not upload code; the image contains it")
    add("-i", "--stdin", action="store_true", help="connect your terminal, or standard input, with rank 0")
    add("-d", "--detach", action="store_true", help="submit the job and return")
    add("-y", "--yes", action="store_true", help="do not ask whether the machine has enough memory")
    add("--dry-run", action="store_true", help="print the manifest instead of submitting it")
    add("-o", "--output-format", choices=("text", "json", "yaml"), default="", help="json: one object per line")
    add("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    exits.keep_apart(parser)


def _add_checkpoint_options(parser: argparse.ArgumentParser) -> None:
    text = "begin with a checkpoint of another job: the newest, or that of a step"
    parser.add_argument("--resume-from", default="", metavar="JOB[@STEP]", help=text)
    text = "keep the N newest complete checkpoints and remove older ones (default: all)"
    parser.add_argument("--keep-checkpoints", type=int, default=None, metavar="N", help=text)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    try:
        program = TrainingProgram.read(options)
        if options.stdin:
            run_options.check_stdin(options, wants_tty=wants_tty(options, context))
        request = build_request(options, context, program)
        if options.dry_run:
            from trainmaster.cli.launch import flow

            return flow.print_manifests(options, context, program, request)
        if options.output_format == "yaml":
            raise RunOptionError("-o yaml prints a manifest: it goes with --dry-run")
        server = StartingServer(context, options)
        # From here on, a server that had to be started loads its modules in parallel.
        from trainmaster.cli.launch import flow

        return flow.run_job(options, context, program, request, server)
    except RunOptionError as error:
        raise exits.Failure(str(error), exits.RUN_USAGE) from None


def build_request(options: argparse.Namespace, context: CommandContext, program: TrainingProgram) -> JobRequest:
    """The request without the command, which depends on the runtime."""
    if options.nodes < 1:
        raise RunOptionError(f"--nodes {options.nodes}: a job has at least one node")
    if options.max_restarts < 0:
        raise RunOptionError(f"--max-restarts {options.max_restarts}: write 0 or more")
    if options.on_stall == RESTART and not options.max_restarts:
        raise RunOptionError("--on-stall restart needs --max-restarts: without it, no restart is allowed")
    if options.overcommit and not options.cpu:
        raise RunOptionError("--overcommit goes with --cpu: without it, the job reserves no CPUs that could be shared")
    root = None if options.no_code else program.root
    mounts: list[RequestedMount] = [run_options.parse_volume(text, Path.cwd(), root) for text in options.volume]
    variables: list[SecretVariable] = []
    secrets: list[str] = []
    for secret in map(run_options.parse_secret, options.secret):
        match secret:
            case RequestedMount():
                mounts.append(secret)
            case SecretVariable():
                variables.append(secret)
            case str():
                secrets.append(secret)
    name = options.name or run_options.build_name(program.script or program.rest[0], SystemIds().suffix())
    return JobRequest(
        name=run_options.check_name(name, options.nodes),
        namespace=options.namespace or "default",
        nodes=options.nodes,
        processes=run_options.parse_processes(options.nproc),
        max_restarts=options.max_restarts,
        image=options.image,
        env=run_options.parse_env(options.env, context.environ),
        mounts=tuple(mounts),
        secret_variables=tuple(variables),
        secrets=tuple(secrets),
        resources=run_options.parse_resources(options.gpu, options.cpu, options.memory),
        overcommits=options.overcommit,
        labels=run_options.parse_labels(options.label),
        annotations={
            **_read_checkpoint_options(options, context),
            **({ON_STALL: options.on_stall} if options.on_stall else {}),
        },
        packages=(
            *(entry for text in options.package for entry in run_options.parse_package(text, Path.cwd())),
            *_read_requirements(options.requirements),
        ),
        ttl_seconds=_read_span("--ttl", options.ttl),
        deadline_seconds=_read_span("--deadline", options.deadline),
        stdin=options.stdin,
        tty=options.stdin and wants_tty(options, context),
    )


def _read_checkpoint_options(options: argparse.Namespace, context: CommandContext) -> dict[str, str]:
    if not options.resume_from and options.keep_checkpoints is None:
        return {}
    # Imported here because it reads the archive, and few runs have these options.
    from trainmaster.cli.launch import resuming

    return resuming.build_annotations(options, context)


def wants_tty(options: argparse.Namespace, context: CommandContext) -> bool:
    """Whether the program gets a terminal with `--stdin`: if there is one on both sides."""
    return options.output_format != "json" and is_terminal(context.stdin) and is_terminal(context.out)


def _read_span(option: str, text: str) -> int | None:
    if not text:
        return None
    try:
        return int(text) if text.isdecimal() else parse_span(text)
    except ValueError as error:
        raise RunOptionError(f"{option}: {error}") from None


def _read_requirements(file: str) -> list[str]:
    if not file:
        return []
    # Imported here because most runs name no such file.
    from trainmaster.bundles.errors import BundleError
    from trainmaster.bundles.requirements import read_requirements

    try:
        return read_requirements(Path(file).expanduser())
    except BundleError as error:
        raise RunOptionError(f"--requirements: {error}") from None
