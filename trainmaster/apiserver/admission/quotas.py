"""ResourceQuota: what a namespace may hold.

`status.used` is the ledger of what Pods and claims ask for, as upstream: a create adds to it in admission, in the same
transaction as the object, and when something goes or a Pod finishes `quota_ledger` counts again. Objects and their
bytes are asked of the store itself, which always knows. Counted are objects of any kind (`configmaps`,
`count/jobs.batch`), what Pods that have not finished ask for (`requests.cpu`, `limits.memory`), and all bytes of the
namespace (`api.tenancy.OBJECT_BYTES`), those of objects that controllers make included. Quotas with scopes are refused.
Namespaces without a quota pay one look-up per write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from trainmaster.api import fields, status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object
from trainmaster.api.pods.quotas import Usage
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import NAMESPACES, RESOURCE_QUOTAS
from trainmaster.api.tenancy import NAME, OBJECT_BYTES, TENANT, build_raise_advice
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.chain import CREATE, DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import metadata
from trainmaster.store.contract import StoredRecord

BUCKET = RESOURCE_QUOTAS.collection
_LARGEST_OBJECT = 4 << 20
"""No object is larger: while there is room for one like that, nothing needs to be measured."""
_TRUSTED = "system:masters"


class QuotaAdmission(Plugin):
    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.namespaced and operation is not DELETE

    def validate(self, attributes: Attributes) -> None:
        if attributes.kind.gvr == RESOURCE_QUOTAS:
            _refuse_scopes(attributes.kind, attributes.new)
        store = self._state.store
        if not store.count(BUCKET, f"{attributes.namespace}/"):
            return
        records = store.scan(BUCKET, f"{attributes.namespace}/")
        if attributes.operation is CREATE:
            self._admit_new(attributes, records)
        elif _TRUSTED not in attributes.call.identity.groups:
            # What controllers write down about an object is not the tenant's to be refused.
            for record in records:
                self._check_bytes(attributes, self._state.parsed.get(record))

    def _admit_new(self, attributes: Attributes, records: Sequence[StoredRecord]) -> None:
        wanted = measure(attributes.kind, attributes.new)
        charged: list[tuple[StoredRecord, Object]] = []
        for record in records:
            quota = self._state.parsed.get(record)
            new = self._charge(attributes, quota, wanted)
            self._check_bytes(attributes, quota)
            if new is not None:
                charged.append((record, new))
        if charged and not attributes.dry_run:
            kind = self._state.catalogue.find(RESOURCE_QUOTAS)
            assert kind is not None
            for record, new in charged:
                self._state.put(kind, new, record)

    def _charge(self, attributes: Attributes, quota: Object, wanted: Usage) -> Object | None:
        """The quota with the new object on its account; None when nothing needs to be written down."""
        hard = read_fields(quota, "spec", "hard")
        concerned = sorted(name for name in hard if name in wanted)
        if not concerned:
            return None
        _check_specified(attributes, quota["metadata"]["name"], hard)
        ledger = read_fields(quota, "status", "used")
        counted = list_counts(attributes.kind)
        number = Fraction(self._state.store.count(stored.bucket(attributes.kind), f"{attributes.namespace}/"))
        used, after, over = {}, dict(ledger), []
        for resource in concerned:
            used[resource] = number if resource in counted else quantity.parse(ledger.get(resource, "0"))
            total = used[resource] + wanted[resource]
            if resource not in counted:
                after[resource] = show(total, hard[resource])
            if wanted[resource] and total > quantity.parse(hard[resource]):
                over.append(resource)
        if over:
            raise self._build_refusal(attributes, quota, {name: (wanted[name], used[name]) for name in over})
        if after == ledger:
            return None
        return {**quota, "metadata": dict(quota["metadata"]), "status": {"hard": dict(hard), "used": after}}

    def _check_bytes(self, attributes: Attributes, quota: Object) -> None:
        """Objects are measured only where not much is left."""
        limit = read_fields(quota, "spec", "hard").get(OBJECT_BYTES)
        if limit is None:
            return
        used, most = self._state.store.measure(attributes.namespace), quantity.parse(limit)
        if used + _LARGEST_OBJECT <= most:
            return
        more = len(stored.dump(attributes.new))
        if attributes.old is not None:
            more -= len(stored.dump(attributes.old))
        if more > 0 and used + more > most:
            amounts = {OBJECT_BYTES: (Fraction(more), Fraction(used))}
            raise self._build_refusal(attributes, quota, amounts)

    def _build_refusal(
        self, attributes: Attributes, quota: Object, over: Mapping[str, tuple[Fraction, Fraction]]
    ) -> status.StatusError:
        """`over`: by resource, what is wanted and what is used."""
        hard = quota["spec"]["hard"]
        asked = ",".join(f"{name}={show(amounts[0], hard[name])}" for name, amounts in over.items())
        before = ",".join(f"{name}={show(amounts[1], hard[name])}" for name, amounts in over.items())
        limit = ",".join(f"{name}={hard[name]}" for name in over)
        text = f"exceeded quota: {quota['metadata']['name']}, requested: {asked}, used: {before}, limited: {limit}"
        if quota["metadata"]["name"] == NAME and self._is_tenant(attributes.namespace):
            needed = {name: show(sum(amounts, Fraction(0)), hard[name]) for name, amounts in over.items()}
            text = f"{text}; {build_raise_advice(attributes.namespace, needed)}"
        return status.forbidden(attributes.kind.gvr, attributes.name, text)

    def _is_tenant(self, namespace: str) -> bool:
        record = self._state.store.get(NAMESPACES.collection, namespace)
        return record is not None and TENANT in stored.labels_of(record)


def _refuse_scopes(kind: Kind, quota: Object) -> None:
    for name in ("scopes", "scopeSelector"):
        if quota.get("spec", {}).get(name):
            error = fields.forbidden(f"spec.{name}", "quotas with scopes are not supported here")
            raise metadata.invalid(kind, quota, [error])


def _check_specified(attributes: Attributes, quota: str, hard: Mapping[str, str]) -> None:
    """A quota on compute resources wants every container to name them."""
    missing = attributes.kind.quotas.list_unspecified(attributes.new, hard)
    if missing:
        text = f"failed quota: {quota}: must specify {'; '.join(missing)}"
        raise status.forbidden(attributes.kind.gvr, attributes.name, text)


def list_counts(kind: Kind) -> tuple[str, ...]:
    """The names under which objects of a kind are counted, all of them. `pods` is not among them: as upstream, those
    are Pods that have not finished."""
    name = f"count/{kind.gvr.qualified}"
    return (name, kind.plural) if kind.quotas.counts_plural else (name,)


def measure(kind: Kind, obj: Object) -> Usage:
    """What an object uses, under every name that a quota may give it."""
    usage: Usage = dict.fromkeys(list_counts(kind), Fraction(1))
    return usage if kind.quotas.measure is None else usage | kind.quotas.measure(obj)


def show(value: Fraction, like: str) -> str:
    """The amount in the family of suffixes that `like` uses."""
    if like.endswith("i") and value.denominator == 1 and value % 1024 == 0:
        return quantity.canonical(f"{value // 1024}Ki")
    thousandths = value * 1000
    return quantity.canonical(f"{-(-thousandths.numerator // thousandths.denominator)}m")
