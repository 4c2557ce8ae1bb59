"""Train: starts a server if none runs, sends the code, submits a TrainJob, shows it, and ends with its exit code.

  trainmaster run train.py --lr 0.1                     one node
  trainmaster run --nodes 2 --nproc 2 train.py          two nodes with two processes each (torchrun)
  trainmaster run --nodes 2 -- python -m mypackage      any command, on every node
  trainmaster run --dry-run train.py                    prints what would be submitted

Options come before the script; everything after it is the script's. Ctrl-C asks whether to detach or to stop the job.
The exit code is that of the first rank that failed (128 + signal); from 240 on it is about `run` itself: 240 wrong
command line, 241 no server, 242 refused, 243 code not sent, 244 server lost, 245 ended without a rank to blame,
247 detached. More in docs/run.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.api.meta import Object
from trainmaster.api.training.steps import get_ml_policy, get_template_spec, list_jobs
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.launch import programs, wishes
from trainmaster.cli.launch.manifests import Code, Manifests, build_manifests
from trainmaster.cli.launch.servers import StartingServer
from trainmaster.cli.launch.wishes import RequestedMount, RunRequest, SecretVariable, WishError
from trainmaster.cli.serverflags import add_server
from trainmaster.cli.spans import parse_span
from trainmaster.kit.ids import SystemIds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "trainmaster run [options] SCRIPT [arguments]\n       trainmaster run [options] -- COMMAND [arguments]"
    )
    add_server(parser)
    add = parser.add_argument
    add("--name", default="", help="of the job (default: the script's, and a few letters)")
    add("--nodes", type=int, default=1, metavar="N", help="how many nodes (default 1)")
    add("--nproc", default="", metavar="N", help="processes per node: a number, auto, cpu or gpu")
    add("--runtime", default="", metavar="NAME", help="default: from what the script imports, else torch-distributed")
    add("--image", default="", metavar="IMAGE", help="another image than the runtime's")
    add("--env", action="append", default=[], metavar="NAME[=VALUE]", help="a variable; without value: yours")
    add("--volume", action="append", default=[], metavar="SOURCE:PATH[:ro]", help="a path (./data) or a claim (data)")
    add(
        "--secret",
        action="append",
        default=[],
        metavar="NAME[:PATH|/KEY=VAR]",
        help="as variables, files or one variable",
    )
    add("--gpu", default="", metavar="N", help="GPUs per node")
    add("--cpu", default="", metavar="N", help="CPUs per node")
    add("--memory", default="", metavar="AMOUNT", help="memory per node, such as 4Gi")
    add("--package", action="append", default=[], metavar="REQUIREMENT", help="a Python package that the job needs")
    add("--requirements", default="", metavar="FILE", help="packages from a file")
    add("--max-restarts", type=int, default=0, metavar="N", help="how often all ranks start again after a failure (0)")
    add("--deadline", default="", metavar="SPAN", help="it fails when it takes longer, such as 2h")
    add("--ttl", default="", metavar="SPAN", help="it is deleted so long after its end, such as 7d")
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="a label of the job")
    add("--code", default="", metavar="DIR", help="the code that is sent (default: the directory you are in)")
    add("--code-limit", default="1Gi", metavar="SIZE", help="how much code may be sent (1Gi)")
    add("--no-code", action="store_true", help="send no code: the image has it")
    add("-d", "--detach", action="store_true", help="do not wait for its end")
    add("--dry-run", action="store_true", help="print what would be submitted")
    add("-o", "--output-format", choices=("text", "json", "yaml"), default="", help="json: an object a line")
    add("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    exits.keep_apart(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    try:
        program = TrainingProgram.read(options)
        wish = build_wish(options, context, program)
        if options.dry_run:
            from trainmaster.cli.launch import flow

            return flow.print_manifests(options, context, program, wish)
        if options.output_format == "yaml":
            raise WishError("-o yaml prints a manifest: it goes with --dry-run")
        server = StartingServer(context, options)
        # From here on a server that had to be started loads what it needs beside us.
        from trainmaster.cli.launch import flow

        return flow.run_job(options, context, program, wish, server)
    except WishError as error:
        raise exits.Failure(str(error), exits.RUN_USAGE) from None


class TrainingProgram:
    """What runs: a script with its arguments, or a command."""

    def __init__(self, script: str, rest: list[str], root: Path, framework: str) -> None:
        self.script = script
        """As it is called in the job; "" for a command."""
        self.rest = rest
        self.root = root
        """The directory with the code."""
        self.framework = framework

    @classmethod
    def read(cls, options: argparse.Namespace) -> TrainingProgram:
        rest = list(options.rest)
        root = Path(options.code or ".").expanduser().absolute()
        if options.code and options.no_code:
            raise WishError("--code and --no-code contradict each other")
        if not root.is_dir():
            raise WishError(f"--code {options.code}: {root} is no directory")
        if rest[:1] == ["--"]:
            if not rest[1:]:
                raise WishError("there is no command after `--`; write `trainmaster run -- COMMAND`")
            return cls("", rest[1:], root, "")
        if not rest:
            raise WishError("what should run? Write `trainmaster run SCRIPT`, or `trainmaster run -- COMMAND`")
        if options.no_code:
            return cls(rest[0], rest[1:], root, programs.find_framework(Path(rest[0])))
        return cls._read_script(rest, root, chosen=bool(options.code))

    @classmethod
    def _read_script(cls, rest: list[str], root: Path, *, chosen: bool) -> TrainingProgram:
        """`chosen`: the directory was named; otherwise a script from elsewhere is sent with its own."""
        script = Path(rest[0])
        found = next((path for path in (script.absolute(), root / script) if path.is_file()), None)
        if found is None:
            what = "is a directory" if script.is_dir() else "does not exist"
            raise WishError(f"the script {script} {what}; for a command write `trainmaster run -- {rest[0]} ...`")
        real = found.resolve()
        if not real.is_relative_to(root.resolve()):
            if chosen:
                raise WishError(f"{script} is not below {root}, which is sent; choose --code {found.parent}")
            root = real.parent
        return cls(str(real.relative_to(root.resolve())), rest[1:], root, programs.find_framework(found))


def build_wish(options: argparse.Namespace, context: CommandContext, program: TrainingProgram) -> RunRequest:
    """All but the command, which depends on the runtime."""
    if options.nodes < 1:
        raise WishError(f"--nodes {options.nodes}: a job has at least one node")
    if options.max_restarts < 0:
        raise WishError(f"--max-restarts {options.max_restarts}: write 0 or more")
    mounts: list[RequestedMount] = [wishes.parse_volume(text, Path.cwd()) for text in options.volume]
    variables: list[SecretVariable] = []
    secrets: list[str] = []
    for secret in map(wishes.parse_secret, options.secret):
        match secret:
            case RequestedMount():
                mounts.append(secret)
            case SecretVariable():
                variables.append(secret)
            case str():
                secrets.append(secret)
    name = options.name or wishes.build_name(program.script or program.rest[0], SystemIds().suffix())
    return RunRequest(
        name=wishes.check_name(name),
        namespace=options.namespace or "default",
        nodes=options.nodes,
        processes=wishes.parse_processes(options.nproc),
        max_restarts=options.max_restarts,
        image=options.image,
        env=wishes.parse_env(options.env, context.environ),
        mounts=tuple(mounts),
        secret_variables=tuple(variables),
        secrets=tuple(secrets),
        resources=wishes.parse_resources(options.gpu, options.cpu, options.memory),
        labels=wishes.parse_labels(options.label),
        packages=(*options.package, *_read_requirements(options.requirements)),
        ttl_seconds=_read_span("--ttl", options.ttl),
        deadline_seconds=_read_span("--deadline", options.deadline),
    )


def _read_span(option: str, text: str) -> int | None:
    if not text:
        return None
    try:
        return int(text) if text.isdecimal() else parse_span(text)
    except ValueError as error:
        raise WishError(f"{option}: {error}") from None


def _read_requirements(file: str) -> list[str]:
    if not file:
        return []
    # Most runs name no such file.
    from trainmaster.bundles import BundleError
    from trainmaster.bundles.requirements import read_requirements

    try:
        return read_requirements(Path(file).expanduser())
    except BundleError as error:
        raise WishError(f"--requirements: {error}") from None


def compile_job(
    wish: RunRequest, program: TrainingProgram, options: argparse.Namespace, base: Object, code: Code | None
) -> Manifests:
    if not list_jobs(get_template_spec(base)):
        raise WishError(f"the runtime {base['metadata']['name']} has no jobs, so nothing would run your program")
    policy = get_ml_policy(base)
    command = tuple(program.rest)
    if program.script:
        command = programs.build_command(program.script, program.rest, program.framework, policy)
    programs.check_processes(wish.processes, command, base["metadata"]["name"], policy)
    return build_manifests(wishes.with_command(wish, command, options.namespace), base, code)


def find_runtime_name(options: argparse.Namespace, program: TrainingProgram) -> str:
    return options.runtime or programs.choose_runtime(program.framework)
