"""OpenAPI version 3: one document per group and version, as kubectl 1.27 and later read it.

Parameters are written out at each operation: kubectl does not follow references when it looks for `fieldValidation`.
"""

from __future__ import annotations

from trainmaster.api.declaring.kinds import Catalogue
from trainmaster.api.meta import Object
from trainmaster.api.openapi.definitions import Definitions
from trainmaster.api.openapi.operations import STATUS, OpenApiOperation, Parameter, list_operations
from trainmaster.version import __version__


def build(catalogue: Catalogue, group: str, version: str) -> Object:
    definitions = Definitions(3)
    paths: dict[str, Object] = {}
    for kind in catalogue.of_group_version(group, version):
        definitions.add_kind(kind)
        for operation in list_operations(kind):
            item = paths.setdefault(operation.path, {})
            item[operation.method] = _operation(operation, definitions)
            item["parameters"] = [_parameter(value) for value in operation.parameters if value.where == "path"]
    return {
        "openapi": "3.0.0",
        "info": {"title": "Trainmaster", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(definitions.schemas.items())),
            "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: OpenApiOperation, definitions: Definitions) -> Object:
    out: Object = {
        "description": operation.description,
        "operationId": operation.id,
        "tags": [f"{operation.group or 'core'}_{operation.version}"],
        "parameters": [_parameter(value) for value in operation.parameters if value.where != "path"],
        "responses": _responses(operation, definitions),
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {
            "group": operation.group,
            "version": operation.version,
            "kind": operation.kind,
        },
    }
    if operation.body:
        schema = definitions.ref(operation.body)
        out["requestBody"] = {"content": {media: {"schema": schema} for media in operation.body_types}}
        if operation.method != "delete":
            out["requestBody"]["required"] = True
    return out


def _responses(operation: OpenApiOperation, definitions: Definitions) -> Object:
    failure = {"description": "What went wrong.", "content": _json(definitions.ref(STATUS))}
    out: Object = {"default": failure}
    for code, definition in operation.answers.items():
        if operation.text:
            content: Object = {"text/plain": {"schema": {"type": "string"}}}
        else:
            content = _json(definitions.ref(definition) if definition else {"type": "object"})
        out[str(code)] = {"description": "OK" if code == 200 else "Created" if code == 201 else "Accepted"}
        out[str(code)]["content"] = content
    return out


def _json(schema: Object) -> Object:
    return {"application/json": {"schema": schema}}


def _parameter(parameter: Parameter) -> Object:
    schema: Object = {"type": parameter.type}
    if parameter.enum:
        schema["enum"] = list(parameter.enum)
    if parameter.minimum is not None:
        schema["minimum"] = parameter.minimum
    if parameter.max_length is not None:
        schema["maxLength"] = parameter.max_length
    out: Object = {
        "name": parameter.name,
        "in": parameter.where,
        "description": parameter.description,
        "schema": schema,
    }
    if parameter.where == "path":
        out["required"] = True
    return out
