"""The owner's credential and the installation's secrets: created once, stored in the home, never logged.

`kubeconfig` contains a token for the owner. If its server, CA and token are still right, the file is not changed, so
that a namespace or a context added by the owner survives a restart.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from trainmaster.app.home.folder import Home
from trainmaster.auth.contract import MASTERS
from trainmaster.auth.identities import StaticTokens, digest
from trainmaster.client.contract import ActingIdentity
from trainmaster.kit.ids import Ids

OWNER = ActingIdentity("trainmaster:owner", groups=(MASTERS,))

_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: trainmaster
clusters:
- name: trainmaster
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: owner
  user:
    token: {token}
contexts:
- name: trainmaster
  context:
    cluster: trainmaster
    user: owner
    namespace: default
"""


def ensure_secret(home: Home, name: str, ids: Ids) -> str:
    """The content of a secret file in pki/, created at first use."""
    path = home.pki / name
    if not path.exists():
        home.write_private(path, ids.token())
    return path.read_text()


def load_static_tokens(home: Home, ids: Ids) -> StaticTokens:
    return StaticTokens({digest(ensure_secret(home, "owner.token", ids)): OWNER})


def write_kubeconfig(home: Home, server: str, ca: Path, ids: Ids) -> None:
    ca_data = base64.b64encode(ca.read_bytes()).decode()
    token = ensure_secret(home, "owner.token", ids)
    try:
        present = home.kubeconfig.read_text()
    except OSError:
        present = ""
    # JSON strings are valid YAML strings.
    wanted = {"server": json.dumps(server), "ca": ca_data, "token": json.dumps(token)}
    if all(f": {value}\n" in present for value in wanted.values()):
        home.kubeconfig.chmod(0o600)
    else:
        home.write_private(home.kubeconfig, _KUBECONFIG.format(**wanted))
