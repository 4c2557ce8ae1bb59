"""Who may call the REST API beside those whom the server behind knows: users of an identity provider (`oidc_*`)."""

from __future__ import annotations

from trainmaster.app.settings import Rest
from trainmaster.kit.clock import Clock
from trainmaster.rest.callers import Callers, Latest, always_durable
from trainmaster.rest.jwks import KeySet
from trainmaster.rest.oidc import ActAs, OidcCallers, Trusted, Verifier
from trainmaster.rest.provider import Source, build_fetch


def add_oidc(callers: Callers, settings: Rest, act_as: ActAs, clock: Clock, latest: Latest = always_durable) -> Callers:
    """The same callers where no issuer is set."""
    if not settings.oidc_issuer:
        return callers
    trusted = Trusted(
        settings.oidc_issuer,
        settings.oidc_audience,
        settings.oidc_user_claim,
        settings.oidc_groups_claim,
        settings.oidc_prefix,
    )
    source = Source(settings.oidc_issuer, settings.oidc_jwks, settings.oidc_ca, settings.oidc_private_addresses)
    keys = KeySet(build_fetch(source), clock)
    return OidcCallers(callers, Verifier(trusted, keys, clock), act_as, latest)
