"""The Accept header: which form of an answer the client wants.

Clients that accept protobuf always accept JSON too, so objects and lists are returned as stored. Only Table,
PartialObjectMetadata and YAML are converted. Results are cached by the header's text, because a client always sends the
same one.
"""

from __future__ import annotations

from enum import Enum

from trainmaster.api import status

ACCEPTED = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


class Form(Enum):
    JSON = "json"
    YAML = "yaml"
    TABLE = "table"
    TABLE_BETA = "table v1beta1"
    PARTIAL = "partial"
    PARTIAL_LIST = "partial list"


_FORMS = {
    ("Table", "v1"): Form.TABLE,
    ("Table", "v1beta1"): Form.TABLE_BETA,
    ("PartialObjectMetadata", "v1"): Form.PARTIAL,
    ("PartialObjectMetadataList", "v1"): Form.PARTIAL_LIST,
}

_REMEMBERED = 1024
"""Maximum length of a cached header; known clients send 300 characters."""
_memory: dict[str, Form] = {}


def choose_form(accept: str | None) -> Form:
    """The form of the first clause that is supported; raises 406 if there is none."""
    if not accept:
        return Form.JSON
    found = _memory.get(accept)
    if found is None:
        found = _choose(accept)
        if len(accept) > _REMEMBERED:
            return found
        if len(_memory) >= 256:
            _memory.clear()
        _memory[accept] = found
    return found


def _choose(accept: str) -> Form:
    clauses = []
    for position, text in enumerate(accept.split(",")):
        media, *parameters = (part.strip() for part in text.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        try:
            weight = float(values.get("q", "1"))
        except ValueError:
            weight = 0.0
        if weight > 0:
            clauses.append((-weight, position, media.lower(), values))
    for _, _, media, values in sorted(clauses, key=lambda clause: clause[:2]):
        if "as" in values:
            form = _FORMS.get((values["as"], values.get("v", "")))
            if form is not None and values.get("g") == "meta.k8s.io" and media == "application/json":
                return form
        elif media in ("application/json", "*/*", "application/*"):
            return Form.JSON
        elif media in ("application/yaml", "application/x-yaml"):
            return Form.YAML
    if any(media == "application/vnd.kubernetes.protobuf" and "as" not in values for _, _, media, values in clauses):
        raise status.not_acceptable(ACCEPTED[:2])
    raise status.not_acceptable(ACCEPTED[:2])


def find_discovery_version(accept: str | None) -> str:
    """v2 or v2beta1 if the client prefers aggregated discovery, otherwise ""."""
    for text in (accept or "").split(","):
        media, *parameters = (part.strip() for part in text.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        if values.get("g") == "apidiscovery.k8s.io" and values.get("as") == "APIGroupDiscoveryList":
            if values.get("v") in ("v2", "v2beta1"):
                return values["v"]
        elif media in ("application/json", "*/*"):
            return ""
    return ""
