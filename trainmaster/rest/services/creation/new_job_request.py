"""The parameters of a create request in `/api/v1`, and their validation. All errors are reported together.

Rules that the API server enforces anyway (quotas, names of runtimes, reserved variables) are left to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.api.formats import packages
from trainmaster.jobs.compose.request import RequestedMount
from trainmaster.rest.problems import FieldProblem, to_pointer
from trainmaster.rest.services.creation import naming
from trainmaster.rest.services.creation.code import CodeTree
from trainmaster.rest.services.creation.guide_request import GuideRequest, check_numbers
from trainmaster.rest.services.creation.syntax import find_syntax_error

_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_RESERVED = ("kubernetes.io", "k8s.io", "kubeflow.org", "trainmaster.dev", "x-k8s.io")
"""Setting these could impersonate a controller."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_OWN_PLACES = ("/workspace/scripts", "/shared", "/proc", "/sys", "/dev", "/etc")
_MOST_ENV_BYTES = 131_072


@dataclass(frozen=True, slots=True)
class NewJobRequest:
    basics: GuideRequest
    """User, namespace, framework ("" for a runtime) and amounts; its code is not used."""
    name: str | None = None
    runtime: str = ""
    runtime_kind: str = "ClusterTrainingRuntime"
    tree: CodeTree | None = None
    code_pointer: str = "/code"
    code_problems: Sequence[FieldProblem] = ()
    """Why there is no tree although code was sent."""
    command: Sequence[str] = ()
    arguments: Sequence[str] = ()
    """Behind the entry point, or behind the command."""
    processes: int | None = None
    """Per node; None leaves it to the runtime."""
    queue: str = ""
    """Of Kueue."""
    packages: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[RequestedMount] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    ttl_seconds: int | None = None
    deadline_seconds: int | None = None
    suspended: bool = False
    resume_from: str = ""
    """UID/NAME of a checkpoint of another job of the namespace."""
    keep_checkpoints: int | None = None


async def list_new_job_problems(request: NewJobRequest, *, max_nodes: int, check_code: bool) -> list[FieldProblem]:
    """All invalid fields, except an unknown framework or runtime."""
    errors = [*_check_names(request), *check_numbers(request.basics, max_nodes), *_check_details(request)]
    errors += request.code_problems
    if request.tree is not None and check_code:
        errors += await _check_program(request.tree, request.code_pointer)
    return errors


def _check_names(request: NewJobRequest) -> Iterator[FieldProblem]:
    if not naming.is_user(request.basics.user_id):
        near = naming.suggest_user(request.basics.user_id)
        yield FieldProblem(f"{naming.USER_RULE}{f'; try {near!r}' if near else ''}", pointer="/user")
    if request.name is not None and (problem := naming.find_name_problem(request.name, request.basics.num_nodes)):
        yield FieldProblem(problem, pointer="/name")
    if bool(request.basics.framework) == bool(request.runtime):
        yield FieldProblem("either framework or runtime is needed, and not both", pointer="/framework")
    has_code = request.tree is not None or request.code_problems
    if not has_code and request.basics.framework:
        yield FieldProblem("one of code, files and archive is needed with a framework", pointer="/code")
    if not has_code and not request.command and request.runtime:
        yield FieldProblem("code or a command is needed", pointer="/code")
    if request.command and request.basics.framework:
        yield FieldProblem("a framework has its own command; name a runtime to use yours", pointer="/command")
    for name, value in (("arguments", request.arguments), ("processes_per_node", request.processes)):
        if value and request.basics.framework:
            yield FieldProblem("a framework's template decides this; name a runtime instead", pointer=f"/{name}")
    if request.arguments and not has_code and not request.command:
        yield FieldProblem("arguments need code or a command", pointer="/arguments")
    if request.queue and not _CLAIM.fullmatch(request.queue):
        yield FieldProblem("is no name of a queue: lower-case letters, digits, '-', '.'", pointer="/queue")


async def _check_program(tree: CodeTree, pointer: str) -> list[FieldProblem]:
    try:
        code = tree.files[tree.entry].decode()
    except UnicodeDecodeError as error:
        return [FieldProblem(f"{tree.entry} is not UTF-8 at byte {error.start}", pointer=pointer)]
    if not code.strip():
        return [FieldProblem(f"{tree.entry} is empty: send the text of a Python program", pointer=pointer)]
    if "\0" in code:
        return [FieldProblem(f"{tree.entry} has a NUL character, which no Python program may have", pointer=pointer)]
    found = await find_syntax_error(code)
    return [FieldProblem(f"{tree.entry} {found}", pointer=pointer)] if found else []


def _check_details(request: NewJobRequest) -> Iterator[FieldProblem]:
    for number, package in enumerate(request.packages):
        if len(package) > 500 or not packages.is_plain(package):
            text = "is no requirement: write NAME, NAME==VERSION or NAME[EXTRA]>=VERSION; no options, URLs or paths"
            yield FieldProblem(text, pointer=to_pointer(["packages", number]))
    for name, value in request.env.items():
        if not _VARIABLE.fullmatch(name):
            yield FieldProblem("is no name of a variable: letters, digits and '_'", pointer=to_pointer(["env", name]))
        elif "\0" in value or not _is_utf8(value):
            yield FieldProblem("has a character that no variable may have", pointer=to_pointer(["env", name]))
    if sum(len(name) + len(value) for name, value in request.env.items()) > _MOST_ENV_BYTES:
        yield FieldProblem(f"has more than {_MOST_ENV_BYTES} bytes in all", pointer="/env")
    for name, words in (("command", request.command), ("arguments", request.arguments)):
        for number, word in enumerate(words):
            if "\0" in word or not _is_utf8(word):
                yield FieldProblem("has a character that no program can be given", pointer=to_pointer([name, number]))
    yield from _check_mounts(request.mounts)
    for key, value in request.labels.items():
        domain = key.partition("/")[0] if "/" in key else ""
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            yield FieldProblem("is no label: letters, digits, '-', '_', '.'", pointer=to_pointer(["labels", key]))
        elif any(domain == name or domain.endswith(f".{name}") for name in _RESERVED):
            text = f"labels of {domain} are not for users: choose a domain of your own, or none"
            yield FieldProblem(text, pointer=to_pointer(["labels", key]))


def _check_mounts(mounts: Sequence[RequestedMount]) -> Iterator[FieldProblem]:
    seen: set[str] = set()
    for number, mount in enumerate(mounts):
        pointer = to_pointer(["volumes", number])
        if not _CLAIM.fullmatch(mount.source):
            yield FieldProblem("is no name of a claim", pointer=f"{pointer}/claim")
        path = mount.path.rstrip("/")
        plain = path.startswith("/") and not any(part in ("", ".", "..") for part in path.split("/")[1:])
        if not plain or not path.isprintable() or ":" in path or len(path) > 500:
            yield FieldProblem("must be an absolute path without '..'", pointer=f"{pointer}/mount_path")
        elif any(path == own or path.startswith(f"{own}/") for own in _OWN_PLACES):
            yield FieldProblem(f"{path} belongs to the job itself: choose another", pointer=f"{pointer}/mount_path")
        elif path in seen:
            yield FieldProblem(f"{path} stands twice", pointer=f"{pointer}/mount_path")
        seen.add(path)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
