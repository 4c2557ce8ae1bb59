"""Tokens of ServiceAccounts: issued, verified, expired, revoked, forged."""

from __future__ import annotations

import base64
import hmac

import orjson
import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import Conflict, Invalid, NotFound
from trainmaster.auth.service_accounts import ServiceAccountTokens
from trainmaster.kit.ids import SeededIds
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

SECRET = b"s" * 32


class Objects:
    def __init__(self) -> None:
        self.found: dict[tuple[str, str, str], Object] = {}

    def add(self, plural: str, namespace: str, name: str, uid: str) -> None:
        self.found[plural, namespace, name] = {"metadata": {"name": name, "uid": uid}}

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        return self.found.get((gvr.plural, namespace, name))

    def find_uid(self, gvr: GVR, namespace: str, name: str) -> str | None:
        found = self.find(gvr, namespace, name)
        return None if found is None else str(found["metadata"]["uid"])


def make(clock: VirtualClock, secret: bytes = SECRET) -> tuple[Objects, ServiceAccountTokens]:
    objects = Objects()
    objects.add("serviceaccounts", "team", "runner", "uid-1")
    objects.add("pods", "team", "pod", "uid-2")
    return objects, ServiceAccountTokens(secret, objects, clock=clock, ids=SeededIds(1))


def in_time(check: object) -> None:
    """Runs an async test body under virtual time."""
    run_virtual(check())  # type: ignore[operator]  # always an async function


def issue(tokens: ServiceAccountTokens, **spec: object) -> str:
    return str(tokens.request("team", "runner", {"spec": spec})["status"]["token"])


def test_an_issued_token_identifies_its_service_account() -> None:
    async def body() -> None:
        _, tokens = make(VirtualClock())
        found = tokens.find(issue(tokens))
        assert found is not None
        identity, _ = found
        assert identity.user == "system:serviceaccount:team:runner"
        assert identity.uid == "uid-1"
        assert identity.groups == ("system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated")

    in_time(body)


def test_a_token_expires() -> None:
    async def body() -> None:
        clock = VirtualClock()
        _, tokens = make(clock)
        token = issue(tokens, expirationSeconds=600)
        await clock.sleep(599)
        assert tokens.find(token) is not None
        await clock.sleep(1)
        assert tokens.find(token) is None

    in_time(body)


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param("serviceaccounts", id="the ServiceAccount was deleted"),
        pytest.param("pods", id="the bound Pod was deleted"),
    ],
)
def test_a_token_dies_with_what_it_is_bound_to(gone: str) -> None:
    async def body() -> None:
        objects, tokens = make(VirtualClock())
        token = issue(tokens, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "pod"})
        assert tokens.find(token) is not None
        for key in [key for key in objects.found if key[0] == gone]:
            objects.found[key]["metadata"]["uid"] = "somebody else of the same name"
        assert tokens.find(token) is None

    in_time(body)


def test_a_token_is_good_only_for_its_audience() -> None:
    async def body() -> None:
        _, tokens = make(VirtualClock())
        token = issue(tokens, audiences=["metrics"])
        assert tokens.find(token) is None
        found = tokens.find(token, ("metrics", "other"))
        assert found is not None and found[1] == ("metrics",)

    in_time(body)


def test_forged_and_broken_tokens_are_nobody() -> None:
    async def body() -> None:
        _, tokens = make(VirtualClock())
        _, others = make(VirtualClock(), b"x" * 32)
        head, claims, signature = issue(tokens).split(".")
        changed = orjson.loads(base64.urlsafe_b64decode(claims + "=="))
        changed["sub"] = "system:serviceaccount:kube-system:admin"
        better = base64.urlsafe_b64encode(orjson.dumps(changed)).decode().rstrip("=")
        none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
        for token in (
            issue(others), f"{head}.{better}.{signature}", f"{none}.{claims}.", f"{head}.{claims}", "a.b.c", "...", "",
            "é.é.é", f"{head}.{claims}.{signature}x",
        ):  # fmt: skip
            assert tokens.find(token) is None, token

    in_time(body)


def test_requests_for_what_cannot_be_are_refused() -> None:
    async def body() -> None:
        _, tokens = make(VirtualClock())
        with pytest.raises(NotFound):
            tokens.request("team", "ghost", {})
        with pytest.raises(Invalid, match="may not specify a duration less than 10 minutes"):
            issue(tokens, expirationSeconds=5)
        with pytest.raises(NotFound):
            issue(tokens, boundObjectRef={"kind": "Pod", "name": "ghost"})
        with pytest.raises(Conflict):
            issue(tokens, boundObjectRef={"kind": "Pod", "name": "pod", "uid": "another"})

    in_time(body)


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def sign_as_we_do(head: bytes, claims: bytes, digest: str = "sha256") -> str:
    """With our own secret: what is refused then is refused for what it says."""
    signed = f"{encode(head)}.{encode(claims)}"
    return f"{signed}.{encode(hmac.digest(SECRET, signed.encode(), digest))}"


def test_a_token_says_what_we_say_and_nothing_else_even_with_our_signature() -> None:
    async def body() -> None:
        _, tokens = make(VirtualClock())
        good = issue(tokens)
        head, claims = (base64.urlsafe_b64decode(part + "==") for part in good.split(".")[:2])
        assert tokens.find(sign_as_we_do(head, claims)) is not None, "the scene is right"
        read = orjson.loads(claims)
        for name, token in {
            "another algorithm": sign_as_we_do(b'{"alg":"HS512","typ":"JWT"}', claims, "sha512"),
            "no algorithm": sign_as_we_do(b'{"typ":"JWT"}', claims),
            "none": encode(b'{"alg":"none","typ":"JWT"}') + f".{encode(claims)}.",
            "a key id": sign_as_we_do(b'{"alg":"HS256","kid":"/dev/null","typ":"JWT"}', claims),
            "an unencoded payload": sign_as_we_do(b'{"alg":"HS256","b64":false,"crit":["b64"]}', claims),
            "a deep header": sign_as_we_do(b"[" * 5_000, claims),
            "deep claims": sign_as_we_do(head, b'{"a":' * 2_500),
            "no claims": sign_as_we_do(head, b"{}"),
            "claims that are a list": sign_as_we_do(head, b"[]"),
            "claims of other types": sign_as_we_do(head, orjson.dumps({**read, "kubernetes.io": []})),
            "an expiry that is a text": sign_as_we_do(head, orjson.dumps({**read, "exp": "never"})),
            "an expiry that is no number": sign_as_we_do(head, claims.replace(b'"exp":', b'"exp":NaN,"old":')),
            "an audience that is a number": sign_as_we_do(head, orjson.dumps({**read, "aud": 7})),
            "padding": f"{good}=",
            "a space": f"{good} ",
            "a line": f"{good}\n",
            "a fourth part": f"{good}.{encode(claims)}",
            "a huge one": good + "A" * 20_000,
        }.items():  # fmt: skip
            assert tokens.find(token) is None, name

    in_time(body)


def test_many_tokens_do_not_push_out_those_that_are_in_use() -> None:
    async def body() -> None:
        clock = VirtualClock()
        objects, tokens = make(clock)
        first = issue(tokens)
        assert tokens.find(first) is not None
        for _ in range(1_001):
            await clock.sleep(1)
            assert tokens.find(issue(tokens)) is not None
        assert tokens.find(first) is not None
        objects.found.clear()
        assert tokens.find(first) is None, "what was remembered still looks at its objects"

    in_time(body)
