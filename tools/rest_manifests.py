"""Writes `deploy/rest/tenant-role.yaml` from the declarations of the kinds, which say what a tenant may do.

Usage: `python -m tools.rest_manifests` writes, `--check` fails when the file is not what the code says. A unit test
calls `render_tenant_role` for the same comparison.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from trainmaster.api.declaring import catalogue
from trainmaster.api.resources import CLUSTER_ROLES
from trainmaster.api.tenancy import ROLE
from trainmaster.auth.roles import build_rules

FILE = Path(__file__).resolve().parent.parent / "deploy" / "rest" / "tenant-role.yaml"
_HEAD = """\
# What a tenant may do in its own namespace (docs/tenants.md); `trainmaster tenant add` binds it there.
# Written by tools/rest_manifests.py from trainmaster/api/kindsets; do not edit by hand.
"""


def render_tenant_role() -> str:
    role = {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": "ClusterRole",
        "metadata": {"name": ROLE},
        "rules": build_rules("tenant", catalogue.build().kinds),
    }
    return _HEAD + yaml.safe_dump(role, sort_keys=False, default_flow_style=None, width=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    if not parser.parse_args().check:
        FILE.write_text(render_tenant_role())
    elif FILE.read_text() != render_tenant_role():
        print(f"{FILE} is not what the code says: run python -m tools.rest_manifests", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
