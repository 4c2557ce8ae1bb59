"""Chooses the runtime of a script and the command that starts it.

The framework is derived from what the script and its local modules import; they are parsed, not executed. A script
without a known framework runs with plain Python under `torch-distributed`, because the variables of that runtime
(PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT) let any program find its peers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmaster.api.training import torchtune
from trainmaster.api.training.steps import read_framework
from trainmaster.cli.launch.run_options import RunOptionError

if TYPE_CHECKING:
    import argparse
    import ast

DEFAULT_RUNTIME = "torch-distributed"
_FRAMEWORKS = {
    "torch": ("torch", "torchvision", "lightning", "pytorch_lightning", "transformers", "accelerate", "deepspeed"),
    "jax": ("jax", "flax", "optax"),
    "xgboost": ("xgboost",),
}
"""Framework to the modules that indicate it, most specific first: a JAX script may also import transformers."""
_RUNTIMES = {"torch": "torch-distributed", "jax": "jax-distributed", "xgboost": "xgboost-distributed"}
_MOST_FILES = 100


def find_framework(script: Path) -> str:
    """torch, jax, xgboost, or "" for a script that imports none of them."""
    names = set(_list_imports(script))
    if names & {"jax", "flax"} and not names & {"torch", "lightning", "pytorch_lightning"}:
        return "jax"
    return next((framework for framework, modules in _FRAMEWORKS.items() if names.intersection(modules)), "")


def _list_imports(script: Path) -> Iterator[str]:
    """The top-level names of all modules that the script and its local modules import."""
    import ast

    waiting, seen = [script], {script}
    while waiting and len(seen) <= _MOST_FILES:
        try:
            tree = ast.parse(waiting.pop().read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue  # the job will report the error
        for name in _walk_imports(tree):
            yield name
            for found in (script.parent / f"{name}.py", script.parent / name / "__init__.py"):
                if found not in seen and found.is_file():
                    seen.add(found)
                    waiting.append(found)


def _walk_imports(tree: ast.AST) -> Iterator[str]:
    import ast

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def choose_runtime(framework: str) -> str:
    return _RUNTIMES.get(framework, DEFAULT_RUNTIME)


def build_command(script: str, arguments: Sequence[str], framework: str, policy: Mapping[str, Any]) -> tuple[str, ...]:
    """The command for every node. `policy` is the runtime's mlPolicy, which takes precedence over `framework`."""
    if "mpi" in policy:
        return ("mpirun", "python", script, *arguments)
    if "torch" in policy and framework == "torch":
        return ("torchrun", script, *arguments)
    return ("python", script, *arguments)


def check_processes(processes: str, command: Sequence[str], runtime: str, policy: Mapping[str, Any]) -> None:
    """Refuses several processes per node if the runtime or command has no launcher for them."""
    if processes in ("", "1") or "mpi" in policy or "torchtune" in command[:2]:
        return
    if "torch" in policy and Path(command[0]).name in ("torchrun", "accelerate"):
        return
    why = f"the runtime {runtime} starts one process per node"
    if "torch" in policy:
        why = f"{Path(command[0]).name} starts one process per node, and the script imports no torch"
    raise RunOptionError(f"--nproc {processes}: {why}; use --nodes, or start it with `-- torchrun SCRIPT`")


def check_wrapping(command: Sequence[str], runtime: Mapping[str, Any]) -> None:
    """Refuses code for commands that the controller completes or starts itself, so that they cannot unpack any."""
    if tuple(command[:2]) == torchtune.ENTRYPOINT:
        raise RunOptionError("the command of torchtune is completed by the controller and takes no code: add --no-code")
    if read_framework(runtime)[0] == "flux":
        raise RunOptionError("jobs of Flux start all their processes in one place and take no code: add --no-code")


class TrainingProgram:
    """A script with its arguments, or a command."""

    def __init__(self, script: str, rest: list[str], root: Path, framework: str) -> None:
        self.script = script
        """The path of the script in the job; "" for a command."""
        self.rest = rest
        self.root = root
        """The directory to upload."""
        self.framework = framework

    @classmethod
    def read(cls, options: argparse.Namespace) -> TrainingProgram:
        rest = list(options.rest)
        root = Path(options.code or ".").expanduser().absolute()
        if options.code and options.no_code:
            raise RunOptionError("--code and --no-code contradict each other")
        if not root.is_dir():
            raise RunOptionError(f"--code {options.code}: {root} is no directory")
        if rest[:1] == ["--"]:
            if not rest[1:]:
                raise RunOptionError("there is no command after `--`; write `trainmaster run -- COMMAND`")
            return cls("", rest[1:], root, "")
        if not rest:
            raise RunOptionError("what should run? Write `trainmaster run SCRIPT`, or `trainmaster run -- COMMAND`")
        if options.no_code:
            return cls(rest[0], rest[1:], root, find_framework(Path(rest[0])))
        return cls._read_script(rest, root, chosen=bool(options.code))

    @classmethod
    def _read_script(cls, rest: list[str], root: Path, *, chosen: bool) -> TrainingProgram:
        """`chosen`: the directory was given; otherwise a script outside `root` is uploaded with its own directory."""
        script = Path(rest[0])
        found = next((path for path in (script.absolute(), root / script) if path.is_file()), None)
        if found is None:
            what = "is a directory" if script.is_dir() else "does not exist"
            raise RunOptionError(f"the script {script} {what}; for a command write `trainmaster run -- {rest[0]} ...`")
        real = found.resolve()
        if not real.is_relative_to(root.resolve()):
            if chosen:
                raise RunOptionError(f"{script} is not below {root}, which is sent; choose --code {found.parent}")
            root = real.parent
        return cls(str(real.relative_to(root.resolve())), rest[1:], root, find_framework(found))
