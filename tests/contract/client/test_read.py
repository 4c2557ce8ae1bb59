"""Getting and listing: pages, selectors, and the rules about resourceVersion."""

from __future__ import annotations

import pytest

from tests.contract.client.objects import CONFIG_MAPS, PODS, make_config_map, make_pod, refusal
from tests.contract.client.stage import Stage
from trainmaster.client.contract import ListOptions, ObjectList
from trainmaster.client.pages import read_pages

pytestmark = pytest.mark.contract


def names(found: ObjectList) -> list[str]:
    return [item["metadata"]["name"] for item in found.items]


async def fill(stage: Stage, count: int = 5) -> None:
    for number in range(count):
        labels = {"number": str(number), "half": "low" if number < count / 2 else "high", "set": "yes"}
        await stage.client.create(CONFIG_MAPS, make_config_map(f"m{number}", labels=labels), stage.namespace)


async def select(stage: Stage, labels: str = "", fields: str = "") -> list[str]:
    return names(await stage.client.list(CONFIG_MAPS, stage.namespace, ListOptions(labels, fields)))


async def test_a_missing_object_is_not_found(stage: Stage) -> None:
    assert await refusal(stage.client.get(CONFIG_MAPS, "zzz", stage.namespace)) == {
        "code": 404,
        "reason": "NotFound",
        "message": 'configmaps "zzz" not found',
        "details": {"name": "zzz", "kind": "configmaps"},
    }


async def test_a_list_is_ordered_by_name_and_carries_types(stage: Stage) -> None:
    await fill(stage, 3)
    found = await stage.client.list(CONFIG_MAPS, stage.namespace)
    assert names(found) == ["kube-root-ca.crt", "m0", "m1", "m2"]
    assert all((item["apiVersion"], item["kind"]) == ("v1", "ConfigMap") for item in found.items)


async def test_a_list_of_metadata_has_the_metadata_and_nothing_else(stage: Stage) -> None:
    await fill(stage, 2)
    whole, partial = [
        await stage.client.list(CONFIG_MAPS, stage.namespace, ListOptions("set=yes", metadata_only=only))
        for only in (False, True)
    ]
    assert [item["metadata"] for item in partial.items] == [item["metadata"] for item in whole.items]
    types = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
    assert all({**item, "metadata": None} == {**types, "metadata": None} for item in partial.items)


async def test_a_namespace_that_does_not_exist_lists_as_empty(stage: Stage) -> None:
    assert (await stage.client.list(CONFIG_MAPS, "no-such")).items == []


async def test_all_namespaces_are_listed_without_a_namespace(stage: Stage) -> None:
    await fill(stage, 1)
    found = await stage.client.list(CONFIG_MAPS)
    assert (stage.namespace, "m0") in [
        (item["metadata"]["namespace"], item["metadata"]["name"]) for item in found.items
    ]


async def test_a_lists_revision_is_not_below_that_of_its_items(stage: Stage) -> None:
    await fill(stage, 2)
    found = await stage.client.list(CONFIG_MAPS, stage.namespace)
    assert int(found.resource_version) >= max(int(item["metadata"]["resourceVersion"]) for item in found.items)


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ("number=1", ["m1"]),
        ("number==1", ["m1"]),
        ("half!=low,set", ["m3", "m4"]),
        ("number in (0, 4)", ["m0", "m4"]),
        ("number notin (0,4),set=yes", ["m1", "m2", "m3"]),
        ("set", ["m0", "m1", "m2", "m3", "m4"]),
        ("!set", ["kube-root-ca.crt"]),
        ("half=low,number=4", []),
        ("number>2", ["m3", "m4"]),
    ],
)
async def test_label_selectors_choose(stage: Stage, selector: str, want: list[str]) -> None:
    await fill(stage)
    assert await select(stage, labels=selector) == want


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ("metadata.name=m1", ["m1"]),
        ("metadata.name==m1,metadata.name=m1", ["m1"]),
        ("metadata.name!=m1,metadata.name!=kube-root-ca.crt", ["m0", "m2", "m3", "m4"]),
        ("metadata.namespace=elsewhere", []),
        ("metadata.name=m1,metadata.name=m2", []),
    ],
)
async def test_field_selectors_choose(stage: Stage, selector: str, want: list[str]) -> None:
    await fill(stage)
    assert await select(stage, fields=selector) == want


