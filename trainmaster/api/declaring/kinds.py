"""The declaration of a served kind. Each is one `Kind` value in a module under `api/kindsets/`.

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
"""The granted verbs by role and subresource; "" is the object itself."""


class Fidelity(Enum):
    """How embedded mode handles a field."""

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


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The subresource `scale` of a kind: the fields of its objects that a Scale shows and changes, as in a CRD."""

    spec: str
    status: str
    selector: str = ""
    default: int = 1
    """The number of replicas if the field of spec is not set."""


def _is_free(obj: Object) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class UpdateRules:
    """Exceptions for updates of a kind, as upstream."""

    creates: bool = False
    """PUT of a name that does not exist creates the object."""
    needs_version: bool = False
    """An update must include resourceVersion. This always holds for custom kinds."""
    keeps_spec: bool = False
    """An update does not change the spec, because the server owns it."""
    status_keeps: tuple[str, ...] = ()
    """Fields of metadata that a status write does not change. For custom kinds it changes almost none."""


@dataclass(frozen=True, slots=True)
class DeletionRules:
    """Exceptions for deletions of a kind, as upstream."""

    grace: Callable[[Object, int | None], int] | None = None
    """Graceful deletion (Pods): the grace period of an object, given the requested seconds or None."""
    begin: Callable[[Object], None] | None = None
    """Deletion always has two steps (Namespaces); changes the object in place at the first."""
    is_held: Callable[[Object], bool] = _is_free
    """Whether something other than finalizers prevents the removal of the object."""
    orphan_warning: str = ""
    """Without a propagation policy dependents are orphaned (Jobs), with this warning."""
    answers_with_object: bool = False
    """The response is the deleted object instead of a Status."""


def _names_all(obj: Object, hard: Fields) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class QuotaRules:
    """Quota resources of a kind besides `count/PLURAL.GROUP`, which every kind has."""

    counts_plural: bool = False
    """Objects are also counted under the plural alone."""
    measure: Callable[[Object], dict[str, Fraction]] | None = None
    """The usage of an object by resource name of quotas; empty when it no longer uses any."""
    list_unspecified: Callable[[Object, Fields], Sequence[str]] = _names_all
    """Resources that the object has to specify because the quota (`spec.hard`) limits them, but does not."""
    writes_data: bool = False
    """Objects write data to disk, so new ones are refused while the storage quota is exceeded."""


@dataclass(frozen=True, slots=True)
class TenantRules:
    """Rules for writes of tenants."""

    list_gangs: Callable[[Fields], Iterator[tuple[int, Fields]]] | None = None
    """(number of Pods, their template) for every job in an object; None for kinds without Pods."""
    reserved: tuple[str, ...] = ()
    """Prefixes of labels and annotations that only controllers may set, in an object and its templates."""
    controlled: bool = False
    """Only controllers may set a controller reference on an object."""


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
    """Upstream serves it through a CRD: no strategic merge; CRD error messages, schema defaults and CEL rules apply."""
    name_form: str = "subdomain"
    """What metadata.name must be: subdomain, label, path (a URL path segment) or any; see `validation.names`."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    read_only: str = ""
    """Why only the server itself writes it, and what to use instead; part of the message that refuses a write."""
    status: bool = False
    """Has a status subresource: main writes keep the stored status, /status writes keep the rest."""
    scale: ScalePaths | None = None
    """Has a scale subresource, which changes the number of replicas (`kubectl scale`)."""
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
    """Fields of spec that no rule combines with others, each with a function that validates a first value. If set, even
    to {}, a patch of these fields, labels or annotations does not validate the rest again; `validate` must then not
    read labels or annotations. Setting a first value does not increment generation."""
    storage: GVR | None = None
    """The collection of another kind in which the objects are stored (events.k8s.io shares core events)."""
    to_storage: Callable[[Object], Object] | None = None
    from_storage: Callable[[Object], Object] | None = None
    review: bool = False
    """Create-only and never stored: the server computes the response (access reviews, TokenReview)."""
    measured: bool = False
    """Read-only and never stored: computed for every request (metrics.k8s.io)."""
    updates: UpdateRules = UpdateRules()
    deletions: DeletionRules = DeletionRules()
    quotas: QuotaRules = QuotaRules()
    tenants: TenantRules = TenantRules()
    roles: RoleGrants = field(default_factory=dict)
    """The permissions of the default roles (`auth.roles`)."""
    fidelity: FidelityTable = field(default_factory=dict)
    """How embedded mode handles each of its fields."""

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
