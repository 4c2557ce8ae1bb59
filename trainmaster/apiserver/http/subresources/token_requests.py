"""serviceaccounts/NAME/token: connects the registry's subresource with the token issuer."""

from __future__ import annotations

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.apiserver import stored
from trainmaster.apiserver.contract import Call, Written
from trainmaster.apiserver.state import SubresourceCreator
from trainmaster.auth.service_accounts import ServiceAccountTokens
from trainmaster.client.contract import WriteOptions


def build_token_creator(accounts: ServiceAccountTokens) -> SubresourceCreator:
    """For `Registry.serve_subresource(SERVICE_ACCOUNTS, "token", ...)`."""

    def create(call: Call, kind: Kind, namespace: str, name: str, obj: Object, options: WriteOptions) -> Written:
        if obj.get("kind", "TokenRequest") != "TokenRequest":
            raise status.bad_request("the body of a token request must be a TokenRequest")
        return Written(stored.dump(accounts.request(namespace, name, obj)), 0, created=True)

    return create
