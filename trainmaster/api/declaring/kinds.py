"""What a served kind is. Each kind is declared once, in a module under `api/kindsets/`, as one `Kind` value.

From that declaration come validation, defaulting, `kubectl explain`, Table output, OpenAPI, discovery, field
selectors and the CRD YAML. Adding a kind is adding one declaration (and, for its structure, one schema file).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, TypeAlias, Union

from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import GVR, Fields, Object

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")

DefaultRole: TypeAlias = Literal["view", "edit", "admin", "tenant", "basic-user", "auth-delegator", "runtime-viewer"]
RoleGrants: TypeAlias = Mapping[DefaultRole, Mapping[str, Sequence[str]]]
"""By role and subresource the verbs that it grants; "" is the object itself."""


class Fidelity(Enum):
    """What the local mode does with a field."""

    HONOURED = "honoured"
    APPROXIMATED = "approximated"
    REFUSED = "refused"
    IGNORED_BY_DESIGN = "inert"
    """Has no meaning on one machine and no effect upstream either (for example a deprecated field)."""


FidelityTable: TypeAlias = Mapping[str, Union[Fidelity, tuple[Fidelity, str], "FidelityTable"]]
"""By field: its class, its class with a note, or a table of the fields below (`fidelity`)."""


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column. `cell(object, now_seconds)` renders it; kubectl prints cells verbatim."""

    name: str
    cell: Callable[[Object, float], Any]
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""
    json_path: str = ""
    """For the CRD YAML of custom kinds; built-in kinds leave it empty."""


@dataclass(frozen=True, slots=True)
class Subresource:
    """Other than `status`, for example `log` on Pods: name, verbs, and the kind that discovery shows."""

    name: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    kind: str = ""


def _is_free(obj: Object) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class UpdateRules:
    """Where updates of a kind differ from the usual; each is upstream's way."""

    creates: bool = False
    """PUT of a name that does not exist creates the object."""
    needs_version: bool = False
    """It must name the resourceVersion that it replaces. Of custom kinds every update must."""
    keeps_spec: bool = False
    """The spec is the server's own, and an update leaves it as it was."""
    status_keeps: tuple[str, ...] = ()
    """Fields of metadata that a write of the status leaves as they were. Of custom kinds it leaves nearly all."""


@dataclass(frozen=True, slots=True)
class DeletionRules:
    """Where deletions of a kind differ from the usual; each is upstream's way."""

    grace: Callable[[Object, int | None], int] | None = None
    """Graceful deletion (Pods): the seconds that an object gets when so many are asked for (None: nobody said)."""
    begin: Callable[[Object], None] | None = None
    """Deletion has two steps even when nothing holds the object (Namespaces); changes it in place at the first."""
    is_held: Callable[[Object], bool] = _is_free
    """Whether something besides its finalizers keeps a deleted object."""
    orphan_warning: str = ""
    """Without a propagation policy its dependents are left behind (Jobs), and this is what the caller is told."""
    answers_with_object: bool = False
    """The answer is the object that is gone, and not a Status."""


def _names_all(obj: Object, hard: Fields) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class QuotaRules:
    """What quotas know of a kind besides `count/PLURAL.GROUP`, under which objects of every kind are counted."""

    counts_plural: bool = False
    """Its objects are counted under the bare plural too."""
    measure: Callable[[Object], dict[str, Fraction]] | None = None
    """What an object asks for, under every name that a quota may give it; empty once it asks for nothing any more."""
    list_unspecified: Callable[[Object, Fields], Sequence[str]] = _names_all
    """What an object must name because the quota limits it (its `spec.hard`), and does not."""
    writes_data: bool = False
    """Its objects lead to data on the disk: none is let in where the quota for storage is used up."""


@dataclass(frozen=True, slots=True)
class TenantRules:
    """What is looked at when a tenant writes an object of a kind."""

    list_gangs: Callable[[Fields], Iterator[tuple[int, Fields]]] | None = None
    """(Pods, what each is made from), for every job in an object; None for kinds that lead to no Pods."""
    reserved: tuple[str, ...] = ()
    """How labels and annotations begin that only controllers write, in an object and in the templates in it."""
    controlled: bool = False
    """Only controllers name themselves as the controller of an object."""


def _no_errors(new: Object, old: Object | None) -> list[FieldError]:
    return []


def _nothing(obj: Object) -> None:
    return None


