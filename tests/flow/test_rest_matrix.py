"""Who may do what: every route of the application x (own, another tenant's, administrator, revoked, expired, none).

The routes come from the application itself, so a new one without a row here fails. A row says how to call the route
about a thing of `bob`; `ann` is the other tenant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.rest_plant import RestPlant, running_rest_plant
from tests.support.rest_routes import ROUTES
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

CODE = {"framework": "pytorch", "code": "print(1)\n"}
GUIDE = {"user_id": "bob", "namespace": "bob", "framework": "pytorch", "training_code": "print(1)\n"}

MANIFEST = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: sent, namespace: bob}
data: {a: b}
"""


@dataclass(frozen=True)
class Row:
    """`own`: what bob himself gets; `other`: what ann gets for bob's."""

    url: str
    body: Any = None
    own: tuple[int, ...] = (200,)
    other: tuple[int, ...] = (403,)
    stream: bool = False
    archive: bool = False
    anyones: bool = False
    """Is about whoever asks, and writes: nothing that another tenant could be refused."""


ROWS = {
    "POST /api/trainjob/create": Row("/api/trainjob/create", GUIDE),
    "GET /api/trainjob/{name}/status": Row("/api/trainjob/{job}/status?namespace=bob"),
    "GET /api/trainjob/{name}/logs": Row("/api/trainjob/{job}/logs?namespace=bob", own=(200, 409)),
    "DELETE /api/trainjob/{name}": Row("/api/trainjob/{spare}?namespace=bob"),
    "POST /api/v1/jobs": Row("/api/v1/jobs", {**CODE, "namespace": "bob"}, own=(201,)),
    "POST /api/v1/jobs/from-archive": Row(
        "/api/v1/jobs/from-archive?framework=pytorch&namespace=bob", own=(422,), archive=True, other=(403, 422)
    ),
    "GET /api/v1/jobs": Row("/api/v1/jobs?namespace=bob"),
    "GET /api/v1/jobs/{name}": Row("/api/v1/jobs/{job}?namespace=bob"),
    "DELETE /api/v1/jobs/{name}": Row("/api/v1/jobs/{spare}?namespace=bob"),
    "POST /api/v1/jobs/{name}/suspend": Row("/api/v1/jobs/{job}/suspend?namespace=bob"),
    "POST /api/v1/jobs/{name}/resume": Row("/api/v1/jobs/{job}/resume?namespace=bob"),
    "POST /api/v1/jobs/{name}/restart": Row("/api/v1/jobs/{job}/restart?namespace=bob", {}),
    "GET /api/v1/jobs/{name}/explain": Row("/api/v1/jobs/{job}/explain?namespace=bob"),
    "GET /api/v1/jobs/{name}/attempts": Row("/api/v1/jobs/{job}/attempts?namespace=bob"),
    "GET /api/v1/jobs/{name}/series": Row("/api/v1/jobs/{job}/series?namespace=bob"),
    "GET /api/v1/jobs/{name}/usage": Row("/api/v1/jobs/{job}/usage?namespace=bob"),
    "GET /api/v1/jobs/{name}/logs": Row("/api/v1/jobs/{job}/logs?namespace=bob"),
    "GET /api/v1/jobs/{name}/logs/stream": Row("/api/v1/jobs/{job}/logs/stream?namespace=bob", stream=True),
    "GET /api/v1/jobs/{name}/logs/window": Row("/api/v1/jobs/{job}/logs/window?namespace=bob"),
    "GET /api/v1/jobs/{name}/logs/search": Row("/api/v1/jobs/{job}/logs/search?namespace=bob&q=x"),
    "GET /api/v1/jobs/{name}/logs/download": Row("/api/v1/jobs/{job}/logs/download?namespace=bob"),
    "GET /api/v1/jobs/{name}/events/stream": Row("/api/v1/jobs/{job}/events/stream?namespace=bob", stream=True),
    "GET /api/v1/runtimes": Row("/api/v1/runtimes?namespace=bob"),
    "GET /api/v1/runtimes/{name}": Row("/api/v1/runtimes/pytorch-simple?namespace=bob"),
    "GET /api/v1/jobs/{name}/doctor": Row("/api/v1/jobs/{job}/doctor?namespace=bob"),
    "GET /api/v1/history": Row("/api/v1/history?namespace=bob"),
    "GET /api/v1/history/{uid}": Row("/api/v1/history/4b1b6ab4?namespace=bob", own=(404,)),
    "GET /api/v1/history/{uid}/attempts": Row("/api/v1/history/4b1b6ab4/attempts?namespace=bob", own=(404,)),
    "DELETE /api/v1/history/{uid}": Row("/api/v1/history/4b1b6ab4?namespace=bob", own=(404,)),
    "POST /api/v1/history/{uid}/rerun": Row("/api/v1/history/4b1b6ab4/rerun?namespace=bob", {}, own=(404,)),
    "GET /api/v1/history/{uid}/series": Row("/api/v1/history/4b1b6ab4/series?namespace=bob", own=(404,)),
    "GET /api/v1/history/{uid}/usage": Row("/api/v1/history/4b1b6ab4/usage?namespace=bob", own=(404,)),
    "GET /api/v1/history/{uid}/logs": Row("/api/v1/history/4b1b6ab4/logs?namespace=bob", own=(404,)),
    "GET /api/v1/history/{uid}/logs/window": Row("/api/v1/history/4b1b6ab4/logs/window?namespace=bob", own=(404,)),
    "GET /api/v1/history/{uid}/logs/search": Row("/api/v1/history/4b1b6ab4/logs/search?namespace=bob&q=x", own=(404,)),
    "GET /api/v1/history/{uid}/logs/download": Row("/api/v1/history/4b1b6ab4/logs/download?namespace=bob", own=(404,)),
    "GET /api/v1/jobs/{name}/manifest": Row("/api/v1/jobs/{job}/manifest?namespace=bob"),
    "GET /api/v1/history/{uid}/manifest": Row("/api/v1/history/4b1b6ab4/manifest?namespace=bob", own=(404,)),
    "POST /api/v1/check": Row("/api/v1/check?namespace=bob", {"manifests": "kind: Zebra\n"}),
    "POST /api/v1/manifests": Row("/api/v1/manifests?namespace=bob", {"manifests": MANIFEST}),
    "POST /api/v1/jobs/{name}/replace": Row("/api/v1/jobs/{job}/replace?namespace=bob", {"patch": {}}, own=(422,)),
    "GET /api/v1/jobs/{name}/outputs": Row("/api/v1/jobs/{job}/outputs?namespace=bob"),
    "GET /api/v1/jobs/{name}/outputs/content": Row(
        "/api/v1/jobs/{job}/outputs/content?namespace=bob&path=a", own=(404,)
    ),
    "GET /api/v1/jobs/{name}/code": Row("/api/v1/jobs/{job}/code?namespace=bob"),
    "GET /api/v1/jobs/{name}/code/content": Row("/api/v1/jobs/{job}/code/content?namespace=bob&path=train.py"),
    "GET /api/v1/history/{uid}/outputs": Row("/api/v1/history/4b1b6ab4/outputs?namespace=bob", own=(404,)),
    "GET /api/v1/history/{uid}/outputs/content": Row(
        "/api/v1/history/4b1b6ab4/outputs/content?namespace=bob&path=a", own=(404,)
    ),
    "GET /api/v1/history/{uid}/code": Row("/api/v1/history/4b1b6ab4/code?namespace=bob", own=(404,)),
    "GET /api/v1/history/{uid}/code/content": Row(
        "/api/v1/history/4b1b6ab4/code/content?namespace=bob&path=train.py", own=(404,)
    ),
    "POST /api/v1/downloads": Row(
        "/api/v1/downloads?namespace=bob", {"record": "4b1b6ab4", "what": "code", "path": "train.py"}, own=(404,)
    ),
    # Everybody's own answer; nothing of another can be asked for.
    "GET /api/v1/me": Row("/api/v1/me", other=(200,)),
    "GET /api/v1/server": Row("/api/v1/server", other=(200,)),
    "GET /api/v1/namespaces": Row("/api/v1/namespaces", other=(200,)),
    "GET /api/v1/queue": Row("/api/v1/queue?namespace=bob"),
    # What may not be read is said within the stream, topic by topic: tests/flow/test_rest_live.py.
    "GET /api/v1/stream": Row("/api/v1/stream?topic=jobs&namespace=bob", other=(200,), stream=True),
    "POST /api/v1/login-links": Row("/api/v1/login-links", {}, own=(201,), anyones=True),
    # Ends a login of the dashboard; a token is none.
    "POST /api/v1/logout": Row("/api/v1/logout", own=(400,), other=(400,)),
    # Administrators'.
    "GET /api/v1/nodes": Row("/api/v1/nodes", own=(403,)),
    "GET /api/v1/nodes/{name}": Row("/api/v1/nodes/nothing", own=(403,)),
    "GET /api/v1/nodes/{name}/drain": Row("/api/v1/nodes/local/drain", own=(403,)),
    "POST /api/v1/nodes/{name}/drain": Row("/api/v1/nodes/local/drain", {}, own=(403,)),
    "POST /api/v1/nodes/{name}/undrain": Row("/api/v1/nodes/local/undrain", {}, own=(403,)),
    "GET /api/v1/settings": Row("/api/v1/settings", own=(403,)),
    "GET /api/v1/doctor": Row("/api/v1/doctor", own=(403,)),
    "GET /api/v1/tenants": Row("/api/v1/tenants", own=(403,)),
    "POST /api/v1/tenants": Row("/api/v1/tenants", {"name": "eve", "without_walls": True}, own=(403,)),
    "GET /api/v1/tenants/{name}": Row("/api/v1/tenants/bob", own=(403,)),
    "PATCH /api/v1/tenants/{name}": Row("/api/v1/tenants/carl", {"jobs": 3}, own=(403,)),
    "PUT /api/v1/tenants/{name}": Row("/api/v1/tenants/dora", {"without_walls": True}, own=(403,)),
    "POST /api/v1/tenants/{name}/login-link": Row("/api/v1/tenants/carl/login-link", {}, own=(403,)),
    "POST /api/v1/tenants/{name}/rotate": Row("/api/v1/tenants/carl/rotate", {}, own=(403,)),
    "POST /api/v1/tenants/{name}/enable": Row("/api/v1/tenants/carl/enable", {}, own=(403,)),
    "POST /api/v1/tenants/{name}/disable": Row("/api/v1/tenants/carl/disable", own=(403,)),
    "DELETE /api/v1/tenants/{name}": Row("/api/v1/tenants/carl", own=(403,)),
}


