"""The level is the best that was found to work, and one that was asked for and cannot be had is an error."""

from __future__ import annotations

import pytest

from trainmaster.node.host.isolation import IsolationError, Wanted, decide_level
from trainmaster.shim import features
from trainmaster.shim.features import IsolationFinding

pytestmark = pytest.mark.unit

NAMES = (features.USER_NAMESPACE, features.MOUNTS, features.OVERLAY, features.PROCESSES, features.NETWORK)


def find(*broken: str) -> list[IsolationFinding]:
    return [
        IsolationFinding(name, name not in broken, "Operation not permitted" if name in broken else "")
        for name in NAMES
    ]


@pytest.mark.parametrize(
    ("wanted", "uid", "broken", "want"),
    [
        pytest.param("auto", 0, (), "full", id="root gets everything"),
        pytest.param("auto", 1000, (), "user", id="an ordinary user has user namespaces"),
        pytest.param("auto", 1000, (features.USER_NAMESPACE, features.MOUNTS), "plain", id="refused: plain"),
        pytest.param("auto", 0, (features.NETWORK,), "plain", id="no networks, plain"),
        pytest.param("auto", 0, (features.OVERLAY,), "full", id="overlays can be done without"),
        pytest.param("plain", 0, (), "plain", id="plain can be asked for"),
        pytest.param("user", 0, (), "user", id="root may ask for user namespaces"),
        pytest.param("full", 0, (), "full", id="what is best may be asked for"),
    ],
)
def test_the_level_is_decided_by_what_works(wanted: Wanted, uid: int, broken: tuple[str, ...], want: str) -> None:
    assert decide_level(wanted, uid, find(*broken)).level == want


@pytest.mark.parametrize(
    ("wanted", "uid", "broken", "says"),
    [
        pytest.param("full", 1000, (), "needs a server that runs as root", id="full as an ordinary user"),
        pytest.param("full", 0, (features.MOUNTS,), "mounts: Operation not permitted", id="full without mounts"),
        pytest.param("user", 1000, NAMES, "user namespace: Operation not permitted", id="user without user namespaces"),
        pytest.param("user", 0, (features.USER_NAMESPACE,), "user namespaces are refused", id="user as root, refused"),
    ],
)
def test_a_level_that_cannot_be_had_is_refused(wanted: Wanted, uid: int, broken: tuple[str, ...], says: str) -> None:
    with pytest.raises(IsolationError, match=says):
        decide_level(wanted, uid, find(*broken))


def test_without_findings_there_is_the_plain_level() -> None:
    found = decide_level("auto", 0, [])
    assert (found.level, found.why) == ("plain", "this machine has no namespaces")
    assert not found.find(features.MOUNTS).works
