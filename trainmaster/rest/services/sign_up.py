"""Sign-up: somebody without a token becomes a tenant. Open to all, to those with an invitation, or to nobody.

Limits prevent abuse: attempts per address, new tenants in total, and the number of tenants who signed up themselves.
Invitations do not count against the limits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NoReturn

from trainmaster.api import tenancy
from trainmaster.api.tenancy import Allowance
from trainmaster.edge.addresses import build_address_group
from trainmaster.kit.buckets import TokenBuckets
from trainmaster.kit.clock import Clock
from trainmaster.rest.problems import Problem
from trainmaster.tenancy.errors import TenantError, build_taken
from trainmaster.tenancy.register import Register

Mode = Literal["off", "invited", "open"]
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class SignUpRules:
    mode: Mode = "off"
    per_hour: int = 360
    """New tenants without an invitation, from all addresses together."""
    per_hour_and_address: int = 20
    """Attempts per address, whatever their result."""
    most: int = 1000
    """Tenants that signed up themselves and whose names are not free again."""
    allowance: Allowance = field(default_factory=Allowance)


class SignUpGuard:
    """Checks the limits before anything is written."""

    def __init__(self, rules: SignUpRules, clock: Clock) -> None:
        self.rules = rules
        by_address, together = rules.per_hour_and_address, rules.per_hour
        self._by_address = TokenBuckets(clock, per_second=by_address / _HOUR, burst=max(1, by_address // 2))
        self._together = TokenBuckets(clock, per_second=together / _HOUR, burst=max(1, together // 18))

    def check_attempt(self, address: str, invitation: str) -> None:
        if self.rules.mode == "off":
            raise Problem(
                403, "sign-up-closed", "tenants are made by administrators here",
                hint="ask one for `trainmaster tenant add`, or set rest.sign_up to open or invited",
            )  # fmt: skip
        who = build_address_group(address)
        if not self._by_address.take(who):
            limit = f"{self.rules.per_hour_and_address} attempts an hour from one address"
            _refuse(limit, "rest.sign_ups_per_hour_per_address", self._by_address.get_wait(who))
        if self.rules.mode == "invited" and not invitation:
            raise Problem(
                403, "invitation-needed", "only who was invited may sign up here",
                hint="ask an administrator for `trainmaster tenant invite`, and send its code as `invitation`",
            )  # fmt: skip

    async def check_capacity(self, name: str, register: Register) -> None:
        """For callers without an invitation. Unavailable names do not count against the limit."""
        problem = tenancy.find_name_problem(name)
        if problem:
            raise TenantError(problem, "invalid")
        if await register.find_obstacle(name):
            raise build_taken(name)
        if await register.count_signed_up() >= self.rules.most:
            raise Problem(
                403, "sign-up-full", f"{self.rules.most} tenants have signed up here, and no more may",
                hint="ask an administrator for an invitation; rest.sign_up_tenants is the limit",
            )  # fmt: skip
        if not self._together.take(""):
            limit = f"{self.rules.per_hour} new tenants an hour"
            _refuse(limit, "rest.sign_ups_per_hour", self._together.get_wait(""))


def _refuse(limit: str, setting: str, seconds: float) -> NoReturn:
    text = f"more than {limit} ({setting})"
    raise Problem(429, "too-many-requests", text, retry_after=max(1, int(seconds + 0.999)))
