"""Creates of /api/v1 in virtual time: forms of code, what is made, keys sent twice, crashes between."""

from __future__ import annotations

import asyncio
import base64
import io
import tarfile
import zipfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.flow.plant import ScriptedNode
from tests.support.rest_plant import RestPlant, running_rest_plant
from trainmaster.api.code import CODE_DIGEST, DRIVER
from trainmaster.api.labels import PACKAGES
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, PODS, TRAIN_JOBS
from trainmaster.bundles.store import BundleStore
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.creation import code
from trainmaster.rest.services.creation.sweeping import Sweeper
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

CODE = {"framework": "pytorch", "code": "print(1)\n"}


def play(tmp_path: Path, scene: Callable[[RestPlant, str], Awaitable[None]], node: ScriptedNode | None = None) -> None:
    async def main() -> None:
        async with running_rest_plant(tmp_path, node) as plant:
            await scene(plant, await plant.rest.add_tenant("ann"))

    run_virtual(main(), limit=86_400)


async def create(plant: RestPlant, token: str, body: Any, want: int = 201, key: str = "") -> Any:
    headers = [("Idempotency-Key", key)] if key else []
    answer = await plant.call("POST", "/api/v1/jobs", token, body, headers=headers)
    assert answer.status == want, answer.body
    return answer.json()


async def get_job(plant: RestPlant, name: str) -> Object:
    return await plant.rest.client.get(TRAIN_JOBS, name, "ann")


async def get_pod(plant: RestPlant, name: str) -> Object:
    pods = await plant.find_pods("ann", name, 1)
    return await plant.rest.client.get(PODS, pods[0], "ann")


def make_tar(files: Mapping[str, bytes], **more: Any) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            for name, value in more.items():
                setattr(member, name, value)
            tar.addfile(member, io.BytesIO(content))
    return raw.getvalue()


