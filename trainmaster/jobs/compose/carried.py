"""Code that travels with its job, to servers that cannot read this machine: a ConfigMap with the packed code, which the
containers unpack before they start their program. Pure.

    /workspace/.code/code.tar.gz    the ConfigMap, read-only
    /workspace/code                 an emptyDir of the Pod with the files, where the program starts

The program that unpacks is part of the command, because a TrainJob can change the command of any runtime, but cannot
add an init container. It needs `sh`, and `tar` with `gzip` or Python. A container that restarts in its Pod finds the
files as it left them; one that was stopped while unpacking unpacks again.
"""

from __future__ import annotations

import base64
from collections.abc import Container, Mapping, Sequence

from trainmaster.api.code import MOUNT_PATH, VOLUME_NAME
from trainmaster.api.labels import CODE_MAP, CODE_OF, OWNERLESS
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items
from trainmaster.api.training.steps import NODE, find_container, find_trainer, list_jobs
from trainmaster.jobs.compose.request import MountedCode

FILE = "code.tar.gz"
PACKED_PATH = "/workspace/.code"
PACKED_VOLUME = "code-packed"

_PYTHON = (
    "import sys, tarfile; "
    'kept = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}; '
    "tarfile.open(sys.argv[1]).extractall(sys.argv[2], **kept)"
)
_UNPACK = f"""\
code=$1 packed=$2 begun=$1/.unpacking
shift 2
unpack() {{
  if command -v tar && command -v gzip; then tar -xozpf "$packed" -C "$code"
  elif python=`command -v python3 || command -v python`; then "$python" -c '{_PYTHON}' "$packed" "$code"
  else echo "trainmaster: the image has neither tar with gzip nor python, which unpack the code" >&2; return 1
  fi >/dev/null
}}
if [ -e "$begun" ] || [ -z "`ls -A "$code"`" ]; then
  : >"$begun" && unpack && rm "$begun" ||
    {{ echo "trainmaster: the code could not be unpacked into $code" >&2; exit 1; }}
fi
PYTHONUNBUFFERED=${{PYTHONUNBUFFERED-1}}
export PYTHONUNBUFFERED
"""
_ENTER = 'cd "$code" || exit\n'
_START = 'exec "$@"\n'


def wrap(command: Sequence[str], path: str = MOUNT_PATH, *, enters: bool = True) -> tuple[str, ...]:
    """The command that unpacks the code first. `enters`: the program starts in the directory of the code, which is so
    for containers without a `workingDir`."""
    script = _UNPACK + (_ENTER if enters else "") + _START
    # Paths are separate words because the node replaces them at isolation level `plain`.
    return ("sh", "-c", script, "trainmaster", path, f"{PACKED_PATH}/{FILE}", *command)


def carry(archive: bytes, name: str, job: str, namespace: str, annotations: Mapping[str, str]) -> MountedCode:
    """`name`: of the ConfigMap; `annotations`: where the code comes from."""
    body: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {CODE_OF: job, OWNERLESS: "true"},
            "annotations": dict(annotations),
        },
        "immutable": True,
        "binaryData": {FILE: base64.b64encode(archive).decode()},
    }
    volume = {"name": VOLUME_NAME, "emptyDir": {}}
    return MountedCode(volume, MOUNT_PATH, annotations={**annotations, CODE_MAP: name}, config_map=body)


def list_packed_volumes(code: MountedCode) -> list[tuple[Object, Object]]:
    """The volume with the packed code and its mount; none if the node has the code."""
    if code.config_map is None:
        return []
    return [(build_packed_volume(code.config_map["metadata"]["name"]), build_packed_mount())]


def build_packed_volume(config_map: str) -> Object:
    return {"name": PACKED_VOLUME, "configMap": {"name": config_map}}


def build_packed_mount() -> Object:
    return {"name": PACKED_VOLUME, "mountPath": PACKED_PATH, "readOnly": True}


def has_own_directory(jobset: Fields) -> bool:
    """Whether the runtime says where the trainer's program starts."""
    container = find_container(find_trainer(jobset) or {}, NODE) or {}
    return bool(container.get("workingDir"))


def wrap_helpers(jobset: Object, path: str = MOUNT_PATH, names: Container[str] | None = None) -> None:
    """Wraps the commands of the jobs beside the trainer, such as the workers of MPI, in a copy of a runtime: of all, or
    of these. Those that run the entrypoint of their image stay without the code."""
    trainer = find_trainer(jobset)
    for job in list_jobs(jobset):
        is_helper = job is not trainer and (names is None or job["name"] in names)
        container = find_container(job, NODE) if is_helper else None
        if container is not None and container.get("command"):
            words = [*container["command"], *list_items(container, "args")]
            # Not escaped: the words of a runtime are.
            first, *rest = wrap(words, path, enters=not container.get("workingDir"))
            container["command"], container["args"] = [first], rest
