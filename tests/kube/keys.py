"""Keys and certificates of one test control plane: a CA, a serving certificate, the service-account key, client
certificates on request, and what API servers prove themselves with to others. Independent of the product's own code,
because it stands on the other side of the comparison.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

FRONT_PROXY = "front-proxy-client"
"""The name in the certificate of API servers that pass requests on."""
_VALIDITY = datetime.timedelta(days=2)


def _name(common: str, organizations: tuple[str, ...] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _write_key(path: Path, key: PrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    path.touch(mode=0o600)
    path.write_bytes(pem)


def _build_names(names: Sequence[str], addresses: Sequence[str] = ()) -> x509.SubjectAlternativeName:
    found = [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", *addresses)]
    return x509.SubjectAlternativeName([*(x509.DNSName(name) for name in names), *found])


class Authority:
    """A CA whose certificate is `ca.crt` in the folder."""

    def __init__(
        self,
        folder: Path,
        key: PrivateKey,
        *,
        name: str = "kube-test-ca",
        names: Sequence[str] = (),
        validity: datetime.timedelta = _VALIDITY,
    ) -> None:
        """`names`: host names in its own certificate, which some programs look for."""
        self.folder = folder
        self._key = key
        self._name = _name(name)
        self._validity = validity
        builder = self._builder(self._name, key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        # As in certificates that Go makes: by them two CAs of the same name are told apart.
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        if names:
            builder = builder.add_extension(_build_names(names), critical=False)
        self._write(folder / "ca.crt", builder)

    def write_key(self) -> None:
        _write_key(self.folder / "ca.key", self._key)

    def issue_server(self, *names: str, addresses: Sequence[str] = ()) -> None:
        """`tls.crt` and `tls.key`, for these host names and addresses, and the loopback address."""
        alternatives = _build_names(names, addresses)
        self._issue("tls", _name("localhost"), self.folder, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def issue_client(self, user: str, groups: tuple[str, ...], folder: Path, stem: str = "client") -> tuple[Path, Path]:
        """(certificate, key) for that user in those groups."""
        return self._issue(stem, _name(user, groups), folder, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(
        self,
        stem: str,
        subject: x509.Name,
        folder: Path,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None = None,
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate, key_path = folder / f"{stem}.crt", folder / f"{stem}.key"
        self._write(certificate, builder)
        _write_key(key_path, key)
        return certificate, key_path

    def _builder(self, subject: x509.Name, key: PrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + self._validity)
        )

    def _write(self, path: Path, builder: x509.CertificateBuilder) -> None:
        certificate = builder.sign(self._key, hashes.SHA256())
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def make_front_proxy(folder: Path) -> Authority:
    """With a CA of its own, because whoever has a certificate of it may claim to be anybody."""
    folder.mkdir(exist_ok=True)
    authority = Authority(folder, ec.generate_private_key(ec.SECP256R1()), name="front-proxy-ca")
    authority.issue_client(FRONT_PROXY, (), folder, "proxy")
    return authority


def generate_rsa() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Keys:
    """Everything lies in one folder: ca.crt, tls.crt, tls.key, sa.key, sa.pub; what API servers prove themselves with
    when they pass requests on, in `front-proxy/`: ca.crt, proxy.crt, proxy.key."""

    def __init__(self, folder: Path, addresses: Sequence[str] = ()) -> None:
        """`addresses`: where Pods and kubelets reach the API server."""
        self._authority = Authority(folder, ec.generate_private_key(ec.SECP256R1()))
        names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
        self._authority.issue_server(*names, addresses=addresses)
        account = generate_rsa()
        _write_key(folder / "sa.key", account)
        public = account.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (folder / "sa.pub").write_bytes(public)
        self.front_proxy = make_front_proxy(folder / "front-proxy")

    def issue(self, user: str, groups: tuple[str, ...], folder: Path, stem: str = "client") -> tuple[Path, Path]:
        """A client certificate for that user in those groups: (certificate, key)."""
        return self._authority.issue_client(user, groups, folder, stem)