async def test_pods_are_selected_by_node_and_phase(stage: Stage) -> None:
    await stage.client.create(PODS, make_pod("here", node="n1"), stage.namespace)
    await stage.client.create(PODS, make_pod("nowhere"), stage.namespace)
    for selector, want in (
        ("spec.nodeName=n1", ["here"]),
        ("spec.nodeName=", ["nowhere"]),
        ("status.phase=Pending", ["here", "nowhere"]),
        ("status.phase!=Pending", []),
    ):
        found = await stage.client.list(PODS, stage.namespace, ListOptions(field_selector=selector))
        assert names(found) == want, selector


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ListOptions("a===b"), "unable to parse requirement: found '=', expected: identifier"),
        (ListOptions("a in x"), "unable to parse requirement: found 'x' expected: '('"),
        (ListOptions(field_selector="foo"), "invalid selector: 'foo'; can't understand 'foo'"),
        (
            ListOptions(field_selector="spec.x=1"),
            '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (
            ListOptions(resource_version="abc"),
            'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": '
            "invalid syntax",
        ),
    ],
)
async def test_malformed_questions_are_bad_requests(stage: Stage, options: ListOptions, message: str) -> None:
    status = await refusal(stage.client.list(CONFIG_MAPS, stage.namespace, options))
    assert status == {"code": 400, "reason": "BadRequest", "message": message}


async def test_an_unknown_field_of_pods_is_a_bad_request(stage: Stage) -> None:
    status = await refusal(stage.client.list(PODS, stage.namespace, ListOptions(field_selector="spec.x=1")))
    assert status == {"code": 400, "reason": "BadRequest", "message": "field label not supported: spec.x"}


async def test_pages_fit_together(stage: Stage) -> None:
    await fill(stage)
    found: list[str] = []
    revisions = set()
    async for page in read_pages(stage.client, CONFIG_MAPS, stage.namespace, ListOptions(limit=2)):
        assert len(page.items) <= 2
        found += names(page)
        revisions.add(page.resource_version)
        assert page.remaining == (6 - len(found) or None)
    assert found == ["kube-root-ca.crt", "m0", "m1", "m2", "m3", "m4"]
    assert len(revisions) == 1


async def test_pages_have_the_options_of_the_first(stage: Stage) -> None:
    await fill(stage)
    options = ListOptions("set", limit=1, metadata_only=True)
    pages = [page async for page in read_pages(stage.client, CONFIG_MAPS, stage.namespace, options)]
    assert len(pages) > 2
    assert all(len(page.items) == 1 and "data" not in page.items[0] for page in pages)


async def test_later_pages_show_the_state_of_the_first(stage: Stage) -> None:
    await fill(stage)
    first = await stage.client.list(CONFIG_MAPS, stage.namespace, ListOptions("set", limit=2))
    await stage.client.delete(CONFIG_MAPS, "m3", stage.namespace)
    await stage.client.create(CONFIG_MAPS, make_config_map("m2b", labels={"set": "yes"}), stage.namespace)
    await stage.client.update(CONFIG_MAPS, make_config_map("m4", {"new": "yes"}), stage.namespace)
    options = ListOptions("set", limit=5, continue_token=first.continue_token)
    rest = await stage.client.list(CONFIG_MAPS, stage.namespace, options)
    assert names(first) == ["m0", "m1"]
    assert names(rest) == ["m2", "m3", "m4"]
    assert "data" not in rest.items[2]
    assert rest.resource_version == first.resource_version
    assert not rest.continue_token


async def test_a_page_of_a_selection_does_not_say_how_many_remain(stage: Stage) -> None:
    await fill(stage)
    page = await stage.client.list(CONFIG_MAPS, stage.namespace, ListOptions("set", limit=2))
    assert page.continue_token
    assert page.remaining is None


