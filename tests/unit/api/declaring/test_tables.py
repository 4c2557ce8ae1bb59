"""Tables: cells as kubectl prints them, rows with what the client asked for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.api.declaring import catalogue, tables
from trainmaster.api.declaring.kinds import Column, Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.status import StatusError

pytestmark = pytest.mark.unit

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
OBJECT = {"metadata": {"name": "x", "namespace": "n", "creationTimestamp": "2026-01-01T11:55:00Z"}, "spec": {"n": 3}}


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (-5, "<invalid>"),
        (-0.5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (599, "9m59s"),
        (600, "10m"),
        (179 * 60 + 59, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (47 * 3600 + 3599, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (731 * 86400, "2y1d"),
        (8 * 365 * 86400, "8y"),
    ],
)
def test_durations_are_written_as_kubectl_writes_them(seconds: float, want: str) -> None:
    assert tables.render_duration(seconds) == want


@pytest.mark.parametrize("timestamp", [None, "", "yesterday", 5, "2026-01-01T00:00:00"])
def test_an_age_without_a_time_is_unknown(timestamp: object) -> None:
    assert tables.render_age(timestamp, NOW.timestamp()) == "<unknown>"


@given(st.floats(-1e6, 1e12))
def test_a_duration_has_at_most_two_units(seconds: float) -> None:
    text = tables.render_duration(seconds)
    assert text == "<invalid>" or 1 <= sum(character.isalpha() for character in text) <= 2


def kind(*columns: Column) -> Kind:
    return Kind("g", "v1", "Thing", "things", "thing", True, "Thing", SchemaNode, columns=columns)


def test_a_kind_without_columns_shows_name_and_age() -> None:
    table = tables.build_table(kind(), [OBJECT], NOW, metadata={"resourceVersion": "9"})
    assert table["apiVersion"] == "meta.k8s.io/v1"
    assert table["metadata"] == {"resourceVersion": "9"}
    assert [(column["name"], column["format"]) for column in table["columnDefinitions"]] == [
        ("Name", "name"),
        ("Age", ""),
    ]
    assert table["rows"] == [
        {
            "cells": ["x", "5m"],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": OBJECT["metadata"],
            },
        }
    ]


def test_declared_columns_follow_the_name() -> None:
    number = Column("N", lambda obj, now: obj["spec"]["n"], type="integer", priority=1, description="A number.")
    table = tables.build_table(kind(number), [OBJECT], NOW, include="None", metadata={})
    assert table["columnDefinitions"][1] == {
        "name": "N",
        "type": "integer",
        "format": "",
        "description": "A number.",
        "priority": 1,
    }
    assert table["rows"] == [{"cells": ["x", 3]}]


def test_a_kind_may_place_its_name_elsewhere() -> None:
    columns = (tables.AGE, tables.NAME)
    assert tables.columns_of(kind(*columns)) == columns


def test_rows_carry_the_whole_object_when_asked() -> None:
    table = tables.build_table(kind(), [OBJECT], NOW, include="Object", metadata={})
    assert table["rows"][0]["object"] is OBJECT


def test_an_odd_include_is_a_400_in_upstreams_words() -> None:
    with pytest.raises(StatusError) as caught:
        tables.build_table(kind(), [], NOW, include="Bad", metadata={})
    assert caught.value.message == (
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Bad\": must be 'Metadata', 'Object', "
        "'None', or empty"
    )


def test_partial_metadata_leaves_out_everything_else() -> None:
    assert tables.build_partial_list([OBJECT], {"resourceVersion": "9"}) == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "9"},
        "items": [{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": OBJECT["metadata"]}],
    }


@pytest.mark.parametrize("served", catalogue.build().kinds, ids=lambda served: f"{served.api_version} {served.kind}")
def test_every_kind_renders_an_object_that_holds_nothing(served: Kind) -> None:
    bare = {"apiVersion": served.api_version, "kind": served.kind, "metadata": {"name": "x"}}
    table = tables.build_table(served, [bare], NOW, metadata={})
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])
    assert "x" in table["rows"][0]["cells"]
