"""Builds the variables of a container: envFrom, then env, then Services, as the kubelet does. Pure.

Variables from the image and the node (PATH, devices) have lower precedence. A missing ConfigMap, Secret or key is a
CreateContainerConfigError with upstream's message, unless the reference is optional.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_fields, read_text
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.launch.contract import CONFIG_ERROR, LaunchError, Prepared
from trainmaster.node.launch.expansion import expand
from trainmaster.node.launch.references import read_field, read_resource


def build_variables(pod: Pod, container: Fields, prepared: Prepared) -> dict[str, str]:
    """The Pod's variables, without those from the image and the node."""
    found: dict[str, str] = {}
    for entry in list_items(container, "envFrom"):
        found.update(_read_all(entry, prepared))
    services = build_service_variables(prepared)
    for entry in list_items(container, "env"):
        value = entry.get("value")
        if value:
            found[entry["name"]] = expand(str(value), found, services)
            continue
        source = entry.get("valueFrom")
        text = _read_one(pod, container, source, prepared) if source else ""
        if text is not None:
            found[entry["name"]] = text
    return {**services, **found}


def build_service_variables(prepared: Prepared) -> dict[str, str]:
    """The API server's Service, which clients inside a Pod look for."""
    if prepared.site.api is None:
        return {}
    host, port = prepared.site.api
    address = f"tcp://{host}:{port}"
    prefix = f"KUBERNETES_PORT_{port}_TCP"
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
        "KUBERNETES_PORT": address,
        prefix: address,
        f"{prefix}_PROTO": "tcp",
        f"{prefix}_PORT": str(port),
        f"{prefix}_ADDR": host,
    }


def _read_all(entry: Fields, prepared: Prepared) -> dict[str, str]:
    prefix = read_text(entry, "prefix")
    if (reference := entry.get("configMapRef")) is not None:
        values = _find_config_map(reference, prepared)
    else:
        values = _find_secret(read_fields(entry, "secretRef"), prepared)
    # A name with "=" is not a valid variable; upstream skips it and reports it.
    return {f"{prefix}{key}": text for key, text in (values or {}).items() if "=" not in key}


def list_bad_names(container: Fields, prepared: Prepared) -> list[str]:
    """Keys of envFrom that are not valid variable names."""
    bad: list[str] = []
    for entry in list_items(container, "envFrom"):
        reference = entry.get("configMapRef")
        values = (
            _find_config_map(reference, prepared)
            if reference is not None
            else _find_secret(read_fields(entry, "secretRef"), prepared)
        )
        bad += [key for key in values or {} if "=" in key]
    return bad


def _read_one(pod: Pod, container: Fields, source: Fields, prepared: Prepared) -> str | None:
    """None if an optional reference does not exist; the variable is then not set."""
    namespace = pod.namespace
    if (field := source.get("fieldRef")) is not None:
        return read_field(pod, field["fieldPath"], prepared.site)
    if (resource := source.get("resourceFieldRef")) is not None:
        return read_resource(pod, container, resource, prepared.allocatable)
    if (reference := source.get("configMapKeyRef")) is not None:
        return _pick(_find_config_map(reference, prepared), reference, "ConfigMap", namespace)
    if (reference := source.get("secretKeyRef")) is not None:
        return _pick(_find_secret(reference, prepared), reference, "Secret", namespace)
    raise LaunchError(CONFIG_ERROR, f"invalid valueFrom: {', '.join(source) or 'empty'}")


def _find_config_map(reference: Fields, prepared: Prepared) -> Mapping[str, str] | None:
    name = reference.get("name", "")
    found = prepared.sources.config_maps.get(name)
    if found is not None:
        return read_fields(found, "data")
    if reference.get("optional"):
        return None
    raise LaunchError(CONFIG_ERROR, f'configmap "{name}" not found')


def _find_secret(reference: Fields, prepared: Prepared) -> Mapping[str, str] | None:
    name = reference.get("name", "")
    found = prepared.sources.secrets.get(name)
    if found is not None:
        data = read_fields(found, "data")
        return {key: base64.b64decode(text).decode("utf-8", "replace") for key, text in data.items()}
    if reference.get("optional"):
        return None
    raise LaunchError(CONFIG_ERROR, f'secret "{name}" not found')


def _pick(values: Mapping[str, str] | None, reference: Fields, kind: str, namespace: str) -> str | None:
    key = reference["key"]
    if values is not None and key in values:
        return values[key]
    if reference.get("optional"):
        return None
    raise LaunchError(CONFIG_ERROR, f"couldn't find key {key} in {kind} {namespace}/{reference.get('name', '')}")


def list_references(containers: Sequence[Fields]) -> tuple[set[str], set[str]]:
    """The ConfigMaps and Secrets that the environments of these containers refer to."""
    maps: set[str] = set()
    secrets: set[str] = set()
    for container in containers:
        for entry in list_items(container, "envFrom"):
            maps |= _names(entry.get("configMapRef"))
            secrets |= _names(entry.get("secretRef"))
        for entry in list_items(container, "env"):
            source = read_fields(entry, "valueFrom")
            maps |= _names(source.get("configMapKeyRef"))
            secrets |= _names(source.get("secretKeyRef"))
    return maps, secrets


def _names(reference: Fields | None) -> set[str]:
    return {reference["name"]} if reference and reference.get("name") else set()