async def test_a_full_last_page_has_no_token(stage: Stage) -> None:
    await fill(stage, 3)
    page = await stage.client.list(CONFIG_MAPS, stage.namespace, ListOptions(limit=4))
    assert len(page.items) == 4
    assert (page.continue_token, page.remaining) == ("", None)


async def test_a_continued_list_may_not_ask_for_a_revision(stage: Stage) -> None:
    await fill(stage)
    first = await stage.client.list(CONFIG_MAPS, stage.namespace, ListOptions(limit=2))
    options = ListOptions(limit=2, continue_token=first.continue_token, resource_version="5")
    assert await refusal(stage.client.list(CONFIG_MAPS, stage.namespace, options)) == {
        "code": 400,
        "reason": "BadRequest",
        "message": "specifying resource version is not allowed when using continue",
    }


async def test_a_malformed_token_is_a_bad_request(stage: Stage) -> None:
    options = ListOptions(limit=2, continue_token="abc")
    status = await refusal(stage.client.list(CONFIG_MAPS, stage.namespace, options))
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert status["message"].startswith("invalid continue token: continue key is not valid: ")


@pytest.mark.parametrize(
    ("options", "field", "reason", "text"),
    [
        (
            ListOptions(resource_version_match="Exact"),
            "resourceVersionMatch",
            "FieldValueForbidden",
            "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            ListOptions(resource_version="5", resource_version_match="Foo"),
            "resourceVersionMatch",
            "FieldValueNotSupported",
            'Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""',
        ),
        (
            ListOptions(resource_version="0", resource_version_match="Exact"),
            "resourceVersionMatch",
            "FieldValueForbidden",
            'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
    ],
)
async def test_contradictory_questions_are_invalid(
    stage: Stage, options: ListOptions, field: str, reason: str, text: str
) -> None:
    assert await refusal(stage.client.list(CONFIG_MAPS, stage.namespace, options)) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'ListOptions.meta.k8s.io "" is invalid: {field}: {text}',
        "details": {
            "group": "meta.k8s.io",
            "kind": "ListOptions",
            "causes": [{"reason": reason, "message": text, "field": field}],
        },
    }


async def test_any_revision_will_do_for_zero(stage: Stage) -> None:
    await fill(stage, 1)

    async def has_it() -> bool:
        found = await stage.client.list(CONFIG_MAPS, stage.namespace, ListOptions(resource_version="0"))
        return "m0" in names(found)

    await stage.eventually(has_it)


async def test_a_list_not_older_than_a_write_shows_the_write(stage: Stage) -> None:
    written = await stage.client.create(CONFIG_MAPS, make_config_map("fresh"), stage.namespace)
    options = ListOptions(
        resource_version=written["metadata"]["resourceVersion"], resource_version_match="NotOlderThan"
    )
    assert "fresh" in names(await stage.client.list(CONFIG_MAPS, stage.namespace, options))


async def test_a_list_at_an_exact_revision_shows_that_state(stage: Stage) -> None:
    written = await stage.client.create(CONFIG_MAPS, make_config_map("fresh"), stage.namespace)
    revision = written["metadata"]["resourceVersion"]
    await stage.client.delete(CONFIG_MAPS, "fresh", stage.namespace)
    await stage.client.create(CONFIG_MAPS, make_config_map("later"), stage.namespace)
    options = ListOptions(resource_version=revision, resource_version_match="Exact")
    found = await stage.client.list(CONFIG_MAPS, stage.namespace, options)
    assert "fresh" in names(found)
    assert "later" not in names(found)
    assert found.resource_version == revision


async def test_a_revision_of_the_future_times_out(stage: Stage) -> None:
    status = await refusal(stage.client.list(CONFIG_MAPS, stage.namespace, ListOptions(resource_version="99999999")))
    assert (status["code"], status["reason"]) == (504, "Timeout")
    assert status["message"].startswith("Timeout: Too large resource version: 99999999, current: ")
    assert status["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