def make_zip(files: Mapping[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return raw.getvalue()


def test_one_text_is_enough(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        made = await create(plant, ann, CODE)
        assert made["name"].startswith("ann-job-")
        assert made["namespace"] == "ann"
        script = await plant.rest.client.get(CONFIG_MAPS, f"{made['name']}-script", "ann")
        assert (script["data"], script["immutable"]) == ({"train.py": "print(1)\n"}, True)
        assert script["metadata"]["ownerReferences"][0]["uid"] == made["uid"]
        pod = await get_pod(plant, made["name"])
        assert "/workspace/scripts" in {mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert len({(await create(plant, ann, CODE))["name"] for _ in range(3)}) == 3

    play(tmp_path, scene)


def test_everything_that_can_be_asked_for_reaches_the_pods(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        body = {
            "name": "mine",
            "framework": "pytorch",
            "files": {"main.py": "import pkg.model\n", "pkg/model.py": "x = 1\n"},
            "entrypoint": "main.py",
            "packages": ["tqdm", "numpy>=1,<2"],
            "env": {"EPOCHS": "3", "TRICKY": "$(PATH) ${user_id} $$"},
            "volumes": [{"claim": "mnist", "mount_path": "/data", "read_only": True}],
            "labels": {"team": "vision", "example.com/x": "y"},
            "config": {"num_nodes": 2, "cpu_per_node": "100m"},
            "ttl_seconds": 600,
            "deadline_seconds": 3600,
            "suspended": True,
        }
        await create(plant, ann, body)
        job = await get_job(plant, "mine")
        assert job["spec"]["suspend"] is True
        assert (job["spec"]["ttlSecondsAfterFinished"], job["spec"]["activeDeadlineSeconds"]) == (600, 3600)
        assert "main.py" in job["spec"]["trainer"]["args"][0]
        assert job["metadata"]["labels"]["team"] == "vision"
        detail = (await plant.call("GET", "/api/v1/jobs/mine", ann)).json()
        assert (detail["state"], detail["deadline"]["seconds"], detail["retention"]["seconds"]) == (
            "Suspended",
            3600,
            600,
        )
        (override,) = job["spec"]["podTemplateOverrides"]
        assert override["metadata"]["annotations"][PACKAGES] == "tqdm\nnumpy>=1,<2"
        volumes = {volume["name"]: volume for volume in override["spec"]["volumes"]}
        assert volumes["claim-0"]["persistentVolumeClaim"]["claimName"] == "mnist"
        items = {item["path"]: item["key"] for item in volumes["train-script"]["configMap"]["items"]}
        script = await plant.rest.client.get(CONFIG_MAPS, "mine-script", "ann")
        assert {path: script["data"][key] for path, key in items.items()} == body["files"]
        (node,) = override["spec"]["containers"]
        assert {"name": "claim-0", "mountPath": "/data", "readOnly": True} in node["volumeMounts"]
        env = {entry["name"]: entry["value"] for entry in job["spec"]["trainer"]["env"]}
        assert env == {"EPOCHS": "3", "TRICKY": "$$(PATH) ${user_id} $$$$"}

    play(tmp_path, scene)


def test_any_runtime_runs_code_or_a_command(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        await create(plant, ann, {"name": "torch", "runtime": "torch-distributed", "code": "print(1)\n"})
        pod = await get_pod(plant, "torch")
        container = pod["spec"]["containers"][0]
        assert (container["command"], container["args"]) == (["torchrun"], ["/workspace/scripts/train.py"])
        assert any(mount["mountPath"] == "/workspace/scripts" for mount in container["volumeMounts"])
        await create(plant, ann, {"name": "plain", "runtime": "torch-distributed", "command": ["sleep", "$(X)"]})
        trainer = (await get_job(plant, "plain"))["spec"]["trainer"]
        assert (trainer["command"], trainer["args"]) == (["sleep"], ["$$(X)"])
        await get_pod(plant, "plain")
        problem = await create(plant, ann, {"runtime": "nothing", "code": "print(1)\n"}, 422)
        assert problem["errors"][0]["pointer"] == "/runtime"

    play(tmp_path, scene)


@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_an_archive_comes_in_base64_or_as_the_body(
    tmp_path: Path, make: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        raw = make({"project/train.py": b"print(1)\n", "project/data.bin": b"\xff\x00"})
        made = await create(plant, ann, {"framework": "pytorch", "archive": base64.b64encode(raw).decode()})
        script = await plant.rest.client.get(CONFIG_MAPS, f"{made['name']}-script", "ann")
        assert base64.b64decode(next(iter(script["binaryData"].values()))) == b"\xff\x00"
        answer = await plant.call(
            "POST",
            "/api/v1/jobs/from-archive?framework=pytorch&name=raw&num_nodes=2",
            ann,
            pieces=[raw],
            content_type="application/gzip",
        )
        assert answer.status == 201, answer.body
        assert answer.headers["location"] == "/api/v1/jobs/raw?namespace=ann"
        assert (await get_job(plant, "raw"))["spec"]["trainer"]["numNodes"] == 2
        wrong = await plant.call("POST", "/api/v1/jobs/from-archive?framework=pytorch", ann, pieces=[raw])
        assert wrong.status == 415
        query = "framework=pytorch&entrypoint=main.py&num_nodes=1001"
        lost = await plant.call(
            "POST", f"/api/v1/jobs/from-archive?{query}", ann, pieces=[raw], content_type="application/gzip"
        )
        assert lost.status == 422
        assert {one.get("parameter") for one in lost.json()["errors"]} <= {"entrypoint", "num_nodes"}

    play(tmp_path, scene)


def test_larger_code_is_kept_as_a_bundle(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        raw = make_tar({"train.py": b"print(1)\n", "words.txt": b"word " * 300_000})
        made = await create(plant, ann, {"framework": "pytorch", "archive": base64.b64encode(raw).decode()})
        job = await get_job(plant, made["name"])
        digest = job["metadata"]["annotations"][CODE_DIGEST]
        volumes = job["spec"]["podTemplateOverrides"][0]["spec"]["volumes"]
        (source,) = [volume["csi"] for volume in volumes if "csi" in volume]
        assert source == {"driver": DRIVER, "volumeAttributes": {"digest": digest}}
        stored = BundleStore(plant.rest.api.world.home.bundles).find(digest)
        assert stored is not None
        assert (stored.tree / "words.txt").stat().st_size == 1_500_000

    play(tmp_path, scene)


WRONG = [
    ({"code": "print(1)"}, "/framework"),
    ({**CODE, "runtime": "x"}, "/framework"),
    ({"framework": "pytorch"}, "/code"),
    ({**CODE, "files": {"train.py": "x"}}, "/files"),
    ({**CODE, "code": "  "}, "/code"),
    ({**CODE, "code": "def"}, "/code"),
    ({"framework": "pytorch", "files": {"../x.py": "1"}, "entrypoint": "../x.py"}, "/files"),
    ({"framework": "pytorch", "files": {"/train.py": "1"}}, "/files"),
    ({"framework": "pytorch", "files": {"a": "1", "a/train.py": "1"}}, "/files"),
    ({"framework": "pytorch", "archive": "????"}, "/archive"),
    ({"framework": "pytorch", "archive": "AAAA"}, "/archive"),
    ({**CODE, "entrypoint": "x;rm.py"}, "/entrypoint"),
    ({**CODE, "framework": "caffe"}, "/framework"),
    ({**CODE, "name": "Bad_Name"}, "/name"),
    ({**CODE, "packages": ["--index-url=x"]}, "/packages/0"),
    ({**CODE, "packages": ["x @ file:///etc"]}, "/packages/0"),
    ({**CODE, "packages": ["x\n--pre"]}, "/packages/0"),
    ({**CODE, "env": {"A-B": "1"}}, "/env/A-B"),
    ({**CODE, "volumes": [{"claim": "x", "mount_path": "/a/../b"}]}, "/volumes/0/mount_path"),
    ({**CODE, "volumes": [{"claim": "x", "mount_path": "/shared"}]}, "/volumes/0/mount_path"),
    ({**CODE, "volumes": [{"claim": "../x", "mount_path": "/a"}]}, "/volumes/0/claim"),
    ({**CODE, "labels": {"trainmaster.dev/user": "bob"}}, "/labels/trainmaster.dev~1user"),
    ({**CODE, "labels": {"app.kubernetes.io/x": "b"}}, "/labels/app.kubernetes.io~1x"),
    ({**CODE, "labels": {"a": "b\nc"}}, "/labels/a"),
    ({**CODE, "ttl_seconds": -1}, "/ttl_seconds"),
    ({**CODE, "deadline_seconds": 0}, "/deadline_seconds"),
    ({**CODE, "config": {"num_nodes": 10_000}}, "/config/num_nodes"),
    ({**CODE, "namespace": "A B"}, "/namespace"),
    ({**CODE, "nonsense": 1}, "/nonsense"),
]


def test_what_is_wrong_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        await plant.rest.clock.sleep(5)
        before = plant.rest.api.store.revision
        for body, pointer in WRONG:
            problem = await create(plant, ann, body, 422)
            assert pointer in {error.get("pointer") for error in problem["errors"]}, problem
        assert plant.rest.api.store.revision == before

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(
            lambda: make_tar({"train.py": b"1", "x": b""}, type=tarfile.SYMTYPE, linkname="/etc/passwd"), id="link"
        ),
        pytest.param(lambda: make_tar({"../train.py": b"1"}), id="dots"),
        pytest.param(lambda: make_tar({"/train.py": b"1"}), id="absolute"),
        pytest.param(lambda: make_tar({"train.py": b"1"})[:40], id="cut off"),
        pytest.param(lambda: make_zip({"../../train.py": b"1"}), id="zip slip"),
        pytest.param(lambda: make_zip({"train.py": b"1", "C:/x": b"1"}), id="drive"),
        pytest.param(lambda: make_zip({"train.py": b"1", "big": b"\0" * (code.MOST_BYTES + 1)}), id="zip bomb"),
        pytest.param(lambda: make_tar({"train.py": b"1", "big": b"\0" * (code.MOST_BYTES + 1)}), id="tar bomb"),
        pytest.param(lambda: make_tar({f"f{number}": b"" for number in range(code.MOST_FILES + 2)}), id="many files"),
        pytest.param(lambda: b"PK\x03\x04nonsense", id="no zip"),
        pytest.param(lambda: b"", id="nothing"),
    ],
)
def test_tricks_with_archives_are_refused(raw: Callable[[], bytes]) -> None:
    with pytest.raises(Problem) as error:
        code.read_archive(raw(), "train.py", "/archive")
    assert (error.value.status, error.value.errors[0].pointer) in ((422, "/archive"), (422, "/entrypoint"))


# Keys


def test_the_same_request_again_is_answered_with_the_same_job(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        first = await create(plant, ann, CODE, key="k1")
        assert await create(plant, ann, CODE, key="k1") == first
        both = await asyncio.gather(*(create(plant, ann, CODE, key="k2") for _ in range(5)))
        assert len({made["uid"] for made in both}) == 1
        assert both[0]["uid"] != first["uid"]
        named = {**CODE, "name": "named"}
        assert await create(plant, ann, named, key="k3") == await create(plant, ann, named, key="k3")
        for wrong, key in (({**CODE, "code": "print(2)\n"}, "k1"), ({**named, "suspended": True}, "k3")):
            problem = await create(plant, ann, wrong, 422, key=key)
            assert problem["type"].endswith(":key-reused")
        assert (await create(plant, ann, named, 409))["type"].endswith(":already-exists")
        assert (await create(plant, ann, named, 409, key="k4"))["type"].endswith(":already-exists")
        bob = await plant.rest.add_tenant("bob")
        assert (await create(plant, bob, CODE, key="k1"))["namespace"] == "bob"
        assert len((await plant.rest.client.list(TRAIN_JOBS, "ann")).items) == 3

    play(tmp_path, scene)


def test_a_request_that_died_half_way_is_finished_by_the_next_one(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        made = await create(plant, ann, CODE, key="k")
        script = f"{made['name']}-script"
        # As after a crash before the TrainJob: the code is there, without an owner.
        copy = await plant.rest.client.get(CONFIG_MAPS, script, "ann")
        await plant.rest.client.delete(TRAIN_JOBS, made["name"], "ann")
        await plant.rest.clock.sleep(5)
        fresh = {
            **copy,
            "metadata": {k: v for k, v in copy["metadata"].items() if k in ("name", "labels", "annotations")},
        }
        await plant.rest.client.create(CONFIG_MAPS, fresh, "ann")
        again = await create(plant, ann, CODE, key="k")
        assert (again["name"], again["uid"] != made["uid"]) == (made["name"], True)
        owned = await plant.rest.client.get(CONFIG_MAPS, script, "ann")
        assert owned["metadata"]["ownerReferences"][0]["uid"] == again["uid"]

    play(tmp_path, scene)


def test_code_without_a_job_is_swept(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        made = await create(plant, ann, CODE)
        copy = await plant.rest.client.get(CONFIG_MAPS, f"{made['name']}-script", "ann")
        meta = {"name": "lost-script", "labels": {**copy["metadata"]["labels"], "trainmaster.dev/script-of": "lost"}}
        await plant.rest.client.create(CONFIG_MAPS, {**copy, "metadata": meta}, "ann")
        await plant.rest.clock.sleep(601)
        await Sweeper(plant.rest.client, plant.rest.clock).sweep()
        names = {one["metadata"]["name"] for one in (await plant.rest.client.list(CONFIG_MAPS, "ann")).items}
        assert "lost-script" not in names
        assert f"{made['name']}-script" in names

    play(tmp_path, scene)


def test_a_job_that_the_server_refuses_leaves_nothing(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str) -> None:
        await plant.rest.add_tenant("eve", allowance={"jobs": 1})
        eve = (await plant.call("POST", "/api/v1/tenants/eve/rotate", plant.rest.owner, {})).json()["token"]
        await create(plant, eve, CODE)
        await plant.rest.api.registry.settled()
        problem = await create(plant, eve, CODE, 403)
        assert "delete a job" in problem["hint"]
        scripts = [
            one
            for one in (await plant.rest.client.list(CONFIG_MAPS, "eve")).items
            if "-script" in one["metadata"]["name"]
        ]
        assert len(scripts) == 1

    play(tmp_path, scene)