def play(tmp_path: Path, scene: Callable[[RestPlant], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_rest_plant(tmp_path) as plant:
            await scene(plant)

    run_virtual(main(), limit=7 * 86_400)


class Cast:
    """The jobs and tokens of one scene."""

    def __init__(self, plant: RestPlant) -> None:
        self.plant = plant
        self.names: dict[str, str] = {}

    async def prepare(self, bob: str) -> None:
        for number in range(4):
            answer = await self.plant.call("POST", "/api/v1/jobs", bob, CODE)
            assert answer.status == 201, answer.body
            self.names["job" if not number else f"spare{number}"] = answer.json()["name"]
        await self.plant.find_pods("bob", self.names["job"], 1)
        await self.plant.rest.clock.sleep(5)

    async def ask(self, key: str, token: str | None) -> int:
        row = ROWS[key]
        spare = next((name for name in sorted(self.names) if name.startswith("spare")), "job")
        url = row.url.replace("{job}", self.names["job"]).replace("{spare}", self.names[spare])
        method = key.partition(" ")[0]
        if row.stream:
            async with self.plant.listen(url, token=token) as stream:
                return await stream.started()
        more: dict[str, Any] = {"pieces": [b"x"], "content_type": "application/gzip"} if row.archive else {}
        answer = await self.plant.call(method, url, token, row.body, **more)
        return int(answer.status)


def test_every_route_has_its_row() -> None:
    assert {f"{method} {path}" for method, path in ROUTES} == set(ROWS)


def test_what_is_anothers_stays_theirs_on_every_route(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann, bob = await plant.rest.add_tenant("ann"), await plant.rest.add_tenant("bob")
        await plant.rest.add_tenant("carl")
        cast = Cast(plant)
        await cast.prepare(bob)
        strangers = {"nobody": None, "empty": "", "forged": "forged", "altered": f"{bob}x"}
        before = plant.rest.api.store.revision
        for key, row in ROWS.items():
            for who, token in strangers.items():
                assert await cast.ask(key, token) == 401, f"{key} by {who}"
            assert row.anyones or await cast.ask(key, ann) in row.other, f"{key} by another tenant"
        assert plant.rest.api.store.revision == before, "a refused request wrote something"
        refused = [line for line in plant.rest.read_audit() if line["code"] >= 400]
        writing = [key for key, row in ROWS.items() if not key.startswith("GET ") and not row.anyones]
        assert len(refused) >= (len(strangers) + 1) * len(writing), "a refused write is not in the audit log"
        for key, row in ROWS.items():
            assert await cast.ask(key, bob) in row.own, f"{key} by its owner"
        for key in ROWS:
            assert await cast.ask(key, plant.rest.owner) not in (401, 403), f"{key} by the administrator"

    play(tmp_path, scene)


def test_a_revoked_or_expired_token_opens_no_route(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        bob = await plant.rest.add_tenant("bob", token_days=1)
        cast = Cast(plant)
        await cast.prepare(bob)
        fresh = (await plant.call("POST", "/api/v1/tenants/bob/rotate", plant.rest.owner, {"token_days": 1})).json()
        for key in ROWS:
            assert await cast.ask(key, bob) == 401, f"{key} with a revoked token"
        assert await cast.ask("GET /api/v1/jobs", fresh["token"]) == 200
        await plant.rest.clock.sleep(timedelta(days=1, seconds=1).total_seconds())
        for key in ROWS:
            assert await cast.ask(key, fresh["token"]) == 401, f"{key} with an expired token"

    play(tmp_path, scene)


def test_no_trick_reaches_another_namespace(tmp_path: Path) -> None:
    async def scene(plant: RestPlant) -> None:
        ann, bob = await plant.rest.add_tenant("ann"), await plant.rest.add_tenant("bob")
        cast = Cast(plant)
        await cast.prepare(bob)
        job, before = cast.names["job"], plant.rest.api.store.revision
        paths = [
            f"/api/v1/jobs/{job}",
            f"/api/v1/jobs/../../bob/jobs/{job}",
            f"/api/v1/jobs/..%2F..%2Fbob%2F{job}",
            f"/api/v1/jobs/{job}?namespace=ann&namespace=bob",
            f"/api/v1/jobs/{job}?namespace=ann%2F..%2Fbob",
            f"/api/v1/jobs/{job}?namespace=bob%00",
            f"/api/v1/jobs/{job}?namespace=BOB",
            f"/api/v1/jobs/{job}?namespace=*",
            f"/api/v1//jobs/{job}?namespace=bob",
            f"/API/v1/jobs/{job}?namespace=bob",
            f"/healthz/../api/v1/jobs/{job}?namespace=bob",
            "/api/v1/jobs?namespace=bob&user=bob",
            "/api/v1/jobs?label=trainmaster.dev/user=bob&namespace=bob",
            "/api/v1/jobs?namespace=%2A",
        ]
        for path in paths:
            answer = await plant.call("GET", path, ann)
            assert answer.status in (403, 404, 422), (path, answer.body)
            assert job.encode() not in answer.body or answer.status in (403, 404), path
        headers = [
            [("X-Remote-User", "system:admin"), ("X-Remote-Group", "system:masters")],
            [("Impersonate-User", "bob"), ("Impersonate-Group", "system:masters")],
            [("X-Forwarded-User", "bob"), ("X-Original-URL", "/healthz"), ("X-Rewrite-Url", "/healthz")],
            [("X-HTTP-Method-Override", "DELETE")],
        ]
        for extra in headers:
            answer = await plant.call("GET", f"/api/v1/jobs/{job}?namespace=bob", ann, headers=extra)
            assert answer.status == 403, extra
            assert (await plant.call("GET", "/api/v1/jobs", None, headers=extra)).status == 401
        twice = [("authorization", f"Bearer {bob}")]
        assert (await plant.call("GET", f"/api/v1/jobs/{job}?namespace=bob", ann, headers=twice)).status == 400
        bodies = [
            ({**CODE, "namespace": "bob"}, (403,)),
            ({**CODE, "user": "bob"}, (403,)),
            ({**CODE, "namespace": ["bob"]}, (422,)),
            ({**CODE, "metadata": {"namespace": "bob"}}, (422,)),
            ({**CODE, "labels": {"trainmaster.dev/user": "bob"}}, (422,)),
            ({**CODE, "labels": {"app.kubernetes.io/managed-by": "x"}}, (422,)),
            ({**CODE, "labels": {"jobset.sigs.k8s.io/jobset-name": job}}, (422,)),
            ({**CODE, "name": f"../bob/{job}"}, (422,)),
            ({**CODE, "runtime": "../x", "framework": None}, (422,)),
        ]
        for body, want in bodies:
            answer = await plant.call("POST", "/api/v1/jobs", ann, body)
            assert answer.status in want, (body, answer.body)
        assert plant.rest.api.store.revision == before, "a refused request wrote something"
        assert (await plant.rest.client.list(TRAIN_JOBS, "ann")).items == []

    play(tmp_path, scene)
