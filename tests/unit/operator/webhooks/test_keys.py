"""Replicas share one certificate and replace it without anybody's help."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.api.resources import SECRETS
from trainmaster.auth.pki import ServerKeys, issue_server_keys
from trainmaster.client.contract import Client, PatchType
from trainmaster.kit.scopes import Scope
from trainmaster.operator import tls
from trainmaster.operator.webhooks.bundles import repair
from trainmaster.operator.webhooks.keys import MountedKeys, SecretKeys
from trainmaster.operator.webhooks.rotation import SECRET, RotationTimes
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

DAY = 86_400.0


def make_keys(client: Client, clock: VirtualClock) -> SecretKeys:
    return SecretKeys(client, "default", ("a.svc",), clock, RotationTimes(days=3, renew_days=1))


def read_served(context: ssl.SSLContext) -> str:
    """The certificate that a client meets."""
    server, client = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    one = context.wrap_bio(server, client, server_side=True)
    other = trusting.wrap_bio(client, server)
    for _ in range(10):
        for end in (other, one):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = other.getpeercert(binary_form=True)
    assert found is not None
    return ssl.DER_cert_to_PEM_cert(found)


def test_two_replicas_serve_one_certificate_and_go_over_to_the_next_together() -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with running_cluster(clock=clock) as cluster, Scope("test") as scope:
            first, second = make_keys(cluster.client, clock), make_keys(cluster.client, clock)
            await asyncio.gather(first.start(), second.start())
            assert first.keys is not None and first.keys == second.keys
            served = first.keys.current.certificate
            bundles: set[int] = set()

            def note() -> None:
                if second.keys is not None:
                    bundles.add(second.keys.bundle.count("BEGIN"))

            second.notices.append(note)
            for keys in (first, second):
                scope.spawn_forever(keys.follow(), name="follow")
            scope.spawn_forever(first.rotate(cluster.client), name="rotate")
            await asyncio.sleep(1.9 * DAY)
            assert read_served(second.context) == read_served(first.context) == served
            await asyncio.sleep(0.2 * DAY)
            assert read_served(second.context) == read_served(first.context) != served
            assert bundles == {1, 2} and second.keys is not None
            assert (
                second.keys.bundle.count("BEGIN") == 1
                and read_served(second.context) in second.keys.current.certificate
            )

    run_virtual(main())


@pytest.mark.parametrize("damage", ["deleted", "foreign"])
def test_a_secret_that_is_damaged_is_made_again_while_the_old_certificate_serves(damage: str) -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with running_cluster(clock=clock) as cluster, Scope("test") as scope:
            keys = make_keys(cluster.client, clock)
            await keys.start()
            scope.spawn_forever(keys.follow(), name="follow")
            before = read_served(keys.context)
            if damage == "deleted":
                await cluster.client.delete(SECRETS, SECRET, "default")
            else:
                data = {"data": {"tls.key": "Zm9yZWlnbg=="}}
                await cluster.client.patch(SECRETS, SECRET, PatchType.MERGE, data, "default")
            await asyncio.sleep(1)
            assert read_served(keys.context) == before
            scope.spawn_forever(keys.rotate(cluster.client), name="rotate")
            await asyncio.sleep(10)
            assert keys.keys is not None and read_served(keys.context) == keys.keys.current.certificate != before

    run_virtual(main())


def write_pair(directory: Path, keys: ServerKeys) -> None:
    (directory / "tls.crt").write_text(keys.certificate)
    (directory / "tls.key").write_text(keys.key)


def test_a_mounted_directory_is_read_again_and_a_half_written_pair_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    old, new = (issue_server_keys(["a.svc"], clock) for _ in range(2))
    write_pair(tmp_path, old)
    mounted = MountedKeys(tmp_path, clock)
    assert read_served(mounted.context) == old.certificate
    (tmp_path / "tls.crt").write_text(new.certificate)
    with caplog.at_level(logging.WARNING):
        mounted.look()
    assert "certificate not read" in caplog.text and new.key.splitlines()[1] not in caplog.text
    (tmp_path / "tls.key").write_text(new.key)
    mounted.look()
    assert read_served(mounted.context) == new.certificate


def test_a_directory_without_a_pair_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"tls\.crt"):
        MountedKeys(tmp_path, VirtualClock())
    old, new = (issue_server_keys(["a.svc"], VirtualClock()) for _ in range(2))
    write_pair(tmp_path, ServerKeys(old.ca, old.certificate, new.key))
    with pytest.raises(OSError, match="are not a certificate and its key"):
        MountedKeys(tmp_path, VirtualClock())


@pytest.mark.parametrize("has_proc", [True, False])
def test_a_key_in_memory_needs_no_directory(has_proc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = issue_server_keys(["a.svc"], VirtualClock())
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")
    exists: Callable[[str], bool] = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: (has_proc or "/proc/self/fd" not in str(path)) and exists(path))
    assert read_served(tls.build_context(keys.certificate, keys.key)) == keys.certificate


def test_every_webhook_gets_the_bundle_and_cert_managers_are_left_alone() -> None:
    hooks = [{"name": "a", "clientConfig": {"url": "u"}}, {"name": "b", "clientConfig": {"caBundle": "old"}}]
    configuration = {"metadata": {"name": "x", "resourceVersion": "3"}, "webhooks": hooks}
    repaired = repair(configuration, "new")
    assert repaired is not None and repaired["metadata"] == configuration["metadata"]
    assert [hook["clientConfig"] for hook in repaired["webhooks"]] == [
        {"url": "u", "caBundle": "new"},
        {"caBundle": "new"},
    ]
    assert repair(repaired, "new") is None and hooks[1]["clientConfig"] == {"caBundle": "old"}
    injected = {**configuration, "metadata": {"annotations": {"cert-manager.io/inject-ca-from": "a/b"}}}
    assert repair(injected, "new") is None
