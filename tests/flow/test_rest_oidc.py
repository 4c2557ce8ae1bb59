"""Callers of an identity provider through REST: they act as themselves under RBAC, and as nobody of the system."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.rest import RestApi, running_rest
from tests.unit.rest.oidc_provider import AUDIENCE, ISSUER, describe, make_rsa, sign
from trainmaster.api.resources import NAMESPACES, ROLE_BINDINGS
from trainmaster.app.settings import Rest, Settings
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

KEY = make_rsa()
ORDER = {"user_id": "ann", "namespace": "team", "framework": "pytorch", "training_code": "print(1)\n", "config": {}}


def make_token(rest: RestApi, **more: Any) -> str:
    now = int(rest.clock.unix())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600, "groups": ["ml"], **more}
    return sign(KEY, {"alg": "RS256", "kid": "k"}, claims)


def play(tmp_path: Path, scene: Callable[[RestApi], Awaitable[None]]) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(orjson.dumps({"keys": [describe(KEY, "k")]}))
    settings = replace(Settings(), rest=Rest(oidc_issuer=ISSUER, oidc_audience=AUDIENCE, oidc_jwks=str(file)))

    async def main() -> None:
        async with running_rest(tmp_path, settings) as rest:
            meta = {"name": "team"}
            await rest.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "oidc:ml"}
            binding = {"kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]}
            await rest.client.create(ROLE_BINDINGS, {"apiVersion": ROLE_BINDINGS.api_version, **binding}, "team")
            await scene(rest)

    run_virtual(main())


def test_a_user_of_the_provider_works_where_its_groups_may(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        ann = make_token(rest)
        me = (await rest.call("GET", "/api/v1/me", token=ann)).json()
        assert (me["user"], me["administrator"]) == ("oidc:ann", False)
        made = await rest.call("POST", "/api/trainjob/create", token=ann, body=ORDER)
        assert made.status == 200, made.body
        assert {line["user"] for line in rest.read_audit()} == {"oidc:ann"}
        stranger = make_token(rest, groups=[])
        path = f"/api/trainjob/{made.json()['trainjob_name']}/status?namespace=team"
        assert (await rest.call("GET", path, token=stranger)).status == 403
        other = {**ORDER, "user_id": "bob"}
        assert (await rest.call("POST", "/api/trainjob/create", token=ann, body=other)).status == 403

    play(tmp_path, scene)


def test_a_user_whose_name_fits_no_job_is_told_which_one_does(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        token = make_token(rest, sub="3f2b8c1e-9a1d-4a53-8f5e-1a2b3c4d5e6f")
        refused = await rest.call("POST", "/api/trainjob/create", token=token, body=ORDER)
        own = (await rest.call("GET", "/api/v1/me", token=token)).json()["user_id"]
        assert (refused.status, own in refused.json()["hint"]) == (403, True), refused.body
        made = await rest.call("POST", "/api/trainjob/create", token=token, body={**ORDER, "user_id": own})
        assert made.status == 200, made.body

    play(tmp_path, scene)


def test_others_go_on_as_before_and_forged_ones_get_nothing(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        tenant = await rest.add_tenant("tenant-a")
        assert (await rest.call("GET", "/api/v1/me", token=tenant)).json()["tenant"] == "tenant-a"
        assert (await rest.call("GET", "/api/v1/me", token=rest.owner)).json()["administrator"]
        forged = sign(
            make_rsa(), {"alg": "RS256", "kid": "k"}, {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": 9e9}
        )
        for token in (forged, make_token(rest, exp=1), make_token(rest, aud="else")):
            answer = await rest.call("GET", "/api/v1/me", token=token)
            assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Bearer"), answer.body
        # The prefix stands before whatever a provider says.
        answer = await rest.call("GET", "/api/v1/me", token=make_token(rest, groups=["system:masters"]))
        assert answer.json()["administrator"] is False
        # The Kubernetes side does not know such tokens.
        with pytest.raises(Exception, match="Unauthorized"):
            rest.as_token(make_token(rest))

    play(tmp_path, scene)
