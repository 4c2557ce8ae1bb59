"""Each trouble is one sentence with its cure, told once."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOB_SETS, PODS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client
from trainmaster.client.reflector import Reflector, WatchScope
from trainmaster.operator.monitoring.telling import telling
from trainmaster.operator.monitoring.troubles import (
    OperatorTrouble,
    explain_failure,
    explain_refusal,
    explain_watches,
)
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

_ABOUT: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "op", "namespace": "ns", "uid": "u"}}


def fail(scope: WatchScope, code: int, text: str) -> Reflector:
    watch = Reflector(cast(Client, None), scope, cast(Any, None), VirtualClock())
    watch.failing_since, watch.refused, watch.trouble = 1.0, code, text
    return watch


def test_collections_that_fail_for_one_cause_are_one_trouble() -> None:
    watches = [
        fail(WatchScope(JOB_SETS), 404, "no"),
        fail(WatchScope(TRAIN_JOBS), 404, "no"),
        fail(WatchScope(PODS, "a"), 403, "pods is forbidden"),
        fail(WatchScope(CONFIG_MAPS, "a"), 403, "configmaps is forbidden"),
        Reflector(cast(Client, None), WatchScope(EVENTS), cast(Any, None), VirtualClock()),
    ]
    found = explain_watches(watches)
    assert [one.reason for one in found] == ["JobSetMissing", "DefinitionsMissing", "RightsMissing"]
    assert "trainjobs.trainer.kubeflow.org (v1alpha1)" in found[1].text and "jobsets" not in found[1].text
    assert found[2].text.startswith("this operator may not read pods, configmaps in a: apply the output of")
    away = [fail(WatchScope(gvr), 0, "cannot connect") for gvr in (PODS, TRAIN_JOBS)]
    assert [one.reason for one in explain_watches(away)] == ["ClusterUnavailable"]


@pytest.mark.parametrize(
    ("code", "reason", "cure"),
    [
        (401, "CredentialsRefused", "renew it"),
        (403, "RightsMissing", "apply the output of"),
        (503, "ClusterUnavailable", "goes on asking"),
    ],
)
def test_an_answer_of_the_server_is_explained(code: int, reason: str, cure: str) -> None:
    found = explain_failure(code, "the words of the server")
    assert found.reason == reason and cure in found.text and "the words of the server" in found.text


def test_a_missing_namespace_is_the_operators_own() -> None:
    found = explain_refusal(StatusError(404, "NotFound", 'namespaces "x" not found'), "x")
    assert found.reason == "NamespaceMissing" and "own namespace x" in found.text


class Server:
    def __init__(self) -> None:
        self.events: list[Object] = []

    async def create(self, gvr: object, obj: Object, namespace: str) -> Object:
        self.events.append(obj)
        return obj


def test_a_trouble_is_told_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server, clock, troubles = Server(), VirtualClock(), list[OperatorTrouble]()

    async def main() -> None:
        async with telling(cast(Client, server), _ABOUT, clock) as told:
            told.add(lambda: troubles)
            troubles.append(OperatorTrouble("JobSetMissing", "there is none: install it"))
            await clock.sleep(20)
            troubles.append(OperatorTrouble("ClusterUnavailable", "first"))
            await clock.sleep(20)
            troubles[1] = OperatorTrouble("ClusterUnavailable", "second, which is no news")
            await clock.sleep(20)
            troubles.clear()
            await clock.sleep(20)
            told.note_start(OperatorTrouble("NamespaceMissing", "create it"))
            assert [one.reason for one in told.list_troubles()] == ["NamespaceMissing"]

    run_virtual(main())
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said == [
        ("WARNING", "there is none: install it"),
        ("WARNING", "first"),
        ("INFO", "trouble is over"),
        ("INFO", "trouble is over"),
    ]
    assert [event["reason"] for event in server.events] == ["JobSetMissing", "ClusterUnavailable"]
    assert {event["involvedObject"]["uid"] for event in server.events} == {"u"}
    assert {event["type"] for event in server.events} == {"Warning"}
