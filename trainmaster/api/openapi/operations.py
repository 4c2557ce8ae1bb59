"""What can be done with each kind over HTTP, as data: paths, methods, parameters, bodies and answers.

One list of operations per kind, derived from its declaration; `v3` and `v2` write it down in their formats. kubectl
reads from it which kinds take `fieldValidation`, `dryRun` and `fieldManager`; test generators read everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainmaster.api.declaring import discovery
from trainmaster.api.declaring.kinds import Kind, Subresource

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
STATUS = META + "Status"
DELETE_OPTIONS = META + "DeleteOptions"
PATCH = META + "Patch"

PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str = "string"
    description: str = ""
    where: str = "query"
    enum: tuple[str, ...] = ()
    minimum: int | None = None
    max_length: int | None = None


@dataclass(frozen=True, slots=True)
class OpenApiOperation:
    path: str
    method: str
    id: str
    description: str
    action: str
    """What upstream calls it: get, list, post, put, patch, delete, deletecollection, connect."""
    group: str
    version: str
    kind: str
    """The type that the operation is about."""
    parameters: tuple[Parameter, ...] = ()
    body: str = ""
    """Definition of the request body; "" when there is none."""
    body_types: tuple[str, ...] = ("application/json",)
    answers: dict[int, str] = field(default_factory=dict)
    """Definition of the answer by status code; every other code is a Status."""
    text: bool = False
    """The answer is plain text."""


DRY_RUN = Parameter("dryRun", description="All: check everything and store nothing.", enum=("All",))
MANAGER = Parameter(
    "fieldManager", description="Who makes the change; owner of the changed fields in managedFields.", max_length=128
)
VALIDATION = Parameter(
    "fieldValidation",
    description="What to do about unknown and duplicate fields: refuse, warn and drop, or drop.",
    enum=("Ignore", "Warn", "Strict"),
)
FORCE = Parameter("force", "boolean", "Server-side apply only: take over fields that others own.")
WRITE = (DRY_RUN, MANAGER, VALIDATION)

SELECT = (
    Parameter("labelSelector", description="Only objects whose labels match."),
    Parameter("fieldSelector", description="Only objects whose fields match."),
)
LIST = (
    *SELECT,
    Parameter("limit", "integer", "At most so many objects in one answer.", minimum=0),
    Parameter("continue", description="Where the previous answer stopped."),
    Parameter("resourceVersion", description="How recent the answer must be, or where a watch starts."),
    Parameter(
        "resourceVersionMatch",
        description="How resourceVersion applies to a list.",
        enum=("Exact", "NotOlderThan"),
    ),
    Parameter("timeoutSeconds", "integer", "How long a watch lasts.", minimum=0),
    Parameter("watch", "boolean", "A stream of changes instead of a list."),
    Parameter("allowWatchBookmarks", "boolean", "A watch may say how far it is without an event."),
    Parameter("sendInitialEvents", "boolean", "A watch starts with the present state."),
)
DELETE = (
    DRY_RUN,
    Parameter("gracePeriodSeconds", "integer", "Time to end in; 0 is at once.", minimum=0),
    Parameter(
        "propagationPolicy",
        description="What happens to objects that this one owns.",
        enum=("Orphan", "Background", "Foreground"),
    ),
)
NAMESPACE = Parameter("namespace", description="Namespace of the object.", where="path")
NAME = Parameter("name", description="Name of the object.", where="path")
LOG = (
    Parameter("container", description="Which container; needed when there are several."),
    Parameter("follow", "boolean", "Stay and send what is added."),
    Parameter("previous", "boolean", "The log of the previous attempt."),
    Parameter("sinceSeconds", "integer", "Only lines of the last so many seconds.", minimum=1),
    Parameter("sinceTime", description="Only lines since this time."),
    Parameter("timestamps", "boolean", "Start each line with its time."),
    Parameter("tailLines", "integer", "Only the last so many lines.", minimum=0),
    Parameter("limitBytes", "integer", "Stop after so many bytes.", minimum=1),
    Parameter("uid", description="Only if the Pod has this uid. Kubernetes has no such parameter."),
)


def list_of(definition: str) -> str:
    """The name of the definition of a list."""
    return definition + "List"


def prefix_of(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def list_operations(kind: Kind) -> list[OpenApiOperation]:
    """All operations of a kind, collection first."""
    base = prefix_of(kind.group, kind.version)
    space = f"{base}/namespaces/{{namespace}}" if kind.namespaced else base
    scope = (NAMESPACE,) if kind.namespaced else ()
    collection, item = f"{space}/{kind.plural}", f"{space}/{kind.plural}/{{name}}"
    out = list(_on_collection(kind, collection, scope))
    if kind.namespaced and "list" in kind.verbs:
        out.append(_operation(kind, f"{base}/{kind.plural}", "list", ForAll, LIST))
    out.extend(_on_item(kind, item, (*scope, NAME)))
    for sub in discovery.list_subresources(kind):
        out.extend(_on_subresource(kind, sub, f"{item}/{sub.name}", (*scope, NAME)))
    return out


ForAll = "ForAllNamespaces"
_WORDS = {
    "list": ("get", "list", "List or watch {} objects."),
    "create": ("post", "create", "Create a {}."),
    "deletecollection": ("delete", "deleteCollection", "Delete all {} objects that match."),
    "get": ("get", "read", "Read one {}."),
    "update": ("put", "replace", "Replace one {}."),
    "patch": ("patch", "patch", "Change parts of one {}."),
    "delete": ("delete", "delete", "Delete one {}."),
}
_ACTIONS = {"create": "post", "update": "put"}


def _on_collection(kind: Kind, path: str, scope: tuple[Parameter, ...]) -> Iterator[OpenApiOperation]:
    if "list" in kind.verbs:
        yield _operation(kind, path, "list", "", (*scope, *LIST))
    if "create" in kind.verbs:
        yield _operation(kind, path, "create", "", (*scope, *WRITE))
    if "deletecollection" in kind.verbs:
        yield _operation(kind, path, "deletecollection", "", (*scope, *SELECT, *DELETE))


def _on_item(kind: Kind, path: str, scope: tuple[Parameter, ...]) -> Iterator[OpenApiOperation]:
    for verb, parameters in (
        ("get", ()),
        ("update", WRITE),
        ("patch", (*WRITE, FORCE)),
        ("delete", DELETE),
    ):
        if verb in kind.verbs:
            yield _operation(kind, path, verb, "", (*scope, *parameters))


def _on_subresource(
    kind: Kind, sub: Subresource, path: str, scope: tuple[Parameter, ...]
) -> Iterator[OpenApiOperation]:
    parameters = {"get": (), "update": WRITE, "patch": (*WRITE, FORCE), "create": WRITE}
    for verb in ("get", "create", "update", "patch"):
        if verb not in sub.verbs:
            continue
        more = LOG if sub.name == "log" else parameters[verb]
        operation = _operation(kind, path, verb, sub.name.capitalize(), (*scope, *more), sub)
        yield operation


def _operation(
    kind: Kind, path: str, verb: str, suffix: str, parameters: Sequence[Parameter], sub: Subresource | None = None
) -> OpenApiOperation:
    method, word, description = _WORDS[verb]
    own = sub is None or (sub.group, sub.version, sub.kind) == (kind.group, kind.version, kind.kind)
    definition = kind.definition if own or sub is None else _definition_of(sub)
    text = sub is not None and sub.name == "log"
    body, body_types = _body(kind, verb, definition)
    return OpenApiOperation(
        path=path,
        method=method,
        id=_operation_id(kind, word, suffix),
        description=description.format(kind.kind) if sub is None else f"{word} {sub.name} of one {kind.kind}.",
        action=_ACTIONS.get(verb, verb),
        group=kind.group if own or sub is None else sub.group,
        version=kind.version if own or sub is None else sub.version,
        kind=kind.kind if own or sub is None else sub.kind,
        parameters=tuple(parameters),
        body=body,
        body_types=body_types,
        answers=_answers(verb, definition),
        text=text,
    )


def _definition_of(sub: Subresource) -> str:
    """The definition of another kind that a subresource takes, for example a TokenRequest."""
    group = sub.group.partition(".")[0] or "core"
    return f"io.k8s.api.{group}.{sub.version}.{sub.kind}"


def _body(kind: Kind, verb: str, definition: str) -> tuple[str, tuple[str, ...]]:
    if verb in ("create", "update"):
        return definition, ("application/json",)
    if verb == "patch":
        types = PATCH_TYPES if not kind.custom else tuple(name for name in PATCH_TYPES if "strategic" not in name)
        return PATCH, types
    if verb in ("delete", "deletecollection"):
        return DELETE_OPTIONS, ("application/json",)
    return "", ()


def _answers(verb: str, definition: str) -> dict[int, str]:
    match verb:
        case "list":
            return {200: list_of(definition)}
        case "create":
            return {200: definition, 201: definition}
        case "update" | "patch":
            return {200: definition, 201: definition}
        case "delete" | "deletecollection":
            return {200: "", 202: ""}
    return {200: definition}


def _operation_id(kind: Kind, word: str, suffix: str) -> str:
    group = "".join(part.capitalize() for part in (kind.group or "core").split("."))
    scope = "Namespaced" if kind.namespaced and suffix != ForAll else ""
    return f"{word}{group}{kind.version.capitalize()}{scope}{kind.kind}{suffix}"
