"""Attacks from a seed: for each class one function that makes the next one."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from urllib.parse import quote

from tests.attacks.fuzz.attack import Attack
from tests.attacks.fuzz.objects import (
    BODIES,
    CLUSTER_WIDE,
    PATHS,
    PERSISTENT,
    build_object,
    build_pod_with_paths,
)
from tests.attacks.fuzz.words import TEXTS, bend, make_text, make_value, mutate, to_json

CALLERS = ("ann", "ann", "owner")
STANDING = ("configmaps", "trainingruntimes", "jobs", "trainjobs", "pods", "pytorchjobs")
"""Kinds of which each caller has an object `fuzzed`, for patches."""
_JSON = ("Content-Type", "application/json")


def make_attacks(seed: str) -> Iterator[Attack]:
    """Without end; the same for the same seed."""
    random = Random(seed)
    names = list(_GENERATORS)
    weights = [_GENERATORS[name][0] for name in names]
    while True:
        name = random.choices(names, weights)[0]
        yield _GENERATORS[name][1](random)


def _collection(plural: str) -> str:
    root = BODIES[plural][2]
    return f"{root}/{plural}" if plural in CLUSTER_WIDE else f"{root}/namespaces/{{ns}}/{plural}"


def _write_query(random: Random) -> str:
    query = ["dryRun=All"] if random.random() < 0.8 else []
    if random.random() < 0.4:
        query.append(f"fieldValidation={random.choice(('Strict', 'Warn', 'Ignore', 'x'))}")
    if random.random() < 0.1:
        query.append(f"{random.choice(('fieldManager', 'pretty', 'dryRun', 'force'))}={_quote(make_text(random))}")
    return "?" + "&".join(query) if query else ""


def _quote(text: str) -> str:
    return quote(text.encode("utf-8", "replace"), safe="")[:4000]


def _name(random: Random) -> str:
    return f"f{random.randrange(10**9)}" if random.random() < 0.95 else make_text(random)


def _json_body(random: Random) -> Attack:
    plural = random.choice(list(BODIES))
    obj = bend(random, build_object(random, plural, _name(random)), random.choice((1, 1, 2, 4)))
    raw = to_json(obj)
    if random.random() < 0.15:
        raw = mutate(random, raw)
    headers: tuple[tuple[str, str], ...] = (_JSON, ("Accept", _accept(random)))
    if random.random() < 0.1:
        raw, headers = gzip.compress(raw, mtime=0), (*headers, ("Content-Encoding", "gzip"))
    query = _write_query(random)
    return Attack("json", "kube", random.choice(CALLERS), raw, "POST", _collection(plural) + query, headers, undo=True)


def _accept(random: Random) -> str:
    return random.choice(
        (
            "*/*",
            "application/json",
            "application/yaml",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            "application/vnd.kubernetes.protobuf",
            "a" * 500,
            ",".join(["application/json;q=0." + "1" * 50] * 40),
            "text/html;q=nan, */*;q=1e9",
        )
    )


_YAML_BITS = (
    b"- " * 300, b"[" * 300, b"{a: " * 100, b"&a [*a]", b"<<: {a: b}", b"1:1:1", b"!!binary aa==", b"? a\n: b\n", b"a: b\n",
    b"|\n  x\n", b">-\n  y\n", b"'", b'"\\ud800"', b"%YAML 9.9\n---\n", b"--- a\n...\n", b"\t- a", b"0x" + b"f" * 300, b".inf",
    b"~: 1\n", b"y: n\n", b"[a, b]: c\n", b"# c\n", b"\xef\xbb\xbf", b"\xc2\x85", b"a: &b c\nd: *b\n", b"- - - a\n", b"{a, b: c}",
)  # fmt: skip


def _yaml_body(random: Random) -> Attack:
    plural = random.choice(PERSISTENT)
    if random.random() < 0.4:
        raw = b"".join(random.choice(_YAML_BITS) for _ in range(random.randrange(1, 12)))
    else:
        raw = _to_yaml(bend(random, build_object(random, plural, _name(random)))).encode("utf-8", "replace")
        if random.random() < 0.6:
            raw = mutate(random, raw)
    if random.random() < 0.4:
        query = f"?fieldManager=f&force=true{'&dryRun=All' if random.random() < 0.5 else ''}"
        target, kind = f"{_collection(plural)}/{_name(random) or 'a'}{query}", "application/apply-patch+yaml"
        return Attack(
            "yaml", "kube", random.choice(CALLERS), raw, "PATCH", _clean(target), (("Content-Type", kind),), True
        )
    target = _collection(plural) + _write_query(random)
    return Attack(
        "yaml", "kube", random.choice(CALLERS), raw, "POST", target, (("Content-Type", "application/yaml"),), True
    )


def _clean(target: str) -> str:
    """What a request line can hold; the rest is the business of `bytes`."""
    return quote(target.encode("utf-8", "replace"), safe="/?&=%{}")


def _to_yaml(value: Any, indent: str = "") -> str:
    if isinstance(value, dict) and value and len(indent) < 40:
        return "".join(f"\n{indent}{json.dumps(key)}: {_to_yaml(item, indent + ' ')}" for key, item in value.items())
    if isinstance(value, list) and value and len(indent) < 40:
        return "".join(f"\n{indent}- {_to_yaml(item, indent + ' ')}" for item in value[:500])
    return to_json(value).decode()[:10_000] if not isinstance(value, str) or len(value) % 3 else value[:2000]


_POINTERS = (
    "", "/", "/metadata", "/metadata/labels", "/metadata/labels/a", "/metadata/name", "/metadata/annotations/a~1b", "/data",
    "/data/a", "/data/-", "/spec", "/spec/template", "/spec/mlPolicy", "/spec/template/spec/replicatedJobs/0", "/status",
    "/spec/template/spec/replicatedJobs/-", "/spec/template/spec/containers/0/env/-", "/metadata/managedFields/0", "a",
    "/spec/template/spec/containers/999999999", "/metadata/finalizers/0", "/~2", "/metadata/resourceVersion", "/kind",
    "/spec/template/spec/containers/00", "/spec/template/spec/containers/-1", "/spec/" + "a/" * 300,
)  # fmt: skip


def _patch(random: Random) -> Attack:
    plural = random.choice(STANDING)
    roll = random.random()
    body: Any
    if roll < 0.35:
        kind = "application/json-patch+json"
        body = [_operation(random) for _ in range(random.choice((1, 2, 5, 40)))]
        if random.random() < 0.1:
            body = make_value(random)
    else:
        kind = random.choice(
            ("application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml")
        )
        body = bend(random, build_object(random, plural, "fuzzed"), random.choice((1, 2, 5)))
        if random.random() < 0.3:
            body = {random.choice(("data", "spec", "metadata", "$patch", "status")): make_value(random)}
    raw = to_json(body)
    if random.random() < 0.1:
        raw = mutate(random, raw)
    part = random.choice(("", "", "", "/status"))
    query = "?fieldManager=f&force=true" if kind.endswith("yaml") else ""
    target = f"{_collection(plural)}/fuzzed{part}{query}"
    return Attack("patch", "kube", random.choice(CALLERS), raw, "PATCH", target, (("Content-Type", kind),))


def _operation(random: Random) -> Any:
    operation: dict[str, Any] = {
        "op": random.choice(("add", "remove", "replace", "move", "copy", "test")),
        "path": random.choice(_POINTERS),
        "from": random.choice(_POINTERS),
        "value": make_value(random),
    }
    if random.random() < 0.1:
        operation.pop(random.choice(list(operation)))
    return operation if random.random() < 0.97 else make_value(random)


_SELECTORS = (
    "a=b", "a==b", "a!=b", "a in (b,c)", "a notin (b)", "!a", "a", "a>1", "a<99999999999999999999", "a in ()", "a in (", ",,",
    "()", "a=b=c", "a in (b,c", "!!a", "a!", "x/y/z=1", "=", "a=" + "b" * 100, "metadata.name=a", "metadata.namespace=a",
    "status.phase=Running", "spec.nodeName=a", "metadata.name=a\\,b", "a\\", "\\=", "metadata.name!=", "involvedObject.uid=a",
)  # fmt: skip
_PARAMETERS = (
    "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "timeoutSeconds",
    "allowWatchBookmarks", "sendInitialEvents", "pretty", "includeObject", "watch", "tailLines", "sinceSeconds", "sinceTime",
    "limitBytes", "container", "follow", "previous", "timestamps", "propagationPolicy", "gracePeriodSeconds", "command",
)  # fmt: skip


def _query(random: Random) -> Attack:
    pairs = []
    for _ in range(random.choice((1, 2, 3, 30))):
        name = random.choice(_PARAMETERS)
        if name in ("labelSelector", "fieldSelector"):
            value = ",".join(random.choice(_SELECTORS) for _ in range(random.choice((1, 2, 3, 50))))
        elif name == "continue" and random.random() < 0.5:
            value = base64.urlsafe_b64encode(to_json(make_value(random))).decode()[:3000]
        elif name in ("watch", "follow") and random.random() < 0.7:
            value = "false"
        else:
            value = make_text(random)
        pairs.append(f"{name}={_quote(value)}")
    pairs.append("timeoutSeconds=1")
    plural = random.choice(PERSISTENT)
    target = _collection(plural)
    if random.random() < 0.3:
        target += random.choice(
            ("/fuzzed", "/fuzzed/status", "/a/log", "/a/exec", "/..", "/%2e%2e", "/a%00", "/a/b/c/d")
        )
    method = random.choice(("GET", "GET", "GET", "GET", "DELETE", "PUT", "HEAD", "OPTIONS", "TRACE"))
    if method == "DELETE":
        target = f"{_collection(plural)}/none"
    headers = (("Accept", _accept(random)),)
    return Attack("query", "kube", random.choice(CALLERS), b"", method, f"{target}?{'&'.join(pairs)}"[:15_000], headers)


def _read(random: Random) -> Attack:
    target = random.choice(
        ("/", "/api", "/apis", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/version", "/metrics", "/healthz", "/readyz",
         "/livez", "/livez/ping", "/api/v1", "/apis/batch/v1", "/apis/x/y", "/api/v1/namespaces/{ns}", "/api/v1/namespaces/bob/pods",
         "/apis/metrics.k8s.io/v1beta1/pods", "/api/v1/nodes", "/logs", "/apis/trainer.kubeflow.org/v1alpha1/trainjobs")
    )  # fmt: skip
    if random.random() < 0.4:
        target = target.replace("/", random.choice(("//", "/./", "/%2f", "/")), 1) + _quote(make_text(random))
    headers = (("Accept", _accept(random)), ("User-Agent", _header(random)), ("Impersonate-User", _header(random)))
    chosen = headers[: random.randrange(4)]
    return Attack("query", "kube", random.choice((*CALLERS, "stranger")), b"", "GET", target[:15_000], chosen)


def _header(random: Random) -> str:
    return "".join(character for character in make_text(random) if 32 <= ord(character) < 127)[:2000]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(random: Random, depth: int) -> bytes:
    out = b""
    for _ in range(random.randrange(5)):
        number = random.choice((1, 2, 3, 4, 5, 7, 8, 11, 12, 17, 20, 100))
        roll = random.random()
        if roll < 0.2:
            out += _varint(number << 3) + _varint(random.choice((0, 1, 2**31, 2**63, 2**64 - 1)))
        elif roll < 0.3:
            out += _varint(number << 3 | random.choice((1, 3, 4, 5, 6, 7))) + b"\x01" * 8
        else:
            inner = (
                _message(random, depth - 1) if depth and roll < 0.75 else make_text(random).encode("utf-8", "replace")
            )
            out += _varint(number << 3 | 2) + _varint(len(inner)) + inner
    return out


def _protobuf(random: Random) -> Attack:
    plural = random.choice(("pods", "configmaps", "secrets", "jobs", "services", "events", "leases", "roles"))
    api_version, kind, _, _ = BODIES[plural]
    head = b"".join(_varint(n << 3 | 2) + _varint(len(t)) + t.encode() for n, t in ((1, api_version), (2, kind)))
    named = b"\x0a\x03\x0a\x01a"
    message = named + _message(random, random.choice((2, 4, 30)))
    raw = b"k8s\x00\x0a" + _varint(len(head)) + head + b"\x12" + _varint(len(message)) + message
    if random.random() < 0.5:
        raw = b"k8s\x00" + mutate(random, raw[4:])
    headers = (("Content-Type", "application/vnd.kubernetes.protobuf"),)
    return Attack("protobuf", "kube", random.choice(CALLERS), raw, "POST", _collection(plural) + "?dryRun=All", headers)


def _pod_paths(random: Random) -> Attack:
    pod = build_pod_with_paths(random, f"p{random.randrange(10**9)}")
    query = "" if random.random() < 0.01 else "?dryRun=All"
    return Attack(
        "paths", "kube", random.choice(CALLERS), to_json(pod), "POST", _collection("pods") + query, (_JSON,), True
    )


# REST

_NEW_JOB: dict[str, Any] = {
    "framework": "pytorch",
    "code": "print(1)\n",
    "name": "fuzz",
    "env": {"A": "b"},
    "labels": {"a": "b"},
    "packages": [],
    "config": {"num_nodes": 1, "gpu_per_node": 0, "cpu_per_node": "10m", "memory_per_node": "16Mi"},
    "volumes": [{"claim": "a", "mount_path": "/a", "read_only": True}],
    "suspended": True,
    "ttl_seconds": 1,
}


def _rest(random: Random) -> Attack:
    roll = random.random()
    if roll < 0.5:
        return _rest_body(random)
    name = random.choice(("a", "..", "%2e%2e", "a%00", "a" * 300, _quote(make_text(random))))
    path = random.choice(
        ("/api/v1/jobs", f"/api/v1/jobs/{name}", f"/api/v1/jobs/{name}/logs", f"/api/v1/jobs/{name}/explain", "/api/v1/me",
         "/api/v1/runtimes", f"/api/v1/runtimes/{name}", f"/api/v1/jobs/{name}/doctor", f"/api/v1/tenants/{name}/login-link",
         "/api/v1/queue", "/api/v1/settings", "/api/v1/doctor", "/api/v1/history", f"/api/v1/history/{name}", f"/api/v1/history/{name}/logs", "/api/v1/tenants",
         f"/api/trainjob/{name}/status", f"/api/trainjob/{name}/logs", "/openapi.json", "/healthz", f"/{name}", "/docs")
    )  # fmt: skip
    names = (
        "limit",
        "continue",
        "cursor",
        "state",
        "label",
        "q",
        "since",
        "worker",
        "tail",
        "namespace",
        "user_id",
        "sort",
    )
    pairs = [f"{random.choice(names)}={_quote(make_text(random))}" for _ in range(random.choice((0, 1, 3, 40)))]
    method = random.choice(("GET", "GET", "GET", "HEAD", "OPTIONS", "PUT", "PATCH"))
    headers = tuple(
        (one, _header(random)) for one in ("If-None-Match", "Accept", "Last-Event-ID") if random.random() < 0.2
    )
    target = f"{path}?{'&'.join(pairs)}"[:8000]
    return Attack("rest", "rest", random.choice(CALLERS), b"", method, target, headers)


def _rest_body(random: Random) -> Attack:
    choices: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/api/v1/jobs", _NEW_JOB),
        ("/api/trainjob/create", {"user_id": "ann", "namespace": "ann", "training_code": "x(", "config": {}}),
        ("/api/v1/jobs/none/restart", {"name": "a"}),
        ("/api/v1/signup", {"name": "a"}),
    )
    path, given = random.choice(choices)
    body: dict[str, Any] = {
        **given,
        **({"framework": random.choice(("pytorch", "none", ".."))} if "config" in given else {}),
    }
    if random.random() < 0.3 and path.endswith("jobs"):
        body.pop("code", None)
        body["files"] = {random.choice(PATHS): random.choice(TEXTS) for _ in range(random.randrange(5))}
        body["entrypoint"] = random.choice((*PATHS, "train.py"))
    bent = bend(random, body, random.choice((1, 2, 4)))
    if random.random() < 0.7 and isinstance(bent, dict):
        bent["code"] = "f'" + "{a}" * random.randrange(3000) + "' ("  # what passes would run
    raw = to_json(bent)
    if random.random() < 0.2:
        raw = mutate(random, raw)
    headers = (_JSON, *((("Idempotency-Key", _header(random)),) if random.random() < 0.2 else ()))
    return Attack("rest", "rest", random.choice(CALLERS), raw, "POST", path, headers)


def _archive(random: Random) -> Attack:
    names = [
        random.choice(PATHS) if random.random() < 0.3 else f"a{n}.py" for n in range(random.choice((1, 3, 30, 2100)))
    ]
    stream = io.BytesIO()
    is_zip = random.random() < 0.5
    if is_zip:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
            shown = [name.encode("utf-8", "replace").decode().replace("\0", "") or "x" for name in names]
            for name in dict.fromkeys(shown):
                info = zipfile.ZipInfo(name)
                info.external_attr = random.choice((0, 0o100644, 0o120777, 0o060000)) << 16
                packed.writestr(info, b"x" * random.choice((0, 10, 20_000)))
    else:
        # Without the time in its head: the same seed makes the same bytes.
        with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
            for name in names:
                member = tarfile.TarInfo(name.encode("utf-8", "replace").decode())
                member.type = random.choice(
                    (tarfile.REGTYPE,) * 6 + (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE)
                )
                member.linkname = random.choice(PATHS).encode("utf-8", "replace").decode()
                tar.addfile(member)
    raw = stream.getvalue()
    if random.random() < 0.5:
        raw = raw[:4] + mutate(random, raw[4:])
    kind = "application/zip" if is_zip else "application/gzip"
    target = f"/api/v1/jobs/from-archive?framework=pytorch&entrypoint={_quote(random.choice((*PATHS, 'none.py')))}"
    return Attack(
        "archive", "rest", random.choice(CALLERS), raw[: 1024 * 1024], "POST", target, (("Content-Type", kind),)
    )


# Bytes

_LINES = (
    b"Host: a\r\n", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 99999999999\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n", b"Connection: upgrade\r\nUpgrade: SPDY/3.1\r\n", b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
    b"Sec-WebSocket-Key: a\r\nSec-WebSocket-Version: 13\r\n", b"Expect: 100-continue\r\n", b" folded\r\n", b"\tfolded\r\n", b"a b: c\r\n",
    b": empty\r\n", b"X:\r\n", b"X: \x00\r\n", b"X: \xff\xfe\r\n", b"Authorization: Bearer \r\n", b"Authorization: Bearer " + b"a." * 500 + b"\r\n",
    b"Authorization: Basic !!!!\r\n", b"Cookie: a=b\r\n", b"X-Forwarded-For: 1.1.1.1\r\n", b"X" * 5000 + b": y\r\n", b"Connection: close\r\n",
    b"Content-Type: multipart/form-data; boundary=a\r\n", b"Range: bytes=0-\r\n", b"Host: a\nX: y\r\n",
)  # fmt: skip
_STARTS = (
    b"GET /livez HTTP/1.1\r\n", b"GET / HTTP/1.0\r\n", b"GET /api HTTP/1.1\r\n", b"POST /api/v1/namespaces/ann/configmaps HTTP/1.1\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n", b"OPTIONS * HTTP/1.1\r\n", b"GET http://a/livez HTTP/1.1\r\n",
    b"GET /livez\r\n", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n", b"G\x00T / HTTP/1.1\r\n", b"GET /\x80 HTTP/1.1\r\n", b"\r\n\r\n",
    b"GET /%zz HTTP/1.1\r\n", b"GET /livez HTTP/9.9\r\n", b"POST /api/v1/signup HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\n",
)  # fmt: skip
_ENDS = (
    b"",
    b"{}",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
    b"\x80\x03\x00\x01" * 8,
    b"\x81\x7f\xff",
)


def _bytes(random: Random) -> Attack:
    raw = b""
    for _ in range(random.choice((1, 1, 2, 5))):
        lines = [random.choice(_LINES) for _ in range(random.choice((0, 2, 6, 90)))]
        raw += (
            random.choice(_STARTS)
            + b"".join(lines)
            + random.choice((b"\r\n", b"\r\n", b"\n", b""))
            + random.choice(_ENDS)
        )
    if random.random() < 0.5:
        raw = mutate(random, raw)
    return Attack("bytes", random.choice(("kube", "rest")), "stranger", raw[:300_000])


def _junk(random: Random) -> Attack:
    """Not even TLS."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200))
    raw = random.choice(
        (b"GET / HTTP/1.1\r\n\r\n", hello, b"\x15\x03\x03\x00\x02\x02\x28", b"\x80\x2e\x01", b"\x00" * 100)
    )
    return Attack("junk", random.choice(("kube", "rest")), "stranger", mutate(random, raw)[:20_000])


_GENERATORS: dict[str, tuple[int, Callable[[Random], Attack]]] = {
    "json": (20, _json_body),
    "yaml": (12, _yaml_body),
    "patch": (16, _patch),
    "query": (10, _query),
    "read": (5, _read),
    "protobuf": (8, _protobuf),
    "paths": (8, _pod_paths),
    "rest": (12, _rest),
    "archive": (4, _archive),
    "bytes": (10, _bytes),
    "junk": (2, _junk),
}
