"""Rules about the containers of a Pod spec: names, images, environment, ports, mounts, probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.api import fields
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.pods import resources
from trainmaster.api.validation import names

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FIELD_PATHS = {
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels",
    "metadata.annotations",
    "spec.nodeName",
    "spec.serviceAccountName",
    "spec.hostIP",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "spec.schedulerName",
    "spec.restartPolicy",
}
_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)


def check_all(spec: Object, path: str, volumes: set[str]) -> list[FieldError]:
    """All containers of a spec. Names are unique over init containers and containers together."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    containers = spec.get("containers") or []
    if not containers:
        errors.append(fields.required(f"{path}.containers"))
    for index, container in enumerate(containers):
        where = f"{path}.containers[{index}]"
        errors += check_one(container, where, volumes)
        errors += _check_unique(container, where, seen)
    for index, container in enumerate(spec.get("initContainers") or ()):
        where = f"{path}.initContainers[{index}]"
        errors += check_one(container, where, volumes)
        errors += _check_unique(container, where, seen)
        errors += _check_init(container, where)
    return errors + _check_host_ports(containers, path, host_network=bool(spec.get("hostNetwork")))


def _check_unique(container: Object, path: str, seen: set[str]) -> list[FieldError]:
    name = container.get("name")
    if not name:
        return []
    if name in seen:
        return [fields.duplicate(f"{path}.name", name)]
    seen.add(name)
    return []


