"""Files of jobs through REST: listed, shown and saved, with nothing beyond them and nothing for a browser to run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.flow.test_rest_history import keep, make_job
from tests.support.rest_plant import RestPlant, running_rest_plant
from tests.unit.history.checkpoints import saved
from trainmaster.api.labels import KEEP_CHECKPOINTS, RESUME_FROM
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

HOSTILE = [
    "..",
    "../outputs/a.txt",
    "/etc/passwd",
    "./a.txt",
    "sub/../a.txt",
    "link",
    "a.txt/",
    "a%2e.txt",
    "\u202ea.txt",
]


def play(tmp_path: Path, scene: Callable[[RestPlant, str, str], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_rest_plant(tmp_path) as plant:
            ann = await plant.rest.add_tenant("ann")
            files = {"train.py": "print(1)\n", "page.html": "<script>alert(1)</script>"}
            body = {"runtime": "plain", "files": files, "name": "first"}
            assert (await plant.call("POST", "/api/v1/jobs", ann, body)).status == 201
            uid = (await plant.call("GET", "/api/v1/jobs/first", ann)).json()["uid"]
            await scene(plant, ann, uid)

    run_virtual(main(), limit=86_400)


def write_outputs(plant: RestPlant, uid: str) -> None:
    place = plant.rest.api.world.home.history / "results" / uid / "outputs"
    place.mkdir(parents=True)
    (place / "a.txt").write_text("one line\n")
    (place / "drawing.svg").write_text("<svg onload=alert(1)>")
    (place / "link").symlink_to("/etc/passwd")
    (place / "inner").symlink_to("a.txt")


def test_outputs_are_listed_and_read_and_nothing_else(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, uid: str) -> None:
        empty = (await plant.call("GET", "/api/v1/jobs/first/outputs", ann)).json()
        assert (empty["items"], empty["missing"]) == ([], None)
        write_outputs(plant, uid)
        found = (await plant.call("GET", "/api/v1/jobs/first/outputs", ann)).json()
        assert [(one["path"], one["preview"], one["link"]) for one in found["items"]] == [
            ("a.txt", "text", None),
            ("drawing.svg", None, None),
            ("inner", None, "a.txt"),
        ]
        assert found["items"][0]["sha256"] and found["count"] == 3
        content = "/api/v1/jobs/first/outputs/content?path="
        answer = await plant.call("GET", f"{content}a.txt", ann)
        assert (answer.body, answer.headers["content-type"]) == (b"one line\n", "application/octet-stream")
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert "sandbox" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        shown = await plant.call("GET", f"{content}a.txt&preview=true", ann)
        assert (shown.headers["x-preview"], shown.headers["content-type"]) == ("text", "application/octet-stream")
        assert (await plant.call("GET", f"{content}drawing.svg&preview=true", ann)).status == 415
        for path in [*HOSTILE, "inner"]:
            for preview in ("", "&preview=true"):
                answer = await plant.call("GET", f"{content}{quote(path)}{preview}", ann)
                assert answer.status == 404, (path, answer.body)

    play(tmp_path, scene)


def test_code_is_listed_and_its_pages_are_only_saved(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, uid: str) -> None:
        found = (await plant.call("GET", "/api/v1/jobs/first/code", ann)).json()
        assert [(one["path"], one["preview"]) for one in found["items"]] == [("page.html", None), ("train.py", "text")]
        content = "/api/v1/jobs/first/code/content?path="
        assert (await plant.call("GET", f"{content}train.py&preview=true", ann)).body == b"print(1)\n"
        assert (await plant.call("GET", f"{content}page.html&preview=true", ann)).status == 415
        for path in HOSTILE:
            assert (await plant.call("GET", f"{content}{quote(path)}", ann)).status == 404

    play(tmp_path, scene)


def test_a_ticket_opens_one_file_once_and_needs_no_token(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, uid: str) -> None:
        write_outputs(plant, uid)
        bob = await plant.rest.add_tenant("bob")
        wanted = {"job": "first", "what": "outputs", "path": "a.txt"}
        made = await plant.call("POST", "/api/v1/downloads", ann, wanted)
        assert made.status == 201, made.body
        url = f"/api/v1/download?ticket={made.json()['ticket']}"
        answer = await plant.call("GET", url, None)
        assert (answer.status, answer.body) == (200, b"one line\n")
        assert "a.txt" in answer.headers["content-disposition"]
        assert (await plant.call("GET", url, None)).status == 404
        for ticket in ("", "guess", "x" * 100):
            assert (await plant.call("GET", f"/api/v1/download?ticket={ticket}", None)).status == 404
        for path in HOSTILE:
            assert (await plant.call("POST", "/api/v1/downloads", ann, {**wanted, "path": path})).status == 404
        assert (await plant.call("POST", "/api/v1/downloads?namespace=ann", bob, wanted)).status == 403
        for wrong in ({**wanted, "record": uid}, {"what": "code", "path": "a"}):
            assert (await plant.call("POST", "/api/v1/downloads", ann, wrong)).status == 422

    play(tmp_path, scene)


def test_what_is_forbidden_meanwhile_stays_closed(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, uid: str) -> None:
        write_outputs(plant, uid)
        wanted = {"job": "first", "what": "outputs", "path": "a.txt"}
        ticket = (await plant.call("POST", "/api/v1/downloads", ann, wanted)).json()["ticket"]
        await plant.call("DELETE", "/api/v1/jobs/first", ann)
        while (await plant.call("GET", "/api/v1/jobs/first", ann)).status != 404:
            await plant.rest.clock.sleep(0.5)
        assert (await plant.call("GET", f"/api/v1/download?ticket={ticket}", None)).status == 404

    play(tmp_path, scene)


def save_checkpoints(plant: RestPlant, uid: str) -> Path:
    archive = plant.rest.api.world.home.history
    folder = saved.get_folder(archive, uid)
    saved.commit(saved.save_torch(folder / "step-1.pt"), step=1, at=1)
    saved.commit(saved.save_shards(folder / "step-2"), step=2, at=2)
    saved.save_trainer(saved.get_outputs(archive, uid) / "checkpoint-3", 3)
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "step-2" / "passwd").symlink_to("/etc/passwd")
    return folder


def test_checkpoints_are_listed_and_single_files_are_read(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, uid: str) -> None:
        empty = (await plant.call("GET", "/api/v1/jobs/first/checkpoints", ann)).json()
        assert (empty["items"], empty["missing"], empty["keep_last"]) == ([], None, None)
        folder = save_checkpoints(plant, uid)
        found = (await plant.call("GET", "/api/v1/jobs/first/checkpoints", ann)).json()
        assert [(one["name"], one["format"], one["step"], one["complete"], one["kept"]) for one in found["items"]] == [
            ("outputs/checkpoint-3", "hugging-face", 3, True, []),
            ("step-2", "torch-distributed", 2, True, ["newest"]),
            ("step-1.pt", "torch", 1, True, []),
        ]
        assert [file["path"] for file in found["items"][1]["files"]] == [
            "step-2/.metadata", "step-2/__0_0.distcp", "step-2/__1_0.distcp",
        ]  # fmt: skip
        content = "/api/v1/jobs/first/checkpoints/content?path="
        answer = await plant.call("GET", f"{content}step-2/__0_0.distcp", ann)
        assert answer.body == (folder / "step-2" / "__0_0.distcp").read_bytes()
        assert answer.headers["content-disposition"].startswith("attachment;")
        refused = [*HOSTILE, "step-2", "step-2/passwd", "step-2/.complete", "step-1.pt/", "step-2/../step-1.pt"]
        for path in refused:
            assert (await plant.call("GET", f"{content}{quote(path)}", ann)).status == 404, path
        (folder / "step-2" / "__0_0.distcp").unlink()
        found = (await plant.call("GET", "/api/v1/jobs/first/checkpoints", ann)).json()
        assert found["items"][1]["problem"] == "__0_0.distcp is missing"

    play(tmp_path, scene)


def test_checkpoints_of_a_deleted_job_are_saved_by_a_ticket(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, uid: str) -> None:
        gone = "gone-uid"
        folder = save_checkpoints(plant, gone)
        bob = await plant.rest.add_tenant("bob")
        keep(plant, make_job("gone", "ann", uid=gone)).close()
        record = f"/api/v1/history/{gone}/checkpoints"
        assert len((await plant.call("GET", record, ann)).json()["items"]) == 3
        for path in (record, f"{record}/content?path=step-1.pt"):
            assert (await plant.call("GET", path, bob)).status == 404
            assert (await plant.call("GET", f"{path}{'&' if '?' in path else '?'}namespace=ann", bob)).status == 403
        wanted = {"record": gone, "what": "checkpoints", "path": "step-1.pt"}
        assert (await plant.call("POST", "/api/v1/downloads", bob, wanted)).status == 404
        made = await plant.call("POST", "/api/v1/downloads", ann, wanted)
        answer = await plant.call("GET", f"/api/v1/download?ticket={made.json()['ticket']}", None)
        assert answer.body == (folder / "step-1.pt").read_bytes()

    play(tmp_path, scene)


def test_a_job_is_created_with_a_checkpoint_to_begin_with(tmp_path: Path) -> None:
    async def scene(plant: RestPlant, ann: str, uid: str) -> None:
        body = {"runtime": "plain", "command": ["true"], "name": "next", "keep_checkpoints": 2}
        made = await plant.call("POST", "/api/v1/jobs", ann, {**body, "resume_from": f"{uid}/step-1.pt"})
        assert made.status == 201, made.body
        manifest = (await plant.call("GET", "/api/v1/jobs/next/manifest", ann)).body.decode()
        assert f"{RESUME_FROM}: {uid}/step-1.pt" in manifest and f"{KEEP_CHECKPOINTS}: '2'" in manifest
        assert (await plant.call("GET", "/api/v1/jobs/next/checkpoints", ann)).json()["keep_last"] == 2
        for wrong in ({"resume_from": "step-1.pt"}, {"resume_from": f"{uid}/a\nb"}, {"keep_checkpoints": 0}):
            assert (await plant.call("POST", "/api/v1/jobs", ann, {**body, "name": "n", **wrong})).status == 422

    play(tmp_path, scene)
