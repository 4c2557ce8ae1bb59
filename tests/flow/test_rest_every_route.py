"""Every route of the table, whoever added it: nobody gets in without a token, and nobody to another tenant's things."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from tests.support.rest import RestApi, running_rest
from trainmaster.rest.routes.table import PUBLIC, ROUTERS
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

ORDER = {"framework": "pytorch", "training_code": "print(1)\n", "config": {"num_nodes": 1}}
ROUTES = [
    (method, route.path)
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and route.path not in PUBLIC
    for method in sorted(route.methods or ())
]
FOR_ALL = {"/api/v1/me"}
BODIES = {
    "/api/v1/jobs": {"framework": "pytorch", "code": "print(1)\n", "namespace": "bob"},
    "/api/trainjob/create": {**ORDER, "user_id": "ann", "namespace": "bob"},
}


async def check_routes(rest: RestApi) -> None:
    ann, bob = await rest.add_tenant("ann"), await rest.add_tenant("bob")
    body = {**ORDER, "user_id": "bob", "namespace": "bob"}
    job = (await rest.call("POST", "/api/trainjob/create", token=bob, body=body)).json()["trainjob_name"]
    await rest.api.registry.settled()
    before = rest.api.store.revision
    for method, path in ROUTES:
        name = "bob" if "/tenants/" in path else job
        url = path.format(name=name, uid="00000000-0000-0000-0000-000000000000") + "?namespace=bob"
        sent = BODIES.get(path)
        for token in (None, "", "forged", bob + "x"):
            answer = await rest.call(method, url, token=token, body=sent or {})
            assert answer.status == 401, f"{method} {path} without a good token: {answer.body!r}"
        answer = await rest.call(method, url, token=ann, body=sent or {"name": "bob"})
        allowed = {200} if path in FOR_ALL else {403, 404} if sent or method == "GET" else {403, 404, 415, 422}
        assert answer.status in allowed, f"{method} {path} by another tenant: {answer.status} {answer.body!r}"
    assert rest.api.store.revision == before, "a refused request wrote something"
    refused = [line for line in rest.read_audit() if line["code"] >= 400]
    writing = [method for method, _ in ROUTES if method != "GET"]
    assert len(refused) >= 5 * len(writing), "a refused write is not in the audit log"


def test_every_route_asks_who_calls_and_whose_things_it_serves(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_rest(tmp_path) as rest:
            await check_routes(rest)

    assert len(ROUTES) > 20
    run_virtual(main())
