"""Training code that is dear to look at: it costs the author, not the others."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from typing import Any

import pytest

from tests.attacks.cost import cheap
from tests.attacks.site import Site

pytestmark = pytest.mark.attacks

HOSTILE_CODE = {
    "f-strings": "f'" + "{a}" * 21_000 + "' b",
    "many f-strings": "f'{a}';" * 9_000 + "a b",
    "nested lists": "[" * 30_000 + "]" * 30_000,
    "minus signs": "-" * 60_000 + "1 b",
    "attributes": "a" + ".a" * 30_000 + " b",
    "half a megabyte of nothing much": "[{},(),[]]\n" * 45_000 + "a b",
}


@pytest.mark.parametrize("code", HOSTILE_CODE.values(), ids=HOSTILE_CODE.keys())
@pytest.mark.parametrize("path", ["/api/trainjob/create", "/api/v1/jobs"])
def test_hostile_code_is_not_parsed_in_the_server(site: Site, code: str, path: str) -> None:
    body: dict[str, Any] = {"framework": "pytorch", "namespace": site.ann.namespace}
    if path.endswith("create"):
        body |= {"user_id": site.ann.namespace, "training_code": code}
    else:
        body |= {"code": code}
    site.ann.rest.call("GET", "/api/v1/me")  # loads the code of REST
    with cheap(site, 0.6):
        code_of_answer, answer = site.ann.rest.call("POST", path, body)
        assert code_of_answer == 422, answer
        assert "is not a Python" in json.dumps(answer)


def build_zip(names: list[str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return stream.getvalue()


def build_tar(names: list[str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    return stream.getvalue()


HOSTILE_ARCHIVES = {
    "a zip of 15,000 files": build_zip([f"{number}" for number in range(15_000)]),
    "a zip of 15,000 directories": build_zip([f"{number}/" for number in range(15_000)]),
    "a tar of 20,000 files": build_tar([f"{number}" for number in range(20_000)]),
    "a zip that leaves": build_zip(["../../etc/passwd"]),
    "a tar that leaves": build_tar(["a/../../../etc/passwd"]),
    "a tar with an absolute path": build_tar(["/etc/passwd"]),
}


@pytest.mark.parametrize("archive", HOSTILE_ARCHIVES.values(), ids=HOSTILE_ARCHIVES.keys())
def test_hostile_archives_are_refused(site: Site, archive: bytes) -> None:
    kind = "application/zip" if archive.startswith(b"PK") else "application/gzip"
    with cheap(site):
        code, answer = site.ann.rest.call(
            "POST", "/api/v1/jobs/from-archive?framework=pytorch", archive, Content_Type=kind
        )
        assert code in (400, 413, 422), answer
