"""Callers of the REST API whom the API server does not know: users of an identity provider (`oidc_*`), and users who
sign up (`sign_up*`)."""

from __future__ import annotations

from trainmaster.api.tenancy import Allowance
from trainmaster.app.settings import Rest
from trainmaster.kit.clock import Clock
from trainmaster.rest.callers import Callers, Latest, always_durable
from trainmaster.rest.jwks import KeySet
from trainmaster.rest.oidc import ActAs, OidcCallers, Trusted, Verifier
from trainmaster.rest.provider import ProviderSource, build_fetch
from trainmaster.rest.services.sign_up import SignUpRules


def add_oidc(callers: Callers, settings: Rest, act_as: ActAs, clock: Clock, latest: Latest = always_durable) -> Callers:
    """Returns `callers` unchanged if no issuer is set."""
    if not settings.oidc_issuer:
        return callers
    trusted = Trusted(
        settings.oidc_issuer,
        settings.oidc_audience,
        settings.oidc_user_claim,
        settings.oidc_groups_claim,
        settings.oidc_prefix,
    )
    source = ProviderSource(settings.oidc_issuer, settings.oidc_jwks, settings.oidc_ca, settings.oidc_private_addresses)
    keys = KeySet(build_fetch(source), clock)
    return OidcCallers(callers, Verifier(trusted, keys, clock), act_as, latest)


def build_sign_up(settings: Rest) -> SignUpRules:
    allowance = Allowance(cpu=settings.sign_up_cpu, memory=settings.sign_up_memory, storage=settings.sign_up_storage)
    return SignUpRules(
        settings.sign_up,
        settings.sign_ups_per_hour,
        settings.sign_ups_per_hour_per_address,
        settings.sign_up_tenants,
        allowance,
    )
