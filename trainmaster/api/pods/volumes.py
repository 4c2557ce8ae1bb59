"""Rules about the volumes of a Pod spec."""

from __future__ import annotations

from trainmaster.api import fields
from trainmaster.api.fields import FieldError
from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object
from trainmaster.api.pods.containers import check_field_path, check_relative
from trainmaster.api.validation import names

_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_NAMED = {
    "configMap": "name",
    "secret": "secretName",
    "persistentVolumeClaim": "claimName",
    "hostPath": "path",
    "csi": "driver",
}
"""Sources and the field that each cannot do without."""


def check_all(volumes: list[Object], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        where = f"{path}[{index}]"
        name = volume.get("name")
        if not name:
            errors.append(fields.required(f"{where}.name"))
        elif complaints := names.label(name):
            errors += [fields.invalid(f"{where}.name", name, text) for text in complaints]
        elif name in seen:
            errors.append(fields.duplicate(f"{where}.name", name))
        seen.add(name or "")
        errors += _check_source(volume, where)
    return errors


def _check_source(volume: Object, path: str) -> list[FieldError]:
    given = [kind for kind in volume if kind != "name"]
    text = "may not specify more than 1 volume type"
    errors = [fields.forbidden(f"{path}.{kind}", text) for kind in given[1:]]
    if not given:
        return [fields.required(path, "must specify a volume type")]
    kind = given[0]
    source, where = volume[kind], f"{path}.{kind}"
    needed = _NAMED.get(kind)
    if needed and not source.get(needed):
        errors.append(fields.required(f"{where}.{needed}"))
    match kind:
        case "hostPath":
            errors += _check_host_path(source, where)
        case "configMap" | "secret" | "downwardAPI" | "projected":
            errors += _check_files(source, where)
        case "csi" if driver := source.get("driver"):
            errors += [fields.invalid(f"{where}.driver", driver, text) for text in names.subdomain(driver.lower())]
        case "emptyDir":
            size = source.get("sizeLimit")
            if size is not None and quantity.parse(size) < 0:
                text = "SizeLimit field must be a valid resource quantity"
                errors.append(fields.forbidden(f"{where}.sizeLimit", text))
    return errors


def _check_host_path(source: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if ".." in source.get("path", "").split("/"):
        errors.append(fields.invalid(f"{path}.path", source["path"], "must not contain '..'"))
    if source.get("type", "") not in _HOST_PATH_TYPES:
        errors.append(fields.not_supported(f"{path}.type", source["type"], _HOST_PATH_TYPES))
    return errors


def _check_files(source: Object, path: str) -> list[FieldError]:
    """What sources that become files have in common: a mode, and which key becomes which file."""
    errors = _check_mode(source, "defaultMode", path)
    for index, item in enumerate(source.get("items") or ()):
        where = f"{path}.items[{index}]"
        if path.endswith("downwardAPI"):
            if reference := item.get("fieldRef"):
                errors += check_field_path(reference.get("fieldPath"), f"{where}.fieldRef.fieldPath")
        elif not item.get("key"):
            errors.append(fields.required(f"{where}.key"))
        errors += _check_file_path(item.get("path"), f"{where}.path")
        errors += _check_mode(item, "mode", where)
    for index, part in enumerate(source.get("sources") or ()):
        for kind, projection in part.items():
            where = f"{path}.sources[{index}].{kind}"
            if kind in ("configMap", "secret", "downwardAPI"):
                errors += _check_files(projection, where)
            elif kind in ("serviceAccountToken", "clusterTrustBundle"):
                errors += _check_file_path(projection.get("path"), f"{where}.path")
    return errors


def _check_mode(source: Object, name: str, path: str) -> list[FieldError]:
    mode = source.get(name)
    if mode is None or 0 <= mode <= 0o777:
        return []
    text = "must be a number between 0 and 0777 (octal), both inclusive"
    return [fields.invalid(f"{path}.{name}", mode, text)]


def _check_file_path(value: str | None, path: str) -> list[FieldError]:
    if not value:
        return [fields.required(path)]
    errors = check_relative(value, path)
    if value.startswith(".."):
        errors.append(fields.invalid(path, value, "must not start with '..'"))
    return errors