def _check_init(container: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    policy = container.get("restartPolicy")
    if policy is not None and policy not in ("Always", "Never", "OnFailure"):
        errors.append(fields.not_supported(f"{path}.restartPolicy", policy, ("Always", "Never", "OnFailure")))
    if policy != "Always":
        text = "may not be set for init containers without restartPolicy=Always"
        errors += [fields.forbidden(f"{path}.{name}", text) for name in (*_PROBES, "lifecycle") if name in container]
    return errors


def check_one(container: Object, path: str, volumes: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    name, image = container.get("name"), container.get("image")
    if not name:
        errors.append(fields.required(f"{path}.name"))
    elif complaints := names.label(name):
        errors += [fields.invalid(f"{path}.name", name, text) for text in complaints]
    if not image:
        errors.append(fields.required(f"{path}.image"))
    elif image != image.strip():
        errors.append(fields.invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))
    errors += _check_choice(container, path, "imagePullPolicy", _PULL_POLICIES)
    errors += _check_choice(container, path, "terminationMessagePolicy", _MESSAGE_POLICIES)
    if ports := container.get("ports"):
        errors += _check_ports(ports, f"{path}.ports")
    if env := container.get("env"):
        for index, variable in enumerate(env):
            errors += _check_variable(variable, f"{path}.env[{index}]")
    for index, source in enumerate(container.get("envFrom") or ()):
        errors += _check_env_source(source, f"{path}.envFrom[{index}]", f"{path}.envFrom")
    if mounts := container.get("volumeMounts"):
        errors += _check_mounts(mounts, f"{path}.volumeMounts", volumes)
    for name in _PROBES:
        if (probe := container.get(name)) is not None:
            errors += _check_probe(probe, f"{path}.{name}", once=name != "readinessProbe")
    for name, hook in (container.get("lifecycle") or {}).items():
        if isinstance(hook, dict):
            errors += _check_handler(hook, f"{path}.lifecycle.{name}")
    if amounts := container.get("resources"):
        errors += resources.check(amounts, f"{path}.resources")
    if context := container.get("securityContext"):
        errors += _check_security(context, f"{path}.securityContext")
    return errors


def _check_choice(container: Object, path: str, name: str, allowed: Sequence[str]) -> list[FieldError]:
    value = container.get(name)
    if value is None or value in allowed:
        return []
    return [fields.not_supported(f"{path}.{name}", value, allowed)]


def _check_ports(ports: list[Object], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        where = f"{path}[{index}]"
        if name := port.get("name"):
            # Upstream's text for a port name leaves out the word "long" here.
            found = [text.removesuffix(" long") for text in names.port_name(name)]
            errors += [fields.invalid(f"{where}.name", name, text) for text in found]
            if not found and name in seen:
                errors.append(fields.duplicate(f"{where}.name", name))
            seen.add(name)
        number = port.get("containerPort", 0)
        if not number:
            errors.append(fields.required(f"{where}.containerPort"))
        else:
            errors += [fields.invalid(f"{where}.containerPort", number, text) for text in names.port_number(number)]
        if host := port.get("hostPort"):
            errors += [fields.invalid(f"{where}.hostPort", host, text) for text in names.port_number(host)]
        errors += _check_choice(port, where, "protocol", _PROTOCOLS)
    return errors


def _check_host_ports(containers: list[Object], path: str, *, host_network: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort")
            if not host:
                continue
            where = f"{path}.containers[{index}].ports[{position}].hostPort"
            key = f"{port.get('protocol', 'TCP')}/{port.get('hostIP', '')}/{host}"
            if key in seen:
                errors.append(fields.duplicate(where, key))
            seen.add(key)
            if host_network and host != port.get("containerPort"):
                text = "must match `containerPort` when `hostNetwork` is true"
                errors.append(fields.invalid(where, host, text))
    return errors


def _check_variable(variable: Object, path: str) -> list[FieldError]:
    name = variable.get("name")
    errors: list[FieldError] = []
    if not name:
        errors.append(fields.required(f"{path}.name"))
    else:
        errors += [fields.invalid(f"{path}.name", name, text) for text in names.environment(name)]
    source = variable.get("valueFrom")
    if source is None:
        return errors
    where = f"{path}.valueFrom"
    given = [kind for kind in _SOURCES if kind in source]
    for kind in given:
        errors += _check_value_source(kind, source[kind], f"{where}.{kind}")
    if variable.get("value"):
        errors.append(fields.invalid(where, "", "may not be specified when `value` is not empty"))
    elif not given:
        words = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        errors.append(fields.invalid(where, "", f"must specify one of: {words}"))
    elif len(given) > 1:
        errors.append(fields.invalid(where, "", "may not have more than one field specified at a time"))
    return errors


def _check_value_source(kind: str, source: Mapping[str, Any], path: str) -> list[FieldError]:
    if kind == "fieldRef":
        return check_field_path(source.get("fieldPath"), f"{path}.fieldPath")
    if kind == "resourceFieldRef":
        named = source.get("resource")
        if not named:
            return [fields.required(f"{path}.resource")]
        known = named in _RESOURCES or named.startswith(("limits.hugepages-", "requests.hugepages-"))
        return [] if known else [fields.not_supported(f"{path}.resource", named, _RESOURCES)]
    if kind == "fileKeyRef":
        return []
    errors = [
        fields.invalid(f"{path}.name", source.get("name", ""), t) for t in names.subdomain(source.get("name", ""))
    ]
    key = source.get("key")
    if not key:
        return [*errors, fields.required(f"{path}.key")]
    return errors + [fields.invalid(f"{path}.key", key, text) for text in names.config_key(key)]


def check_field_path(value: str | None, path: str) -> list[FieldError]:
    """A downward reference: a known field, or one entry of labels or annotations."""
    if not value:
        return [fields.required(path)]
    base, _, key = value.partition("[")
    if key and base in ("metadata.labels", "metadata.annotations"):
        return []
    if value in _FIELD_PATHS:
        return []
    return [fields.invalid(path, value, f"error converting fieldPath: field label not supported: {value}")]


def _check_env_source(source: Object, path: str, whole: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if prefix := source.get("prefix"):
        errors += [fields.invalid(f"{path}.prefix", prefix, text) for text in names.environment(prefix)]
    given = [kind for kind in ("configMapRef", "secretRef") if kind in source]
    for kind in given:
        name = source[kind].get("name")
        if not name:
            errors.append(fields.required(f"{path}.{kind}.name"))
        else:
            errors += [fields.invalid(f"{path}.{kind}.name", name, text) for text in names.subdomain(name)]
    if not given:
        errors.append(fields.invalid(whole, "", "must specify one of: `configMapRef` or `secretRef`"))
    elif len(given) > 1:
        errors.append(fields.invalid(whole, "", "may not have more than one field specified at a time"))
    return errors


def _check_mounts(mounts: list[Object], path: str, volumes: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        where = f"{path}[{index}]"
        name = mount.get("name", "")
        if not name:
            errors.append(fields.required(f"{where}.name"))
        if name not in volumes:
            errors.append(fields.not_found(f"{where}.name", name))
        target = mount.get("mountPath")
        if not target:
            errors.append(fields.required(f"{where}.mountPath"))
        elif target in seen:
            errors.append(fields.invalid(f"{where}.mountPath", target, "must be unique"))
        seen.add(target or "")
        if inner := mount.get("subPath"):
            errors += check_relative(inner, f"{path}.subPath")
        propagation = mount.get("mountPropagation")
        allowed = ("Bidirectional", "HostToContainer", "None")
        if propagation is not None and propagation not in allowed:
            errors.append(fields.not_supported(f"{path}.mountPropagation", propagation, allowed))
    return errors


def check_relative(value: str, path: str) -> list[FieldError]:
    errors = [fields.invalid(path, value, "must be a relative path")] if value.startswith("/") else []
    if ".." in value.split("/"):
        errors.append(fields.invalid(path, value, "must not contain '..'"))
    return errors


def _check_probe(probe: Object, path: str, *, once: bool) -> list[FieldError]:
    errors = _check_handler(probe, path)
    for name in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        value = probe.get(name)
        if value is not None and value < 0:
            errors.append(fields.invalid(f"{path}.{name}", value, "must be greater than or equal to 0"))
    if once and probe.get("successThreshold", 1) != 1:
        errors.append(fields.invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    return errors


def _check_handler(handler: Object, path: str) -> list[FieldError]:
    given = [kind for kind in _HANDLERS if kind in handler]
    if not given:
        return [fields.required(path, "must specify a handler type")]
    text = "may not specify more than 1 handler type"
    errors = [fields.forbidden(f"{path}.{kind}", text) for kind in given[1:]]
    kind, action = given[0], handler[given[0]]
    where = f"{path}.{kind}"
    if kind == "exec" and not action.get("command"):
        errors.append(fields.required(f"{where}.command"))
    if kind in ("httpGet", "tcpSocket", "grpc"):
        errors += _check_target_port(action.get("port", 0), f"{where}.port")
    if kind == "httpGet" and action.get("scheme", "HTTP") not in ("HTTP", "HTTPS"):
        errors.append(fields.not_supported(f"{where}.scheme", action["scheme"], ("HTTP", "HTTPS")))
    return errors


def _check_target_port(port: int | str, path: str) -> list[FieldError]:
    complaints = names.port_number(port) if isinstance(port, int) else names.port_name(port)
    return [fields.invalid(path, port, text) for text in complaints]


def _check_security(context: Object, path: str) -> list[FieldError]:
    errors = check_ids(context, path, ("runAsUser", "runAsGroup"))
    mount = context.get("procMount")
    if mount is not None and mount not in ("Default", "Unmasked"):
        errors.append(fields.not_supported(f"{path}.procMount", mount, ("Default", "Unmasked")))
    if context.get("privileged") and context.get("allowPrivilegeEscalation") is False:
        text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        errors.append(fields.invalid(path, context, text))
    return errors


def check_ids(context: Object, path: str, keys: Sequence[str]) -> list[FieldError]:
    """User and group ids of a security context."""
    text = "must be between 0 and 2147483647, inclusive"
    found = ((key, context[key]) for key in keys if key in context)
    return [fields.invalid(f"{path}.{key}", value, text) for key, value in found if not 0 <= value <= 2147483647]
