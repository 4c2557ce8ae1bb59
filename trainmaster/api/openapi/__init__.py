"""OpenAPI documents of the server, built from the catalogue when first asked for and kept as bytes.

`Documents` is what the HTTP layer holds: the version 3 index, one version 3 document per group and version, and the
version 2 document as protobuf (for kubectl before 1.29) or JSON. The index names each document with a hash of its
content, so that clients may keep a document for ever and still never see an old one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import orjson

from trainmaster.api.declaring.kinds import Catalogue
from trainmaster.api.openapi import gnostic, v2, v3

V2_PROTOBUF_ACCEPT = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The content type of the answer: Go's parser refuses the "@" that the same clients send."""


class Documents:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._built: dict[str, bytes] = {}

    def paths(self) -> list[str]:
        """The paths below /openapi/v3, for example `api/v1` and `apis/batch/v1`."""
        return [
            f"apis/{group}/{version}" if group else f"api/{version}"
            for group, versions in self._catalogue.groups().items()
            for version in versions
        ]

    def index(self) -> bytes:
        """The document at /openapi/v3. The first call builds every version 3 document, for their hashes."""
        return self._once("index", self._index)

    def _index(self) -> bytes:
        paths = {}
        for path in self.paths():
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={self.hash_of(path)}"}
        return orjson.dumps({"paths": paths})

    def hash_of(self, path: str) -> str:
        document = self.find(path)
        if document is None:
            raise KeyError(path)
        return hashlib.sha256(document).hexdigest().upper()

    def find(self, path: str) -> bytes | None:
        """The version 3 document at a path below /openapi/v3; None when there is no such group and version."""
        if path not in self.paths():
            return None
        parts = path.split("/")
        group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
        return self._once(path, lambda: orjson.dumps(v3.build(self._catalogue, group, version)))

    def v2_protobuf(self) -> bytes:
        """The document at /openapi/v2 for `V2_PROTOBUF_ACCEPT`, to be sent as `V2_PROTOBUF`."""
        return self._once("v2 protobuf", lambda: gnostic.encode(v2.build(self._catalogue)))

    def v2_json(self) -> bytes:
        return self._once("v2 json", lambda: orjson.dumps(v2.build(self._catalogue)))

    def _once(self, name: str, build: Callable[[], bytes]) -> bytes:
        found = self._built.get(name)
        if found is None:
            found = self._built[name] = build()
        return found
