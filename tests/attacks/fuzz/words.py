"""Values that parsers and validators trip over, and JSON values grown or bent from others. All from one `Random`."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

TEXTS = (
    "", " ", "a", "a-b", "A_B", "ä", "\u202e", "\x00", "a\x00b", "a\nb", "\r\n", "../..", "/", "//", "/etc/passwd", ".",
    "..", "a/../../b", "a\\b", "%2e%2e%2f", "%00", "%", "$(id)", "`id`", "{{a}}", "\ud800", "\U0001f600", "null", "true",
    "0", "-1", "1e999999999", "1e-999999999", "1E6", "0x10", "1" * 5000, "9" * 400, "1:1:1", "NaN", "Infinity", "-0",
    "1Ei", "1e3Ki", "500m", "0.1n", "99999999999999999999Gi", "2026-01-01T00:00:00Z", "9999-12-31T23:59:60Z",
    "0000-00-00T00:00:00Z", "2026-01-01T00:00:00.999999999+99:99", "1h", "9" * 30 + "h", "a" * 63, "a" * 64, "a" * 254,
    "a." * 200, "-" * 200, "x" * 5000, "a=b", "a!=b", "a in (b)", "sha256:" + "0" * 64, "$patch", "$setElementOrder/env",
    "kubernetes.io/x", "trainmaster.dev/packages", "trainmaster.dev/tenant", "default", "kube-system", "[" * 300,
    "{" * 300, "(" * 300, "((((a)*)*)*)*$", "a" * 40 + "!", "&a [*a]", "!!python/object:x", "<<", "- - -", "?", "|", ">",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 65535, 65536, 2**31 - 1, 2**31, -(2**31) - 1, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 0.1, -0.0,
    1e308, 1e-320, 5e-324, 1.5, 1e15, 1e16,
)  # fmt: skip
KEYS = (
    "", "name", "namespace", "kind", "apiVersion", "metadata", "spec", "status", "labels", "annotations", "data",
    "managedFields", "fieldsV1", "ownerReferences", "finalizers", "uid", "resourceVersion", "generateName", "$patch",
    "$retainKeys", "$deleteFromPrimitiveList/x", "$setElementOrder/containers", "f:metadata", "k:{\"name\":\"a\"}", "v:1",
    ".", "i:0", "a.b/c", "__proto__", "<<", "0",
)  # fmt: skip

MOST_BYTES = 3 * 1024 * 1024


def make_text(random: Random) -> str:
    if random.random() < 0.8:
        return random.choice(TEXTS)
    return "".join(random.choice(TEXTS)[:20] for _ in range(random.randrange(4)))


def make_value(random: Random, depth: int = 3) -> Any:
    """A JSON value of no particular meaning."""
    roll = random.random()
    if depth and roll < 0.2:
        return {
            random.choice(KEYS) or make_text(random): make_value(random, depth - 1) for _ in range(random.randrange(4))
        }
    if depth and roll < 0.35:
        return [make_value(random, depth - 1) for _ in range(random.randrange(4))]
    if roll < 0.37:
        return make_deep(random)
    if roll < 0.39:
        return make_wide(random)
    if roll < 0.65:
        return random.choice(NUMBERS)
    if roll < 0.75:
        return random.choice((None, True, False))
    return make_text(random)


def make_deep(random: Random) -> Any:
    value: Any = random.choice((1, None, "x", {}, []))
    use_list = random.random() < 0.5
    for _ in range(random.choice((10, 60, 150, 199, 260, 900))):
        value = [value] if use_list else {random.choice(("a", "spec", "f:a")): value}
    return value


def make_wide(random: Random) -> Any:
    count = random.choice((50, 1000, 9000))
    if random.random() < 0.5:
        return [random.choice(("", 1, {}, {"name": "a"}))] * count
    return {f"{random.choice(('k', 'f:', 'a.b/'))}{number}": random.choice(("", 1, {})) for number in range(count)}


def bend(random: Random, value: Any, times: int = 1) -> Any:
    """A copy in which some places hold something else, less, or more."""
    value = copy.deepcopy(value)
    for _ in range(times):
        places = list_places(value)
        if not places:
            return make_value(random)
        holder, key = random.choice(places)
        _bend_at(random, holder, key)
    return value


def _bend_at(random: Random, holder: Any, key: Any) -> None:
    roll = random.random()
    if roll < 0.45:
        holder[key] = make_value(random)
    elif roll < 0.6:
        del holder[key]
    elif roll < 0.75:
        if isinstance(holder, dict):
            holder[random.choice(KEYS)] = holder[key] if random.random() < 0.5 else make_value(random)
        else:
            holder.insert(random.randrange(len(holder) + 1), make_value(random))
    elif roll < 0.85:
        holder[key] = [holder[key]] * random.choice((0, 1, 2, 50))
    elif isinstance(holder[key], str):
        holder[key] += make_text(random)
    else:
        holder[key] = to_json(holder[key]).decode()


def list_places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 500:
        item = waiting.pop()
        if isinstance(item, dict | list):
            keys = list(item) if isinstance(item, dict) else range(len(item))
            found += [(item, key) for key in keys]
            waiting += [item[key] for key in keys]
    return found


_FRAGMENTS = (
    b"\x00", b"\xff\xfe", b"\r\n", b"\n", b"\r", b"[", b"{", b"]", b"}", b'"', b"\\", b"\\ud800", b"\\u0000", b",", b":",
    b"1e999", b"NaN", b"- ", b"? ", b"&a ", b"*a", b"<<: ", b"!!binary ", b"%TAG ! x\n", b"---\n", b"'", b"|\n", b"\t",
    b"\x80" * 10, b"\x7f" * 4, b"k8s\x00", b"\xef\xbb\xbf", b"/*", b"0" * 100, b"true", b"null",
)  # fmt: skip


def mutate(random: Random, raw: bytes) -> bytes:
    """Bytes that were something."""
    out = bytearray(raw)
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        at = random.randrange(len(out) + 1)
        roll = random.random()
        if roll < 0.35:
            out[at:at] = random.choice(_FRAGMENTS)
        elif roll < 0.5:
            out[at : at + random.choice((1, 2, 10, 200))] = b""
        elif roll < 0.65 and at < len(out):
            out[at] = random.randrange(256)
        elif roll < 0.8:
            piece = bytes(out[at : at + random.choice((1, 5, 50))])
            out[at:at] = piece * random.choice((1, 10, 500, 5000) if len(piece) < 60 else (1,))
        elif roll < 0.9:
            other = random.randrange(len(out) + 1)
            out[at:at] = out[other : other + 100]
        else:
            out[at:at] = bytes(random.randrange(256) for _ in range(random.randrange(30)))
    return bytes(out[:MOST_BYTES])


def to_json(value: Any) -> bytes:
    """As `json.dumps`, but for what no careful writer writes: half surrogates, any depth, and an end after 3 MiB even if
    there is more. One value may stand in many places, so there may be much more than was ever made."""
    out, size = [], 0
    waiting: list[Any] = [value]
    while waiting and size < MOST_BYTES:
        item = waiting.pop()
        if isinstance(item, bytes):
            piece = item
        elif isinstance(item, dict):
            piece = b"{"
            waiting.append(b"}")
            for number, key in enumerate(reversed(item)):
                waiting += [b", "] if number else []
                waiting += [item[key], json.dumps(key).encode() + b": "]
        elif isinstance(item, list):
            piece = b"["
            waiting.append(b"]")
            for number, one in enumerate(reversed(item)):
                waiting += [b", ", one] if number else [one]
        else:
            piece = json.dumps(item).encode()
        out.append(piece)
        size += len(piece)
    return b"".join(out)[:MOST_BYTES]
