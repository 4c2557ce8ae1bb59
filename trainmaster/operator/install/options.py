"""Values from the settings of an operator in the foreground, so that `--print-manifests` takes its flags."""

from __future__ import annotations

from trainmaster.api.meta import Fields, Object
from trainmaster.app.settings import Effective
from trainmaster.operator.install.reading import ValuesError, merge
from trainmaster.operator.install.schema import FIXED, OWNED

_GROUP = "operator"
_NAMESPACE = "lease_namespace"


def build_values(effective: Effective, given: Fields, *, in_pods: bool) -> Object:
    """`given`, and over it what is not default in the settings. `in_pods`: for a Deployment, where some settings mean
    nothing; else for an operator in the foreground, which has them from elsewhere. Raises ValuesError."""
    values: Object = {}
    for key, source in effective.sources.items():
        group, _, name = key.partition(".")
        if source == "default":
            continue
        value = getattr(getattr(effective.settings, group), name)
        value = list(value) if isinstance(value, tuple) else value
        if group == "log":
            values = merge(values, {"log": {name: value}})
        elif group == _GROUP and name != _NAMESPACE:
            values = merge(values, _translate(name, value, source, in_pods=in_pods))
    merged = merge(given, values)
    # How many replicas there are, and where they keep what, is about Pods.
    return merged if in_pods else merge(merged, {"manager": {"replicas": 1}, "podDisruptionBudget": {"enabled": False}})


def _translate(name: str, value: object, source: str, *, in_pods: bool) -> Object:
    if name == "history":
        directory = {"directory": value} if value and in_pods else {}
        return {"history": {"enabled": bool(value), **directory}}
    if name in FIXED or name == "webhook_cert_dir":
        if not in_pods:
            return {}
        place = source.partition(" ")[2] if source.startswith("flag ") else f"operator.{name}"
        advice = "set the value webhook.certManager.enabled" if name == "webhook_cert_dir" else "leave it out"
        raise ValuesError(f"{place}: is for an operator in the foreground; {advice}, or add --without-deployment")
    if name in OWNED:
        return _nest(OWNED[name], [word.lower() for word in value] if isinstance(value, list) else value)
    return {"manager": {"config": {name: value}}}


def _nest(path: str, value: object) -> Object:
    head, _, rest = path.partition(".")
    return {head: _nest(rest, value) if rest else value}
