"""A tenant with a good token reaches for what is not theirs."""

from __future__ import annotations

import pytest

from tests.attacks.site import Site, unique

pytestmark = pytest.mark.attacks


@pytest.mark.parametrize("resource", ["pods", "secrets", "configmaps", "persistentvolumeclaims", "serviceaccounts"])
def test_a_tenant_reads_nothing_in_another_namespace(site: Site, resource: str) -> None:
    code, answer = site.ann.kube.call("GET", site.bob.path(resource))
    assert code == 403, answer


def test_a_tenants_pod_cannot_read_the_home_of_the_server(site: Site) -> None:
    home = site.server.home
    printed = site.ann.run_pod(unique("probe"), f"id -u; cat {home}/pki/owner.token; ls {home}; true")
    assert printed.split()[0] not in ("0", "")
    assert (home / "pki" / "owner.token").read_text().strip() not in printed
    assert "kubeconfig" not in printed
