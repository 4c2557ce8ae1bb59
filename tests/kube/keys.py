"""Keys and certificates of one test control plane: a CA, a serving certificate, the service-account key, and client
certificates on request. Independent of the product's own code, because it stands on the other side of the comparison.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALIDITY = datetime.timedelta(days=2)


def _name(common: str, organizations: tuple[str, ...] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    path.touch(mode=0o600)
    path.write_bytes(pem)


class Keys:
    """Everything lies in one folder: ca.crt, tls.crt, tls.key, sa.key, sa.pub."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ca_key = ec.generate_private_key(ec.SECP256R1())
        self._ca_name = _name("kube-test-ca")
        authority = self._builder(self._ca_name, self._ca_key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self._write(folder / "ca.crt", authority)
        self._issue("tls", _name("localhost"), folder, server=True)
        account = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        _write_key(folder / "sa.key", account)
        public = account.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (folder / "sa.pub").write_bytes(public)

    def issue(self, user: str, groups: tuple[str, ...], folder: Path) -> tuple[Path, Path]:
        """A client certificate for that user in those groups: (certificate, key)."""
        return self._issue("client", _name(user, groups), folder, server=False)

    def _issue(self, stem: str, subject: x509.Name, folder: Path, *, server: bool) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self._builder(subject, key).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if server:
            names = [x509.DNSName("localhost"), x509.DNSName("kubernetes.default.svc")]
            addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName([*names, *addresses]), critical=False)
        certificate, key_path = folder / f"{stem}.crt", folder / f"{stem}.key"
        self._write(certificate, builder)
        _write_key(key_path, key)
        return certificate, key_path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + _VALIDITY)
        )

    def _write(self, path: Path, builder: x509.CertificateBuilder) -> None:
        certificate = builder.sign(self._ca_key, hashes.SHA256())
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
