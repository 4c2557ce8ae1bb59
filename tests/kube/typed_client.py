"""Runs the program tests/kube/go/typedclient: typed structs of Go, read from a server and written back."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.clients import JSON, Raw, Refused, Target
from tools.toolbox import Toolbox
from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Kind
from trainmaster.client.http import build_path

OBJECTS = Path(__file__).parent / "typed_objects.yaml"
JOBSET_STORED = Path(__file__).parent / "typed_jobset_stored.yaml"


@dataclass(frozen=True)
class TypedWrite:
    """What became of one object of `typed_objects.yaml`."""

    name: str
    """Its kind and name."""
    stored: JSON
    """As the server answered to its creation."""
    answers: dict[str, tuple[int, JSON]]
    """By the encoding of the write: status code and body."""

    def list_refusals(self) -> list[str]:
        refused = ((encoding, *answer) for encoding, answer in self.answers.items() if answer[0] != 200)
        return [f"{self.name} as {encoding}: {code} {body.get('message')}" for encoding, code, body in refused]


def check_jobset_stored(written: list[TypedWrite]) -> None:
    stored = next(one.stored for one in written if one.name == "JobSet running")
    assert stored["spec"] == yaml.safe_load(JOBSET_STORED.read_text())


def read_objects(namespace: str) -> list[JSON]:
    items: list[JSON] = yaml.safe_load(OBJECTS.read_text().replace("NAMESPACE", namespace))["items"]
    return items


def write_back(target: Target, namespace: str, folder: Path, *, without: str = "") -> list[TypedWrite]:
    """Creates all objects as kubectl would, then reads and writes each in the encodings that Go clients use for it.

    `without`: an API group that the server does not have."""
    requests, stored = [], []
    with closing(target.raw()) as raw:
        for obj in read_objects(namespace):
            kind = get_kind(obj)
            if without and kind.group == without:
                continue
            place = namespace if kind.namespaced else ""
            stored.append(_create(raw, build_path(kind.gvr, place), obj))
            path = build_path(kind.gvr, place, obj["metadata"]["name"])
            requests.append([(path, encoding) for encoding in (("json",) if kind.custom else ("json", "protobuf"))])
    answers = iter(_run(target, [{"path": path, "encoding": how} for row in requests for path, how in row], folder))
    return [
        TypedWrite(f"{obj['kind']} {obj['metadata']['name']}", obj, {encoding: next(answers) for _, encoding in row})
        for obj, row in zip(stored, requests, strict=True)
    ]


def _create(raw: Raw, path: str, obj: JSON) -> JSON:
    """Webhooks and admission of a cluster may not have seen yet what the object refers to."""
    end = time.monotonic() + 30
    while True:
        code, answer = raw.call("POST", path, obj)
        if code < 300:
            created: JSON = answer
            return created
        if code != 403 or "not found" not in answer["message"] or time.monotonic() > end:
            raise Refused(code, answer)
        time.sleep(0.1)


def get_kind(obj: JSON) -> Kind:
    found = catalogue.build().find_type(obj["apiVersion"], obj["kind"])
    assert found is not None, obj["kind"]
    return found


def _run(target: Target, requests: list[JSON], folder: Path) -> list[tuple[int, Any]]:
    toolbox = Toolbox()
    program = toolbox.find_program("typed-client")
    if program is None:
        pytest.skip(toolbox.why_missing("typed-client"))
    ca = folder / "ca.crt"
    ca.write_bytes(target.ca_data)
    command = [str(program), "-server", target.url, "-token", target.admin_token(), "-ca", str(ca)]
    done = subprocess.run(command, input=json.dumps(requests), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [(answer["code"], answer["body"]) for answer in json.loads(done.stdout)]
