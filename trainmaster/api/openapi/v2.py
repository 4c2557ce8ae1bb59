"""OpenAPI version 2: one document for the whole server, as kubectl before 1.27 reads it.

Those clients validate strictly against the definitions, so definitions are complete; of the operations they only ask
whether a PATCH knows `dryRun`, so operations are written without their descriptions.
"""

from __future__ import annotations

from trainmaster.api.declaring.kinds import Catalogue
from trainmaster.api.meta import Object
from trainmaster.api.openapi.definitions import Definitions
from trainmaster.api.openapi.operations import STATUS, OpenApiOperation, Parameter, list_operations
from trainmaster.version import __version__


def build(catalogue: Catalogue) -> Object:
    definitions = Definitions(2)
    paths: dict[str, Object] = {}
    for kind in catalogue.kinds:
        definitions.add_kind(kind)
        for operation in list_operations(kind):
            item = paths.setdefault(operation.path, {})
            item[operation.method] = _operation(operation, definitions)
            item["parameters"] = [_parameter(value) for value in operation.parameters if value.where == "path"]
    return {
        "swagger": "2.0",
        "info": {"title": "Trainmaster", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "definitions": dict(sorted(definitions.schemas.items())),
    }


def _operation(operation: OpenApiOperation, definitions: Definitions) -> Object:
    parameters = [_parameter(value) for value in operation.parameters if value.where != "path"]
    if operation.body:
        schema = definitions.ref(operation.body)
        parameters.append({"name": "body", "in": "body", "required": operation.method != "delete", "schema": schema})
    out: Object = {
        "operationId": operation.id,
        "parameters": parameters,
        "responses": _responses(operation, definitions),
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {
            "group": operation.group,
            "version": operation.version,
            "kind": operation.kind,
        },
    }
    if operation.body_types:
        out["consumes"] = list(operation.body_types)
    return out


def _responses(operation: OpenApiOperation, definitions: Definitions) -> Object:
    out: Object = {"default": {"description": "Failed", "schema": definitions.ref(STATUS)}}
    for code, definition in operation.answers.items():
        out[str(code)] = {"description": "OK"}
        if definition and not operation.text:
            out[str(code)]["schema"] = definitions.ref(definition)
    return out


def _parameter(parameter: Parameter) -> Object:
    out: Object = {"name": parameter.name, "in": parameter.where, "type": parameter.type}
    if parameter.where == "path":
        out["required"] = True
    return out
