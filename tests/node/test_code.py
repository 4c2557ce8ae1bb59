"""Code without an image, with real processes at two levels: one content for all, a writable view for each, results."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.node.bench import Bench, find_status, get_ended, has_phase, is_over, run
from tests.support.chain import make_chain
from trainmaster.api import code
from trainmaster.api.labels import COMPLETION_INDEX
from trainmaster.bundles.packing import pack
from trainmaster.kit import failpoints
from trainmaster.shim.protocol import FULL, PLAIN

pytestmark = [pytest.mark.node, pytest.mark.parametrize("level", (PLAIN, FULL))]

MOUNT = {"volumeMounts": [{"name": "code", "mountPath": code.MOUNT_PATH}]}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "pkg").mkdir(parents=True)
    (root / "train.sh").write_text("#!/bin/sh\ncat pkg/settings; echo $0 >> pkg/settings; cat pkg/settings\n")
    (root / "train.sh").chmod(0o755)
    (root / "pkg" / "settings").write_text("fast\n")
    return root


def test_every_pod_writes_into_a_view_of_its_own_and_finds_what_was_packed(
    tmp_path: Path, source: Path, level: str
) -> None:
    async def test(bench: Bench) -> None:
        digest = pack(source, bench.root.parent / "bundles").digest
        (source / "pkg" / "settings").write_text("changed meanwhile\n")
        volumes = [code.build_volume(digest)]
        async with bench.running_agent(level=level) as agent:
            for name in ("a", "b"):
                await bench.create(
                    f"./train.sh; cat {code.MOUNT_PATH}/pkg/settings", name=name, main=MOUNT, volumes=volumes
                )
                pod = await bench.wait_for(is_over, name)
                assert await bench.read_log(agent, pod) == "fast\nfast\n./train.sh\nfast\n./train.sh\n"
            for name in ("a", "b"):
                await bench.remove(name)
        assert pack(source, bench.root.parent / "bundles").digest != digest

    run(tmp_path, test)


def test_what_a_container_wrote_is_there_when_it_starts_again(tmp_path: Path, source: Path, level: str) -> None:
    async def test(bench: Bench) -> None:
        volumes = [code.build_volume(pack(source, bench.root.parent / "bundles").digest)]
        script = "echo x >> count; rm -f train.sh; [ $(wc -l < count) = 3 ] && [ ! -e train.sh ]"
        async with bench.running_agent(level=level):
            await bench.create(script, main=MOUNT, volumes=volumes, restartPolicy="OnFailure")
            pod = await bench.wait_for(is_over)
            assert (pod["status"]["phase"], find_status(pod)["restartCount"]) == ("Succeeded", 2)
            await bench.remove()

    run(tmp_path, test)


def test_a_container_that_runs_as_another_user_may_write_over_its_code(
    tmp_path: Path, source: Path, level: str
) -> None:
    async def test(bench: Bench) -> None:
        volumes = [code.build_volume(pack(source, bench.root.parent / "bundles").digest)]
        script = "id -u; echo more >> pkg/settings; touch new pkg/new; ./train.sh | tail -n 1"
        async with bench.running_agent(level=level) as agent:
            await bench.create(script, main=MOUNT, volumes=volumes, securityContext={"runAsUser": 4242})
            pod = await bench.wait_for(is_over)
            # The plain level has one user for all.
            user = "0" if level == PLAIN else "4242"
            assert await bench.read_log(agent, pod) == f"{user}\n./train.sh\n"
            await bench.remove()

    run(tmp_path, test)


def test_containers_of_a_pod_share_its_view_and_read_only_mounts_are_that(
    tmp_path: Path, source: Path, level: str
) -> None:
    async def test(bench: Bench) -> None:
        volumes = [code.build_volume(pack(source, bench.root.parent / "bundles").digest)]
        first = {"name": "first", "image": "i", "command": ["/bin/sh", "-c", "echo slow > pkg/settings"], **MOUNT}
        sealed = {"volumeMounts": [{**MOUNT["volumeMounts"][0], "readOnly": True}]}
        async with bench.running_agent(level=level) as agent:
            script = "cat pkg/settings; touch new && echo written"
            await bench.create(script, main=sealed, volumes=volumes, initContainers=[first])
            pod = await bench.wait_for(is_over)
            shown = (await bench.read_log(agent, pod)).splitlines()
            assert shown[0] == "slow"
            # The plain level cannot enforce it, and says so.
            assert ("written" in shown) is (level == PLAIN)
            await bench.remove()

    run(tmp_path, test)


def test_an_unknown_digest_waits_and_says_which_command_helps(tmp_path: Path, source: Path, level: str) -> None:
    async def test(bench: Bench) -> None:
        digest = pack(source, tmp_path / "elsewhere").digest
        async with bench.running_agent(level=level):
            await bench.create("test -x train.sh", main=MOUNT, volumes=[code.build_volume(digest)])
            pod = await bench.wait_for(lambda pod: find_status(pod).get("state"))
            assert find_status(pod)["state"]["waiting"]["reason"] == "ContainerCreating"
            pod = await bench.wait_for(lambda pod: find_status(pod)["state"]["waiting"].get("message"))
            assert digest in find_status(pod)["state"]["waiting"]["message"], "explain and run tell it from here"
            said = await bench.wait_for_event("FailedMount")
            assert f"this machine has no code {digest}" in said
            assert "trainmaster code pack" in said
            pack(source, bench.root.parent / "bundles")
            await bench.wait_for(has_phase("Succeeded"))
            await bench.remove()

    run(tmp_path, test)


def test_what_rank_0_wrote_is_kept_also_when_it_failed_and_that_of_others_is_not(
    tmp_path: Path, source: Path, level: str
) -> None:
    async def test(bench: Bench) -> None:
        results = tmp_path / "results"
        volumes = [code.build_volume(pack(source, bench.root.parent / "bundles").digest)]
        chain = await make_chain(bench.client)
        # On the plain level /tmp is the machine's own.
        script = (
            "mkdir -p out __pycache__; echo 1 > out/model; echo slow > pkg/settings; touch __pycache__/x; "
            f"echo 1 > ~/best.pt; touch ~/.history; {'' if level == PLAIN else 'echo 1 > /tmp/lost.pt;'} exit $CODE"
        )
        async with bench.running_agent(level=level, results=results):
            for rank in ("0", "1"):
                meta = chain.metadata(**{COMPLETION_INDEX: rank})
                main = {**MOUNT, "env": [{"name": "CODE", "value": "3"}]}
                await bench.create(script, name=f"r{rank}", metadata=meta, main=main, volumes=volumes)
            pod = await bench.wait_for(has_phase("Failed"), "r0")
            other = await bench.wait_for(has_phase("Failed"), "r1")
            # There when the end is told.
            kept = results / chain.uid / "workdirs"
            place = kept / pod["metadata"]["uid"]
            assert [path.name for path in kept.iterdir()] == [place.name]
            files = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
            assert files == ["about.json", "files/out/model", "files/pkg/settings", "home/best.pt"]
            if level != PLAIN:
                assert "not kept: /tmp/lost.pt (2 B)" in await bench.wait_for_event("FilesNotKept")
            assert "~/best.pt" in (results / chain.uid / "lost" / f"{other['metadata']['uid']}.json").read_text()
            for name in ("r0", "r1"):
                await bench.remove(name)
            assert (place / "files/out/model").read_text() == "1\n"

    run(tmp_path, test)


def test_what_rank_0_wrote_is_kept_when_its_pod_was_deleted_while_nobody_ran_the_node(
    tmp_path: Path, source: Path, level: str
) -> None:
    async def test(bench: Bench) -> None:
        results = tmp_path / "results"
        volumes = [code.build_volume(pack(source, bench.root.parent / "bundles").digest)]
        chain = await make_chain(bench.client)
        async with bench.running_agent(level=level, results=results):
            script = "echo 1 > model; echo written; sleep 600"
            await bench.create(script, metadata=chain.metadata(), main=MOUNT, volumes=volumes)
            pod = await bench.wait_for(has_phase("Running"))
            uid = pod["metadata"]["uid"]
            log = bench.get_paths(pod).log("main", 0)
            await bench.wait_until(lambda: "written" in Path(log).read_text())
        await bench.delete(grace=0)
        kept = results / chain.uid / "workdirs" / uid
        assert not kept.exists()
        async with bench.running_agent(level=level, results=results):
            await bench.wait_until(lambda: not (bench.root / uid).exists())
        assert (kept / "files/model").read_text() == "1\n"

    run(tmp_path, test)


@pytest.mark.parametrize("point", ["node.before_outputs", "node.after_outputs"])
def test_a_node_that_dies_while_outputs_are_kept_loses_neither_them_nor_the_end(
    tmp_path: Path, source: Path, level: str, point: str
) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    async def test(bench: Bench) -> None:
        results = tmp_path / "results"
        volumes = [code.build_volume(pack(source, bench.root.parent / "bundles").digest)]
        chain = await make_chain(bench.client)
        await bench.create("echo 1 > model; exit 3", metadata=chain.metadata(), main=MOUNT, volumes=volumes)
        with failpoints.calling(point, die), pytest.raises(BaseException) as caught:
            async with bench.running_agent(level=level, results=results):
                await asyncio.sleep(30)
        assert caught.group_contains(Died) if isinstance(caught.value, BaseExceptionGroup) else caught.type is Died
        async with bench.running_agent(level=level, results=results):
            pod = await bench.wait_for(is_over)
            assert get_ended(pod)["exitCode"] == 3
            kept = results / chain.uid / "workdirs"
            assert [path.name for path in kept.iterdir()] == [pod["metadata"]["uid"]]
            assert (kept / pod["metadata"]["uid"] / "files/model").read_text() == "1\n"
            await bench.remove()

    run(tmp_path, test)
