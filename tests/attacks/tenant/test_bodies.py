"""Bodies that are small to send and dear to read: refused, at a price that leaves the server to the others."""

from __future__ import annotations

import json

import pytest

from tests.attacks.cost import cheap
from tests.attacks.site import Site, unique
from trainmaster.api.formats import yaml_documents

pytestmark = pytest.mark.attacks

YAML = "application/yaml"
APPLY = "application/apply-patch+yaml"


def send(site: Site, body: bytes, content_type: str, method: str = "POST", path: str = "") -> tuple[int, str]:
    code, answer = site.ann.kube.call(method, path or site.ann.path("configmaps"), body, Content_Type=content_type)
    return code, answer["message"] if isinstance(answer, dict) else str(answer)


HOSTILE_YAML = {
    "nested block lists": b"- " * 30_000,
    "nested flow lists": b"[" * 50_000,
    "closed flow lists": b"[" * 50_000 + b"]" * 50_000,
    "nested flow maps": b"{a: " * 30_000,
    "pairs in flow lists": b"[a: " * 30_000,
    "nested keys": b"? " * 30_000,
    "collections as keys": b"{? [a]: b, " * 10_000,
    "indented maps": b"".join(b" " * level + b"a:\n" for level in range(600)),
    "base 60": b"a: 1" + b":1" * 120_000,
    "many digits": b"a: " + b"7" * 250_000,
    "many hex digits": b"a: 0x" + b"7" * 250_000,
    "many short values": b"[" + b"a," * 120_000 + b"]",
    "many empty entries": b"-\n" * 120_000,
    "many documents": b"--- a\n...\n" * 20_000,
    "many tag lines": b"".join(b"%%TAG !a%d! tag:x\n" % number for number in range(12_000)) + b"--- a\n",
    "tag lines after carriage returns": b"\r".join(b"%%TAG !a%d! x" % number for number in range(12_000)) + b"\r--- a",
    "aliases that double": b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n",
    "an alias of itself": b"a: &a [*a]\n",
    "merge keys": b"a:\n  <<: {b: c}\n",
    "a key given twice": b"kind: ConfigMap\nkind: Pod\n",
    "binary": b"a: !!binary " + b"QUFB" * 50_000,
    "a Python object": b"!!python/object/apply:os.system ['true']",
    "UTF-16": "kind: ConfigMap".encode("utf-16"),
    "half of a surrogate pair": b'a: "\\ud800"',
    "infinity": b"a: .inf",
    "half a megabyte": b"# " + b"x" * 520_000,
}


@pytest.mark.parametrize("content_type", [YAML, APPLY])
@pytest.mark.parametrize("body", HOSTILE_YAML.values(), ids=HOSTILE_YAML.keys())
def test_hostile_yaml_is_refused_cheaply(site: Site, body: bytes, content_type: str) -> None:
    with cheap(site):
        if content_type == YAML:
            code, message = send(site, body, YAML)
        else:
            path = site.ann.path("configmaps", "hostile") + "?fieldManager=me"
            code, message = send(site, body, APPLY, "PATCH", path)
        assert code in (400, 413, 422), message
        assert message


def test_the_limit_of_yaml_is_named(site: Site) -> None:
    code, message = send(site, b"a: " + b"x" * 300_000, YAML)
    assert code == 413
    assert "limits.yaml_bytes" in message
    code, message = send(site, b"a: " + b"[" * 300, YAML)
    assert code == 400
    assert "max depth 200" in message


def test_keys_that_are_given_twice_are_told_and_cost_little(site: Site) -> None:
    """A long name around many repeated fields: each would be told with the whole way to it."""
    inner = ",".join(f'"{number}":1' for number in range(40_000))
    start = '{"kind":"ConfigMap","apiVersion":"v1","data":{'
    bodies = [f"{start}{inner},{inner}}}}}", f'{start}"{"n" * 500_000}":{{{inner},{inner}}}}}}}']
    for body in bodies:
        with cheap(site):
            code, message = send(
                site, body.encode(), "application/json", path=site.ann.path("configmaps") + "?fieldValidation=Strict"
            )
            assert code in (400, 413, 422)
            assert len(message) < 1_000_000


def test_ordinary_yaml_is_still_taken(site: Site) -> None:
    name = unique("plain")
    body = f"""
# as a person writes it
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  labels: {{app: "1", 2: "two"}}
data:
  on-call: "yes"
  text: |
    several lines
    of text
  time: 2026-01-02T03:04:05Z
"""
    code, answer = site.ann.kube.call("POST", site.ann.path("configmaps"), body.encode(), Content_Type=YAML)
    assert code == 201, answer
    assert answer["data"] == {"on-call": "yes", "text": "several lines\nof text\n", "time": "2026-01-02T03:04:05Z"}
    assert answer["metadata"]["labels"] == {"app": "1", "2": "two"}
    assert json.dumps(answer)
    site.ann.kube.delete(site.ann.path("configmaps", name))


def test_an_answer_in_yaml_costs_little_however_large_it_is(site: Site) -> None:
    name = unique("wide")
    data = {f"key-{number}": "v" for number in range(29_000)}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    site.ann.kube.create(site.ann.path("configmaps"), body)
    with cheap(site):
        code, answer = site.ann.kube.call("GET", site.ann.path("configmaps", name), Accept=YAML)
        assert code == 200
        assert yaml_documents.parse(answer.encode(), 20, 1_000_000)["data"] == data
    site.ann.kube.delete(site.ann.path("configmaps", name))
