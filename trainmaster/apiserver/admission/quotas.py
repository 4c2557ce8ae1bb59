"""ResourceQuota: limits on the objects of a namespace.

As upstream, `status.used` records the requests of Pods and claims: admission adds to it in the same transaction as the
object, and `quota_ledger` subtracts when an object is deleted or a Pod finishes. Numbers of objects and bytes come from
the store. Quotas can limit numbers of objects (`configmaps`, `count/jobs.batch`), resources of Pods that have not
finished (`requests.cpu`, `limits.memory`), and the bytes of all objects (`api.tenancy.OBJECT_BYTES`), including those
that controllers create. Quotas with scopes are refused. Without a quota, a write costs one look-up.
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
"""No object is larger than this, so while this much is left no object needs to be measured."""
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
            # Status updates of controllers are never refused.
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
        """The quota with the new object added to `status.used`; None if it does not change."""
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
        """Measures the object only if little of the quota is left."""
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
        """`over`: resource to (requested, used)."""
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
    """A quota on compute resources requires every container to specify them."""
    missing = attributes.kind.quotas.list_unspecified(attributes.new, hard)
    if missing:
        text = f"failed quota: {quota}: must specify {'; '.join(missing)}"
        raise status.forbidden(attributes.kind.gvr, attributes.name, text)


def list_counts(kind: Kind) -> tuple[str, ...]:
    """The quota names for the number of objects of a kind. `pods` is not among them: as upstream, it counts only Pods
    that have not finished."""
    name = f"count/{kind.gvr.qualified}"
    return (name, kind.plural) if kind.quotas.counts_plural else (name,)


def measure(kind: Kind, obj: Object) -> Usage:
    """The usage of an object, by resource name of quotas."""
    usage: Usage = dict.fromkeys(list_counts(kind), Fraction(1))
    return usage if kind.quotas.measure is None else usage | kind.quotas.measure(obj)


def show(value: Fraction, like: str) -> str:
    """Formats the amount with the same family of suffixes as `like`."""
    if like.endswith("i") and value.denominator == 1 and value % 1024 == 0:
        return quantity.canonical(f"{value // 1024}Ki")
    thousandths = value * 1000
    return quantity.canonical(f"{-(-thousandths.numerator // thousandths.denominator)}m")
