"""Protobuf bodies: what kubectl 1.33 and kube-apiserver 1.36 wrote, and what nobody should have written.

Each line of `protobuf_bodies.jsonl` holds the same object twice: as protobuf, recorded from the wire, and as JSON, from
`--dry-run=client -o json` or from the same server.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.api.declaring import catalogue
from trainmaster.api.formats import go_types, protobuf
from trainmaster.api.status import StatusError

pytestmark = pytest.mark.unit

RECORDED = [orjson.loads(line) for line in (Path(__file__).parent / "protobuf_bodies.jsonl").read_bytes().splitlines()]
BODIES = [base64.b64decode(record["protobuf"]) for record in RECORDED]


def without_nothing(value: Any) -> Any:
    """Without null and empty parts, which JSON shows for what Go keeps by value."""
    if isinstance(value, dict):
        shown = {key: without_nothing(inner) for key, inner in value.items()}
        return {key: inner for key, inner in shown.items() if inner is not None and inner != {}}
    return [without_nothing(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("record", RECORDED, ids=lambda record: record["from"])
def test_protobuf_says_the_same_as_json(record: dict[str, Any]) -> None:
    decoded = protobuf.decode(base64.b64decode(record["protobuf"]))
    assert without_nothing(decoded) == without_nothing(record["json"])


def test_empty_objects_that_mean_something_are_kept() -> None:
    (pod,) = [protobuf.decode(body) for body in BODIES if b"/pods/" in body or b"\x0a\x02v1\x12\x03Pod" in body]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["e"] == {"name": "e", "emptyDir": {}}
    assert pod["spec"]["topologySpreadConstraints"][0]["labelSelector"] == {}
    assert pod["spec"]["terminationGracePeriodSeconds"] == 0
    assert pod["spec"]["automountServiceAccountToken"] is False


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def envelope(api_version: str, kind: str, content: bytes, more: bytes = b"") -> bytes:
    type_meta = message(1, api_version.encode()) + message(2, kind.encode())
    return protobuf.MAGIC + message(1, type_meta) + message(2, content) + more


def test_delete_options_are_read_for_every_group() -> None:
    content = varint(1 << 3) + varint(0) + message(4, b"Foreground") + message(5, b"All")
    for api_version in ("v1", "batch/v1", "meta.k8s.io/v1"):
        assert protobuf.decode(envelope(api_version, "DeleteOptions", content)) == {
            "apiVersion": api_version,
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Foreground",
            "dryRun": ["All"],
        }


def test_numbers_may_be_packed_and_negative() -> None:
    groups = message(4, varint(1) + varint(300)) + varint(4 << 3) + varint(7)
    user = varint(2 << 3) + varint((1 << 64) - 1)
    pod = message(2, message(14, groups + user))
    decoded = protobuf.decode(envelope("v1", "Pod", pod))
    assert decoded["spec"]["securityContext"] == {"supplementalGroups": [1, 300, 7], "runAsUser": -1}


def test_unknown_fields_are_skipped() -> None:
    extra = message(999, b"x") + varint(998 << 3) + varint(5) + varint(997 << 3 | 5) + b"1234" + varint(996 << 3 | 1)
    content = message(1, message(1, b"n")) + extra + b"12345678"
    assert protobuf.decode(envelope("v1", "ConfigMap", content))["metadata"] == {"name": "n"}


@pytest.mark.parametrize(
    ("api_version", "kind"), [("v1", "Nothing"), ("apps/v1", "Deployment"), ("", ""), ("v2", "Pod")]
)
def test_an_unknown_kind_is_a_415(api_version: str, kind: str) -> None:
    with pytest.raises(StatusError) as caught:
        protobuf.decode(envelope(api_version, kind, b""))
    assert (caught.value.code, caught.value.reason) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="JSON"),
        pytest.param(protobuf.MAGIC + b"\x0a\xff", id="a length beyond the end"),
        pytest.param(protobuf.MAGIC + b"\xff" * 11, id="an endless number"),
        pytest.param(protobuf.MAGIC + b"\x0b", id="a group"),
        pytest.param(protobuf.MAGIC + b"\x00\x00", id="field number 0"),
        pytest.param(envelope("v1", "ConfigMap", b"", message(3, b"gzip")), id="an encoded envelope"),
        pytest.param(envelope("v1", "ConfigMap", message(1, message(1, b"\xff"))), id="text that is not UTF-8"),
        pytest.param(envelope("v1", "ConfigMap", varint(1 << 3) + b"\x05"), id="a number where a message belongs"),
        pytest.param(envelope("v1", "ConfigMap", message(4, b"x")), id="bytes where a boolean belongs"),
        pytest.param(envelope("v1", "ConfigMap", varint(2 << 3) + b"\x05"), id="a map entry that is a number"),
        pytest.param(
            envelope("v1", "ConfigMap", message(1, message(8, varint(1 << 3) + varint((1 << 63) - 1)))), id="a far time"
        ),
        pytest.param(
            envelope("v1", "ConfigMap", message(1, message(17, message(7, message(1, b"{"))))), id="raw that is no JSON"
        ),
    ],
)
def test_what_is_no_message_is_a_400(body: bytes) -> None:
    with pytest.raises(StatusError) as caught:
        protobuf.decode(body)
    assert caught.value.code == 400


def decodes_or_refuses(body: bytes) -> None:
    try:
        decoded = protobuf.decode(body)
    except StatusError as error:
        assert error.code in (400, 415)
    else:
        orjson.dumps(decoded)


@given(st.binary(max_size=200))
def test_any_bytes_end_in_an_object_or_a_refusal(raw: bytes) -> None:
    decodes_or_refuses(protobuf.MAGIC + raw)
    decodes_or_refuses(envelope("v1", "Pod", raw))


@given(st.sampled_from(BODIES), st.integers(0, 5000), st.integers(0, 255), st.booleans())
def test_a_damaged_body_ends_in_an_object_or_a_refusal(body: bytes, at: int, byte: int, cut: bool) -> None:
    at %= len(body)
    decodes_or_refuses(body[:at] if cut else body[:at] + bytes([byte]) + body[at + 1 :])


def test_every_built_in_kind_that_can_be_created_is_in_the_tables() -> None:
    missing = [
        kind
        for kind in catalogue.build().kinds
        if not kind.custom and "create" in kind.verbs
        if go_types.find_protobuf_message(kind.api_version, kind.kind) is None
    ]
    assert missing == []
