"""ResourceQuota: what a namespace may hold.

`status.used` is the ledger, as upstream: a create adds to it in admission, and when something goes or a Pod finishes
the controller counts again. Counted are objects of any kind (`pods`, `count/jobs.batch`) and what Pods that have not
finished ask for (`requests.cpu`, `limits.memory`, `requests.nvidia.com/gpu`). Quotas with scopes are refused.
Namespaces without a quota pay one look-up per create.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from trainmaster.api import fields, quantity, status
from trainmaster.api.kinds import Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.api.pods.quotas import Usage, list_unspecified, measure_pod
from trainmaster.api.tenancy import PIDS, STORAGE
from trainmaster.apiserver import metadata, stored
from trainmaster.apiserver.admission import Attributes, Operation, Plugin
from trainmaster.apiserver.state import State
from trainmaster.apiserver.work import Worker
from trainmaster.store.contract import Event, EventType, Record

QUOTAS = GVR("", "v1", "resourcequotas")
PODS = GVR("", "v1", "pods")
_BUCKET = "resourcequotas"
_COUNTED = ("configmaps", "persistentvolumeclaims", "pods", "resourcequotas", "secrets", "services")
_MEASURED_BY_NODE = (PIDS, STORAGE)
"""The node writes into `status.used` how much of them is used, and holds them; here nothing is added to them."""
_FINISHED = ("Succeeded", "Failed")


class QuotaAdmission(Plugin):
    def __init__(self, state: State) -> None:
        self._state = state

    def validate(self, attributes: Attributes) -> None:
        if attributes.operation is Operation.DELETE or attributes.subresource or attributes.new is None:
            return
        if attributes.kind.plural == "resourcequotas":
            _refuse_scopes(attributes.kind, attributes.new)
        if attributes.operation is not Operation.CREATE or not attributes.kind.namespaced:
            return
        store = self._state.store
        if not store.count(_BUCKET, f"{attributes.namespace}/"):
            return
        wanted = measure(attributes.kind, attributes.new)
        charged: list[tuple[Record, Object]] = []
        for record in store.scan(_BUCKET, f"{attributes.namespace}/"):
            new = self._charge(attributes, record, wanted)
            if new is not None:
                charged.append((record, new))
        if not attributes.dry_run:
            kind = self._state.catalogue.find(QUOTAS)
            assert kind is not None
            for record, new in charged:
                self._state.put(kind, new, record)

    def _charge(self, attributes: Attributes, record: Record, wanted: Usage) -> Object | None:
        """The quota with the new object on its account; None when it does not concern the object."""
        quota = stored.parse(record.value)
        hard: Mapping[str, str] = quota["spec"].get("hard") or {}
        concerned = sorted(name for name in hard if name in wanted)
        if not concerned:
            return None
        name = quota["metadata"]["name"]
        if attributes.kind.gvr == PODS:
            _check_specified(attributes, name, hard)
        used: dict[str, str] = dict(quota.get("status", {}).get("used") or {})
        over = []
        after = dict(used)
        for resource in concerned:
            total = quantity.parse(used.get(resource, "0")) + wanted[resource]
            after[resource] = show(total, hard[resource])
            if wanted[resource] and total > quantity.parse(hard[resource]):
                over.append(resource)
        if over:
            asked = ",".join(f"{one}={show(wanted[one], hard[one])}" for one in over)
            before = ",".join(f"{one}={used.get(one, '0')}" for one in over)
            limit = ",".join(f"{one}={hard[one]}" for one in over)
            text = f"exceeded quota: {name}, requested: {asked}, used: {before}, limited: {limit}"
            raise status.forbidden(attributes.kind.gvr, attributes.name, text)
        if after == used:
            return None
        return {**quota, "metadata": dict(quota["metadata"]), "status": {"hard": dict(hard), "used": after}}


def _refuse_scopes(kind: Kind, quota: Object) -> None:
    for name in ("scopes", "scopeSelector"):
        if quota.get("spec", {}).get(name):
            error = fields.forbidden(f"spec.{name}", "quotas with scopes are not supported here")
            raise metadata.invalid(kind, quota, [error])


def _check_specified(attributes: Attributes, quota: str, hard: Mapping[str, str]) -> None:
    """A quota on compute resources wants every container to name them."""
    assert attributes.new is not None
    missing = list_unspecified(attributes.new["spec"], hard)
    if missing:
        text = f"failed quota: {quota}: must specify {'; '.join(missing)}"
        raise status.forbidden(PODS, attributes.name, text)


def measure(kind: Kind, obj: Object) -> Usage:
    """What an object uses, under every name that a quota may give it."""
    usage: Usage = {f"count/{kind.gvr.qualified}": Fraction(1)}
    if not kind.group and kind.plural in _COUNTED:
        usage[kind.plural] = Fraction(1)
    if kind.gvr == PODS:
        usage |= measure_pod(obj["spec"])
    elif kind.plural == "persistentvolumeclaims" and not kind.group:
        requests = (obj["spec"].get("resources") or {}).get("requests") or {}
        usage["requests.storage"] = quantity.parse(requests.get("storage", "0"))
    return usage


def show(value: Fraction, like: str) -> str:
    """The amount in the family of suffixes that `like` uses."""
    if like.endswith("i") and value.denominator == 1 and value % 1024 == 0:
        return quantity.canonical(f"{value // 1024}Ki")
    thousandths = value * 1000
    return quantity.canonical(f"{-(-thousandths.numerator // thousandths.denominator)}m")


class QuotaController:
    """Counts again in namespaces with quotas, when something went, a Pod finished or a quota changed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.worker: Worker[str] = Worker("quotas", self._count, state.clock)
        self._contents = {
            stored.bucket(kind): kind
            for kind in state.catalogue.kinds
            if kind.namespaced and not (kind.review or kind.measured) and kind.storage is None
        }
        self._end: Callable[[], None] = state.store.subscribe(self._follow)
        for record in state.store.scan(_BUCKET):
            self.worker.add(stored.split_name(record.name)[0])

    async def run(self) -> None:
        await self.worker.run()

    def close(self) -> None:
        self._end()

    def _follow(self, events: Sequence[Event]) -> None:
        if not self._state.store.count(_BUCKET):
            return
        for event in events:
            if event.type is EventType.PUT and event.record.bucket not in (_BUCKET, "pods"):
                continue
            namespace, _ = stored.split_name(event.record.name)
            if namespace and self._state.store.count(_BUCKET, f"{namespace}/"):
                self.worker.add(namespace)

    def _count(self, namespace: str) -> None:
        kind = self._state.catalogue.find(QUOTAS)
        assert kind is not None
        for record in self._state.store.scan(_BUCKET, f"{namespace}/"):
            quota = stored.parse(record.value)
            hard: Mapping[str, str] = quota["spec"].get("hard") or {}
            usage = self._measure_namespace(namespace, hard)
            before: Mapping[str, str] = (quota.get("status") or {}).get("used") or {}
            used = {
                name: before.get(name, "0") if name in _MEASURED_BY_NODE else show(usage.get(name, Fraction(0)), limit)
                for name, limit in sorted(hard.items())
            }
            now = {"hard": dict(hard), "used": used}
            if quota.get("status") != now:
                self._state.put(kind, {**quota, "metadata": dict(quota["metadata"]), "status": now}, record)

    def _measure_namespace(self, namespace: str, hard: Mapping[str, str]) -> Usage:
        total: Usage = {}
        for bucket, kind in self._contents.items():
            if kind.gvr == PODS:
                for record in self._state.store.scan(bucket, f"{namespace}/"):
                    pod = stored.parse(record.value)
                    if pod.get("status", {}).get("phase") not in _FINISHED:
                        _add(total, measure(kind, pod))
            elif kind.plural == "persistentvolumeclaims" and "requests.storage" in hard:
                for record in self._state.store.scan(bucket, f"{namespace}/"):
                    _add(total, measure(kind, stored.parse(record.value)))
            else:
                number = Fraction(self._state.store.count(bucket, f"{namespace}/"))
                _add(total, dict.fromkeys(measure_names(kind), number))
        return total


def measure_names(kind: Kind) -> list[str]:
    """The names under which objects of a kind are counted."""
    names = [f"count/{kind.gvr.qualified}"]
    return [*names, kind.plural] if not kind.group and kind.plural in _COUNTED else names


def _add(total: Usage, more: Usage) -> None:
    for name, value in more.items():
        total[name] = total.get(name, Fraction(0)) + value
