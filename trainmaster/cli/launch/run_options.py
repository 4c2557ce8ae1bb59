"""Parses the short forms of options of `trainmaster run`. Pure.

    --env LR=0.1          --env WANDB_API_KEY            (the second takes the value from your environment)
    --volume ../data      --volume ./data:/data          (a path of this machine, at the same place or another)
    --volume scratch:/scratch:ro                         (the name of a claim)
    --secret keys         --secret keys:/run/keys        --secret keys/token=HF_TOKEN

A `RunOptionError` is one sentence that says how to write the option.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from trainmaster.jobs.compose import names
from trainmaster.jobs.compose.request import CLAIM, HOST, SECRET, RequestedMount, SecretVariable

# Compiled on demand, to start faster: most command lines need only one or two of them.
_VARIABLE = r"[A-Za-z_.-][A-Za-z0-9_.-]*"
_NAME = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
_LABEL_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_QUANTITY = r"\d+(\.\d+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?"
GPU = "nvidia.com/gpu"


class RunOptionError(Exception):
    """An option is malformed; the text says which one and how to write it."""


def parse_env(texts: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    env: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not re.fullmatch(_VARIABLE, name):
            raise RunOptionError(f"--env {text}: {name!r} is no name of a variable; write --env NAME=VALUE")
        if not equals:
            if name not in environ:
                raise RunOptionError(f"--env {name}: this variable is not set here; write --env {name}=VALUE")
            value = environ[name]
        env[name] = value
    return env


def parse_volume(text: str, here: Path, root: Path | None = None) -> RequestedMount:
    """SOURCE or SOURCE:PATH, with :ro for read-only; a source that begins with a slash, a dot or a tilde is a path.

    `root`: the directory with the code, which becomes the working directory; None if no code is sent. Without a PATH
    the program finds the source at the same place as here: relative to its working directory, or absolute.
    """
    body, read_only = (text[:-3], True) if text.endswith(":ro") else (text.removesuffix(":rw"), False)
    is_path = body.startswith(("/", ".", "~"))
    source, colon, path = body.rpartition(":")
    if is_path and not colon:
        source, path = body, ""
    if not source or not (colon or is_path):
        raise RunOptionError(f"--volume {text}: write --volume ./data, ./data:/data or CLAIM:/data")
    if colon:
        _check_path(f"--volume {text}", path)
    if is_path:
        found = (here / Path(source).expanduser()).absolute()
        if not found.exists():
            raise RunOptionError(f"--volume {text}: {found} does not exist; create it, or name a claim")
        return RequestedMount(HOST, str(found.resolve()), path or _find_same_place(text, source, here, root), read_only)
    if not re.fullmatch(_NAME, source):
        raise RunOptionError(f"--volume {text}: {source!r} is no name of a claim; a path begins with ./ or /")
    return RequestedMount(CLAIM, source, path, read_only)


def _find_same_place(text: str, source: str, here: Path, root: Path | None) -> str:
    """Where the program looks for that path, if it is written as in the option."""
    from trainmaster.api.code import MOUNT_PATH

    place = os.path.abspath(here.resolve() / Path(source).expanduser())
    path, other = place, f"choose a path inside the job: --volume {source}:/data"
    if source.startswith("."):
        if root is None:
            raise RunOptionError(f"--volume {text}: without code there is no place that it is relative to; {other}")
        path = os.path.normpath(f"{MOUNT_PATH}/{os.path.relpath(place, root.resolve())}")
    if f"{MOUNT_PATH}/".startswith(f"{path.rstrip('/')}/"):
        raise RunOptionError(f"--volume {text}: {place} contains the code, which is sent already; {other}")
    if path.count("/") == 1 and path != place and os.path.exists(path):
        raise RunOptionError(f"--volume {text}: it would replace {path} of this machine; {other}")
    return path


def parse_secret(text: str) -> RequestedMount | SecretVariable | str:
    """NAME (all keys as variables), NAME:PATH (files), NAME/KEY or NAME/KEY=VARIABLE (one variable)."""
    name, colon, path = text.partition(":")
    if colon:
        _check_path(f"--secret {text}", path)
        return RequestedMount(SECRET, _check_secret(text, name), path, read_only=True)
    name, slash, key = text.partition("/")
    if not slash:
        return _check_secret(text, name)
    key, equals, variable = key.partition("=")
    variable = variable if equals else key
    if not key or not re.fullmatch(_VARIABLE, variable):
        raise RunOptionError(f"--secret {text}: write --secret NAME/KEY=VARIABLE")
    return SecretVariable(_check_secret(text, name), key, variable)


def _check_secret(text: str, name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise RunOptionError(
            f"--secret {text}: {name!r} is no name of a Secret; write NAME, NAME:PATH or NAME/KEY=VARIABLE"
        )
    return name


def _check_path(where: str, path: str) -> None:
    if not path.startswith("/") or ".." in PurePosixPath(path).parts or path == "/":
        raise RunOptionError(f"{where}: {path!r} must be an absolute path inside the job, such as /data")


def check_stdin(options: argparse.Namespace, *, wants_tty: bool) -> None:
    """Refuses `--stdin` with options that would leave a program waiting for input."""
    if options.detach:
        raise RunOptionError("--stdin and --detach contradict each other: `kubectl attach -i` talks to a detached job")
    if not wants_tty and options.nodes > 1:
        raise RunOptionError(
            f"--stdin with --nodes {options.nodes} needs a terminal: only rank 0 gets the input, and the others would "
            "wait for theirs"
        )
    if not wants_tty and options.max_restarts:
        raise RunOptionError("--stdin with --max-restarts needs a terminal: input that was read cannot be read again")


def parse_package(text: str, here: Path) -> list[str]:
    """Requirements; paths become absolute, because the server has another working directory."""
    # Imported here because most runs install nothing.
    from trainmaster.api.formats import packages

    return [_parse_requirement(entry, here, packages.find_problem(entry)) for entry in packages.split(text)]


def _parse_requirement(entry: str, here: Path, problem: str) -> str:
    if problem.startswith("is a path"):
        path, bracket, extras = entry.partition("[")
        found = here / Path(path).expanduser()
        if not found.exists():
            raise RunOptionError(f"--package {entry}: there is no {found}")
        return f"{found.resolve()}{bracket}{extras}"
    if problem.startswith(("is no requirement", "is an option")):
        raise RunOptionError(f"--package {entry}: this {problem}")
    return entry


def parse_resources(gpu: str, cpu: str, memory: str) -> dict[str, str]:
    """Amounts per node. --gpu takes a number, or RESOURCE=NUMBER for resources other than nvidia.com/gpu."""
    resources = {}
    for option, name, amount in (("--cpu", "cpu", cpu), ("--memory", "memory", memory)):
        if amount and not re.fullmatch(_QUANTITY, amount):
            raise RunOptionError(
                f"{option} {amount}: write an amount such as {'2 or 500m' if name == 'cpu' else '4Gi'}"
            )
        if amount:
            resources[name] = amount
    if gpu:
        name, equals, amount = gpu.rpartition("=")
        if not amount.isdecimal() or (equals and "/" not in name):
            raise RunOptionError(f"--gpu {gpu}: write a number, or RESOURCE=NUMBER such as amd.com/gpu=1")
        if int(amount):
            resources[name or GPU] = amount
    return resources


def parse_labels(texts: Sequence[str]) -> dict[str, str]:
    labels = {}
    for text in texts:
        key, equals, value = text.partition("=")
        prefix, slash, name = key.rpartition("/")
        good = re.fullmatch(_LABEL_NAME, name) and (not slash or re.fullmatch(_NAME, prefix))
        if not equals or not good or (value and not re.fullmatch(_LABEL_NAME, value)):
            raise RunOptionError(f"--label {text}: write --label KEY=VALUE, both of letters, digits, '-', '_' and '.'")
        labels[key] = value
    return labels


def parse_processes(text: str) -> str:
    if text and text not in ("auto", "cpu", "gpu") and (not text.isdecimal() or int(text) < 1):
        raise RunOptionError(f"--nproc {text}: write a number of processes per node, or auto, cpu or gpu")
    return text


def check_name(name: str, nodes: int) -> str:
    longest = names.get_longest(nodes)
    if not names.is_job_name(name, longest):
        raise RunOptionError(
            f"--name {name}: a job's name has at most {longest} lower-case letters, digits and '-', "
            "and begins with a letter"
        )
    return name


def build_name(first_word: str, suffix: str) -> str:
    """The name of a job without --name: the name of its program and a unique suffix."""
    stem = PurePosixPath(first_word).name.partition(".")[0].lower()
    stem = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:24].rstrip("-")
    return f"{stem if stem[:1].isalpha() else 'job'}-{suffix}"
