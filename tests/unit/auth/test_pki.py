"""The own CA: what is made, kept, renewed, and what strict verifiers want to see in it."""

from __future__ import annotations

import ssl
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from trainmaster.auth.issuing import issue_apart
from trainmaster.auth.pki import Pki, build_server_tls, issue_server_keys
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def test_certificates_are_made_once_and_renewed_before_they_expire(tmp_path: Path) -> None:
    async def body() -> None:
        clock = VirtualClock()
        pki = Pki(tmp_path / "pki", clock)
        assert pki.ensure() == ["ca", "server", "admin"]
        assert pki.ensure() == []
        assert pki.ensure(["gpu-box"]) == ["server"]
        await clock.sleep(340 * 86_400)
        assert pki.ensure(["gpu-box"]) == ["server", "admin"]

    run_virtual(body(), limit=400 * 86_400)


def test_private_keys_are_private(tmp_path: Path) -> None:
    async def body() -> None:
        Pki(tmp_path, VirtualClock()).ensure()

    run_virtual(body())
    for name in ("ca.key", "server.key", "admin.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_certificates_carry_what_strict_verifiers_ask_for(tmp_path: Path) -> None:
    async def body() -> None:
        Pki(tmp_path, VirtualClock()).ensure()

    run_virtual(body())
    ca = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical and constraints.value.ca
    assert ca.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    server = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    server.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "127.0.0.1" in [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    admin = x509.load_pem_x509_certificate((tmp_path / "admin.crt").read_bytes())
    assert "O=system:masters" in admin.subject.rfc4514_string()


def test_certificates_are_valid_for_clients_whose_clocks_are_hours_behind() -> None:
    clock = VirtualClock()
    keys = issue_server_keys(["localhost"], clock)
    for text in (keys.ca, keys.certificate):
        begins = x509.load_pem_x509_certificate(text.encode()).not_valid_before_utc
        assert begins <= clock.now() - timedelta(hours=12)


def test_the_server_context_takes_client_certificates_without_requiring_them(tmp_path: Path) -> None:
    async def body() -> None:
        Pki(tmp_path, VirtualClock()).ensure()

    run_virtual(body())
    pki = Pki(tmp_path, VirtualClock.__new__(VirtualClock))
    assert build_server_tls(pki.server, pki.ca.certificate).verify_mode is ssl.CERT_OPTIONAL


def test_an_ordinary_start_does_not_load_the_certificate_library() -> None:
    code = "import sys, trainmaster.auth.pki; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_process_of_its_own_makes_the_same_keys() -> None:
    clock = VirtualClock()
    keys = issue_apart(["a.svc"], clock, 30)
    certificate = x509.load_pem_x509_certificate(keys.certificate.encode())
    ca = x509.load_pem_x509_certificate(keys.ca.encode())
    certificate.verify_directly_issued_by(ca)
    assert certificate.not_valid_after_utc - clock.now() == timedelta(days=30)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a.svc"]


def test_what_keeps_it_from_making_them_is_told() -> None:
    with pytest.raises(OSError, match=r"^cannot make a certificate: .*ValueError"):
        issue_apart(["not a name, but é"], VirtualClock())
