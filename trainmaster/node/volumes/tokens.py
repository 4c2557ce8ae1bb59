"""Tokens of the Pod's service account, from the API's TokenRequest, bound to the Pod and renewed before they expire.

As in the kubelet, a token is renewed after four fifths of its lifetime, or after a day.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainmaster.api.meta import Fields, Object
from trainmaster.api.resources import SERVICE_ACCOUNTS
from trainmaster.client.contract import Client
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import Clock, parse_time

DEFAULT_SECONDS = 3607
"""The lifetime that the kubelet requests for the volume that every Pod gets."""
_DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    asked_at: datetime
    expires_at: datetime

    def is_due(self, now: datetime) -> bool:
        return now >= self.asked_at and (now - self.asked_at).total_seconds() >= self.renew_after

    @property
    def renew_after(self) -> float:
        return min((self.expires_at - self.asked_at).total_seconds() * 0.8, _DAY)


async def request_token(client: Client, pod: Pod, source: Fields, clock: Clock) -> Token:
    spec: Object = {
        "expirationSeconds": int(source.get("expirationSeconds") or 3600),
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
    }
    if source.get("audience"):
        spec["audiences"] = [source["audience"]]
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    account = pod.service_account
    now = clock.now()
    answer = await client.create(SERVICE_ACCOUNTS, review, pod.namespace, subresource="token", name=account)
    status = answer["status"]
    return Token(status["token"], now, parse_time(status["expirationTimestamp"]))
