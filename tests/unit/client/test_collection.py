"""The storage of a watch cache: objects that have not changed for long are packed, and nobody notices."""

from __future__ import annotations

import tracemalloc

import pytest

from trainmaster.api.meta import Object
from trainmaster.client.collection import Collection

pytestmark = pytest.mark.unit

COUNT = 20


def make(number: int, version: int = 1, owner: str = "") -> Object:
    meta: Object = {
        "name": f"o-{number:02}",
        "namespace": "ns",
        "uid": f"uid-{number}",
        "resourceVersion": str(version),
    }
    if owner:
        meta["ownerReferences"] = [{"kind": "TrainJob", "name": owner, "uid": owner, "controller": True}]
    return {"apiVersion": "v1", "kind": "Thing", "metadata": meta, "spec": {"text": "ä" * 500, "number": 1.5}}


def fill(collection: Collection, owner: str = "") -> None:
    for number in range(COUNT):
        collection.put(make(number, owner=owner))


def test_packed_objects_are_read_as_they_were_put() -> None:
    collection = Collection(most_whole=2)
    fill(collection)
    assert len(collection) == COUNT
    assert list(collection.all("ns")) == [make(number) for number in range(COUNT)]
    assert collection.find("ns", "o-03") == make(3)


def test_packed_objects_take_a_small_part_of_the_memory() -> None:
    sizes = []
    for most_whole in (10_000, 2):
        tracemalloc.start()
        collection = Collection(most_whole=most_whole)
        for number in range(1_000):
            collection.put(make(number))
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert len(collection) == 1_000
    assert sizes[1] < sizes[0] / 2


def test_children_are_found_whether_packed_or_not() -> None:
    collection = Collection(most_whole=2)
    fill(collection, owner="job")
    assert collection.owned("ns", "job") == [make(number, owner="job") for number in range(COUNT)]
    collection.put(make(3, version=2))
    collection.remove(make(4, owner="job"))
    assert len(collection.owned("ns", "job")) == COUNT - 2
    assert collection.owned("other", "job") == []


def test_a_packed_object_changes_and_goes() -> None:
    collection = Collection(most_whole=2)
    fill(collection)
    collection.put(make(0, version=2))
    assert collection.find("ns", "o-00") == make(0, version=2)
    collection.remove(make(1))
    assert collection.find("ns", "o-01") is None
    assert len(collection) == COUNT - 1


def test_a_list_in_pages_reports_only_what_is_different() -> None:
    collection = Collection(most_whole=2)
    fill(collection)
    seen: list[str] = []
    collection.notices.append(lambda obj: seen.append(obj["metadata"]["name"]))
    listing = collection.begin_list()
    listing.add(make(number) for number in range(10))
    assert not seen
    listing.add([make(10, version=7), *(make(number) for number in range(12, COUNT + 1))])
    listing.end()
    assert seen == ["o-11", "o-10", "o-20"]
    assert collection.find("ns", "o-10") == make(10, version=7)
    assert collection.find("ns", "o-11") is None


def test_a_list_that_breaks_off_changes_nothing() -> None:
    collection = Collection(most_whole=2)
    fill(collection)
    collection.begin_list().add([make(0, version=9)])
    assert list(collection.all()) == [make(number) for number in range(COUNT)]
