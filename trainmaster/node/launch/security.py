"""Determines users, groups and privileges of a container, from its own and the Pod's securityContext. Pure.

Honoured if the level supports it: a process gets another user only in a sandbox or if the server is root. What is not
possible is reported in a note, and what would weaken the machine (privileged, added capabilities) is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_fields
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.launch.contract import CONFIG_ERROR, UNSUPPORTED, LaunchError
from trainmaster.shim.protocol import PLAIN


@dataclass(frozen=True, slots=True)
class Privileges:
    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()
    read_only_root: bool = False
    new_privileges: bool = False
    notes: tuple[str, ...] = ()


def decide_privileges(pod: Pod, container: Fields, level: str, server_uid: int) -> Privileges:
    own = read_fields(container, "securityContext")
    shared = pod.security_context
    _refuse(container["name"], own, shared)
    user = own.get("runAsUser", shared.get("runAsUser"))
    group = own.get("runAsGroup", shared.get("runAsGroup"))
    _check_non_root(pod, container["name"], own, shared, server_uid if user is None else user)
    groups = dict.fromkeys(list_items(shared, "supplementalGroups"))
    if shared.get("fsGroup") is not None:
        groups[shared["fsGroup"]] = None
    notes = []
    if level == PLAIN:
        if user is not None and user != server_uid:
            notes.append(f"runAsUser {user} became {server_uid}: the plain level has one user for all")
        elif (group is not None or groups) and user is None:
            notes.append("runAsGroup, fsGroup and supplementalGroups have no effect on the plain level")
        if own.get("readOnlyRootFilesystem"):
            notes.append("readOnlyRootFilesystem has no effect on the plain level")
        user, group, groups = None, None, {}
    for scope in (own, shared):
        profile = read_fields(scope, "seccompProfile").get("type")
        if profile == "RuntimeDefault" and not notes:
            notes.append("seccompProfile RuntimeDefault: the node's own rules apply")
    return Privileges(
        user,
        group,
        tuple(groups),
        read_only_root=bool(own.get("readOnlyRootFilesystem")) and level != PLAIN,
        new_privileges=own.get("allowPrivilegeEscalation") is True,
        notes=tuple(notes),
    )


def _refuse(name: str, own: Fields, shared: Fields) -> None:
    asked = []
    if own.get("privileged"):
        asked.append("privileged")
    if read_fields(own, "capabilities").get("add"):
        asked.append("capabilities.add")
    for scope in (own, shared):
        if read_fields(scope, "seccompProfile").get("type") == "Localhost":
            asked.append("seccompProfile Localhost")
    if asked:
        raise LaunchError(UNSUPPORTED, f'container "{name}" asks for {", ".join(asked)}, which this node does not give')


def _check_non_root(pod: Pod, name: str, own: Fields, shared: Fields, uid: int) -> None:
    if not own.get("runAsNonRoot", shared.get("runAsNonRoot")) or uid != 0:
        return
    where = f'(pod: "{pod.name}_{pod.namespace}({pod.uid})", container: {name})'
    if own.get("runAsUser", shared.get("runAsUser")) == 0:
        raise LaunchError(CONFIG_ERROR, f"container's runAsUser breaks non-root policy {where}")
    raise LaunchError(CONFIG_ERROR, f"container has runAsNonRoot and image will run as root {where}")
