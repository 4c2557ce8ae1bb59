"""What clients ask for and what they send: negotiation, bodies, options."""

from __future__ import annotations

import orjson
import pytest

from trainmaster.api.declaring import catalogue
from trainmaster.api.formats import yaml_documents
from trainmaster.api.status import Invalid, StatusError
from trainmaster.apiserver.http import bodies, forms, options
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.apiserver.http.messages import Query
from trainmaster.apiserver.http.negotiate import Form, choose_form, find_discovery_version
from trainmaster.client.contract import PatchType
from trainmaster.testing.virtual import VirtualClock

pytestmark = pytest.mark.unit

TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize(
    ("accept", "want"),
    [
        (None, Form.JSON),
        ("", Form.JSON),
        ("*/*", Form.JSON),
        ("application/json, */*", Form.JSON),
        ("application/vnd.kubernetes.protobuf,application/json", Form.JSON),
        (TABLE, Form.TABLE),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json", Form.TABLE_BETA),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", Form.PARTIAL),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json", Form.PARTIAL_LIST),
        ("application/yaml", Form.YAML),
        ("application/json;q=0.5, application/yaml", Form.YAML),
        ("application/json;as=Unknown;v=v1;g=meta.k8s.io, application/json", Form.JSON),
    ],
)
def test_the_first_form_that_can_be_served_is_chosen(accept: str | None, want: Form) -> None:
    assert choose_form(accept) is want


@pytest.mark.parametrize("accept", ["text/html", "application/vnd.kubernetes.protobuf", "application/json;q=0"])
def test_nothing_acceptable_is_406(accept: str) -> None:
    with pytest.raises(StatusError) as caught:
        choose_form(accept)
    assert caught.value.code == 406


def test_aggregated_discovery_is_for_those_who_ask_for_it_first() -> None:
    assert find_discovery_version(f"{AGGREGATED},application/json") == "v2"
    assert find_discovery_version(AGGREGATED.replace("v=v2", "v=v2beta1") + ",application/json") == "v2beta1"
    assert find_discovery_version(f"application/json, {AGGREGATED}") == ""
    assert find_discovery_version(None) == ""


def test_depth_is_counted_where_brackets_nest_and_not_where_they_follow_each_other() -> None:
    flat = orjson.dumps([[1]] * 1000)
    assert bodies.parse_json(flat, ApiLimits(json_depth=5)) == [[1]] * 1000
    with pytest.raises(StatusError, match="exceeded max depth 5"):
        bodies.parse_json(b"[[[[[[1]]]]]]", ApiLimits(json_depth=5))
    assert bodies.parse_json(b"[[[[[1]]]]]", ApiLimits(json_depth=5))


def test_apply_bodies_may_be_yaml_or_json() -> None:
    for body in (b"kind: X\nn: 1", b'{"kind":"X","n":1}'):
        assert bodies.parse_patch(body, "application/apply-patch+yaml", ApiLimits()) == (
            PatchType.APPLY,
            {"kind": "X", "n": 1},
        )


def test_the_media_type_may_carry_parameters() -> None:
    assert bodies.parse_object(b'{"a":1}', "application/json; charset=utf-8", ApiLimits()) == {"a": 1}
    patch_type, _ = bodies.parse_patch(b"{}", "application/merge-patch+json; charset=utf-8", ApiLimits())
    assert patch_type is PatchType.MERGE


def test_delete_options_come_from_the_body_or_the_query() -> None:
    query = Query("propagationPolicy=Foreground&gracePeriodSeconds=5")
    assert options.read_delete_options(query, None).propagation == "Foreground"
    assert options.read_delete_options(query, None).grace_seconds == 5
    body = {"propagationPolicy": "Orphan", "preconditions": {"uid": "u", "resourceVersion": "7"}, "dryRun": ["All"]}
    found = options.read_delete_options(query, body)
    assert (found.propagation, found.grace_seconds, found.uid, found.resource_version, found.dry_run) == (
        "Orphan", None, "u", "7", True,
    )  # fmt: skip
    assert options.read_delete_options(Query("dryRun=All"), {}).dry_run
    assert options.read_delete_options(Query("orphanDependents=true"), None).propagation == "Orphan"


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("dryRun=Some", 'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value'),
        ("dryRun=", ""),
    ],
)
def test_a_dry_run_is_all_or_nothing(query: str, want: str) -> None:
    if not want:
        assert not options.read_write_options(Query(query), "CreateOptions").dry_run
        return
    with pytest.raises(Invalid) as caught:
        options.read_write_options(Query(query), "CreateOptions")
    assert caught.value.message.startswith(want)


def test_watches_end_at_the_servers_limit_at_the_latest() -> None:
    assert options.read_watch_options(Query("timeoutSeconds=5"), longest=60).timeout_seconds == 5
    assert options.read_watch_options(Query("timeoutSeconds=500"), longest=60).timeout_seconds == 60
    assert options.read_watch_options(Query(""), longest=60).timeout_seconds == 60
    assert options.read_watch_options(Query(""), longest=60).send_initial_events is None
    assert options.read_watch_options(Query("sendInitialEvents=false"), longest=60).send_initial_events is False


@pytest.mark.parametrize("query", ["tailLines=-1", "limitBytes=0", "sinceSeconds=0", "sinceSeconds=5&sinceTime=x"])
def test_log_options_that_make_no_sense_are_invalid(query: str) -> None:
    with pytest.raises(Invalid):
        options.read_log_options(Query(query))


@pytest.mark.parametrize("size", [10, 300_000])
def test_a_yaml_answer_reads_as_the_object(size: int) -> None:
    obj = {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"on": "yes", "text": "x\ny\n", "long": "z" * size}}
    kind = catalogue.build().find_type("v1", "ConfigMap")
    assert kind is not None
    body, content_type = forms.render_object(Form.YAML, kind, orjson.dumps(obj), Query(""), VirtualClock())
    assert content_type == b"application/yaml"
    assert yaml_documents.parse(body, 10) == obj