@dataclass(frozen=True, eq=False, repr=False)
class Kind:
    """Compared by identity: there is one value per kind."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    definition: str
    """Name of the schema definition of the whole object."""
    load: Callable[[], SchemaNode]
    """Builds (once) the schema tree of the whole object; lazy, because start-up must be fast."""
    custom: bool = False
    """Served upstream through a CRD: no strategic merge, CRD error texts, schema defaults and CEL rules apply."""
    name_form: str = "subdomain"
    """What metadata.name must be: subdomain, label, path (a URL path segment) or any; see `validation.names`."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    status: bool = False
    """Has a status subresource: main writes keep the stored status, /status writes keep the rest."""
    subresources: tuple[Subresource, ...] = ()
    columns: tuple[Column, ...] = ()
    """All columns in order, the name among them; see `cells` for the common ones."""
    default: Callable[[Object], None] = _nothing
    """Defaulting beyond the schema's own defaults; changes the object in place; idempotent."""
    validate: Callable[[Object, Object | None], list[FieldError]] = _no_errors
    """Rules beyond the schema. `old` is None on create. The objects are complete and defaulted."""
    validate_status: Callable[[Object, Object | None], list[FieldError]] = _no_errors
    prepare: Callable[[Object], None] = _nothing
    """Create only, after defaulting: the initial status and other fields a server sets itself."""
    warnings: Callable[[Object, Object | None], Sequence[str]] = field(default=lambda new, old: ())
    """API warnings (`Warning: 299`), for example on older spellings."""
    selectable: Mapping[str, Callable[[Object], str]] = field(default_factory=dict)
    """Field selectors besides metadata.name and metadata.namespace."""
    generation: bool = True
    """metadata.generation counts changes outside metadata and status."""
    light: dict[str, Callable[[str], list[str]]] | None = None
    """Fields of spec that no rule reads together with others, each with the complaints about a first value. With it
    (empty too) a patch of those, of labels or of annotations does not validate the rest again; the kind's `validate`
    must not read labels or annotations then. A first value of theirs does not count as a generation."""
    storage: GVR | None = None
    """Where objects are stored when that is another kind's collection (events.k8s.io shares core events)."""
    to_storage: Callable[[Object], Object] | None = None
    from_storage: Callable[[Object], Object] | None = None
    review: bool = False
    """Create-only and never stored: the server answers itself (access reviews, TokenReview)."""
    measured: bool = False
    """Read-only and never stored: made anew for everybody who asks (metrics.k8s.io)."""
    updates: UpdateRules = UpdateRules()
    deletions: DeletionRules = DeletionRules()
    quotas: QuotaRules = QuotaRules()
    tenants: TenantRules = TenantRules()
    roles: RoleGrants = field(default_factory=dict)
    """What the default roles grant on it (`auth.roles`)."""
    fidelity: FidelityTable = field(default_factory=dict)
    """What the local mode does with each of its fields."""

    def __repr__(self) -> str:
        return f"Kind({self.api_version} {self.kind})"

    @cached_property
    def gvr(self) -> GVR:
        return GVR(self.group, self.version, self.plural)

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def collection(self) -> str:
        """Where its objects are stored; versions of a kind share it, and so do kinds with the same `storage`."""
        return (self.storage or self.gvr).collection

    @cached_property
    def is_kept_as_given(self) -> bool:
        """Whether the server writes nothing into a new object but its metadata."""
        return self.default is _nothing and self.prepare is _nothing

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"


class Catalogue:
    """All served kinds, looked up by path or by type. Built once by `api.catalogue.build()`."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.kinds: tuple[Kind, ...] = tuple(kinds)
        self._by_gvr = {kind.gvr: kind for kind in self.kinds}
        self._by_type = {(kind.api_version, kind.kind): kind for kind in self.kinds}

    def find(self, gvr: GVR) -> Kind | None:
        return self._by_gvr.get(gvr)

    def find_type(self, api_version: str, kind: str) -> Kind | None:
        return self._by_type.get((api_version, kind))

    def groups(self) -> Mapping[str, Sequence[str]]:
        """Group name to its versions, core first, then in declaration order."""
        groups: dict[str, list[str]] = {}
        for kind in self.kinds:
            versions = groups.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        return groups

    def of_group_version(self, group: str, version: str) -> Sequence[Kind]:
        return [kind for kind in self.kinds if kind.group == group and kind.version == version]
