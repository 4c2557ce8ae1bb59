"""The parameters of the guide's create request, and their validation.

Rules that the server enforces anyway (quotas, names of runtimes) are left to it. The checks here are for what only the
REST API knows: the code, the user's id, and unreasonable numbers. All errors are reported together.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.formats import quantity
from trainmaster.rest.problems import FieldProblem
from trainmaster.rest.services.creation import naming
from trainmaster.rest.services.creation.syntax import find_syntax_error

CODE_BYTES = 1_000_000
"""A ConfigMap holds 1 MiB, including its names."""
_MOST_CPU, _MOST_MEMORY = 100_000, 2**50


@dataclass(frozen=True, slots=True)
class GuideRequest:
    user_id: str
    namespace: str
    framework: str
    code: str
    num_nodes: int = 1
    gpu_per_node: int = 0
    cpu_per_node: str | None = None
    """A quantity; None requests nothing."""
    memory_per_node: str | None = None


async def list_guide_problems(request: GuideRequest, *, max_nodes: int, check_code: bool) -> list[FieldProblem]:
    """All invalid fields, except an unknown framework."""
    errors = [*_check_names(request), *check_numbers(request, max_nodes)]
    found = _check_text(request.code)
    if not found and check_code:
        found = await find_syntax_error(request.code)
    if found:
        errors.append(FieldProblem(found, pointer="/training_code"))
    return errors


def _check_names(request: GuideRequest) -> list[FieldProblem]:
    errors = []
    if not naming.is_user(request.user_id):
        near = naming.suggest_user(request.user_id)
        text = f"{naming.USER_RULE}{f'; try {near!r}' if near else ''}"
        errors.append(FieldProblem(text, pointer="/user_id"))
    elif len(request.user_id) > (most := naming.get_longest_user(request.num_nodes)):
        text = f"is too long for {request.num_nodes} nodes, whose names contain it: at most {most} characters"
        errors.append(FieldProblem(text, pointer="/user_id"))
    if not naming.is_namespace(request.namespace):
        text = "a namespace is a DNS label: lower-case letters, digits and '-', at most 63 characters"
        errors.append(FieldProblem(text, pointer="/namespace"))
    return errors


def check_numbers(request: GuideRequest, max_nodes: int) -> list[FieldProblem]:
    errors = []
    if not 1 <= request.num_nodes <= max_nodes:
        errors.append(FieldProblem(f"must be 1 to {max_nodes}, not {request.num_nodes}", pointer="/config/num_nodes"))
    if not 0 <= request.gpu_per_node <= 1024:
        errors.append(FieldProblem(f"must be 0 to 1024, not {request.gpu_per_node}", pointer="/config/gpu_per_node"))
    for name, text, most, example in (
        ("cpu_per_node", request.cpu_per_node, _MOST_CPU, "4 or 500m"),
        ("memory_per_node", request.memory_per_node, _MOST_MEMORY, "16Gi or 512Mi"),
    ):
        if text is not None and not _is_amount(text, most):
            errors.append(FieldProblem(f"{text[:40]!r} is no amount: write {example}", pointer=f"/config/{name}"))
    return errors


def _is_amount(text: str, most: int) -> bool:
    try:
        return 0 < quantity.parse(text) <= most
    except ValueError:
        return False


def _check_text(code: str) -> str:
    """What is wrong with the code as text; "" if nothing is."""
    if not code.strip():
        return "is empty: send the text of a Python program"
    try:
        size = len(code.encode())
    except UnicodeEncodeError as error:
        return f"is not UTF-8 at character {error.start}: it has half of a surrogate pair"
    if size > CODE_BYTES:
        return f"has {size} bytes; at most {CODE_BYTES} fit: keep data in files or volumes"
    if "\0" in code:
        return "has a NUL character, which no Python program may have"
    return ""
