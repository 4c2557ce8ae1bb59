"""The installation's own certificate authority: CA, server certificate, client certificates.

All files are in one directory, private ones with mode 0600. `ensure` creates certificates that are missing, about to
expire or made for other names, and returns which. On an ordinary start it only compares a small JSON file. The library
for certificates is imported only when one has to be made, because the import takes a third of the startup time.

Certificates contain what strict verifiers require: critical basic constraints, key usage, subject and authority key
ids. Keys are ECDSA P-256.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from trainmaster.auth.contract import MASTERS
from trainmaster.kit.clock import Clock, format_time, parse_time

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_CA_DAYS = 3650
LEAF_DAYS = 365
_RENEW_DAYS = 30
_CLOCK_ERROR = timedelta(days=1)
"""How far the clocks of those who check a certificate may be behind ours."""
LOCAL_NAMES = (
    *("127.0.0.1", "::1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
    # The names under which Pods reach the server, through the relay in their network
    # (trainmaster/node/network/addresses.py).
    *("kubernetes.default.svc.cluster.local", "10.96.0.1"),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """A server's certificate with its key, and the CA that signed it; PEM."""

    ca: str
    certificate: str
    key: str = field(repr=False)


def issue_server_keys(names: Sequence[str], clock: Clock, days: int = LEAF_DAYS) -> ServerKeys:
    """With a CA of their own, whose key is not kept, because nothing else is ever signed with it. In memory only."""
    return issue_keys_at(names, clock.now(), days)


def issue_keys_at(names: Sequence[str], now: datetime, days: int) -> ServerKeys:
    ca, ca_key = _issue("trainmaster-ca", (), None, None, None, now, days)
    certificate, key = _issue("trainmaster", (), names, ca, ca_key, now, days)
    return ServerKeys(_certificate_pem(ca).decode(), _certificate_pem(certificate).decode(), _key_pem(key).decode())


class Pki:
    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self.ca = Pair(directory / "ca.crt", directory / "ca.key")
        self.server = Pair(directory / "server.crt", directory / "server.key")
        self.admin = Pair(directory / "admin.crt", directory / "admin.key")
        self._record = directory / "pki.json"

    def ensure(self, names: Sequence[str] = (), *, owner: str = "trainmaster:owner") -> list[str]:
        """Creates and renews certificates as needed; returns the names of the new ones."""
        wanted = sorted({*LOCAL_NAMES, *names})
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        record = self._read_record()
        made: list[str] = []
        if self._is_due(record, "ca", self.ca):
            self._make_ca(record)
            made.append("ca")
        if made or self._is_due(record, "server", self.server) or record.get("names") != wanted:
            self._make_leaf(record, "server", self.server, "trainmaster", (), wanted)
            record["names"] = wanted
            made.append("server")
        if "ca" in made or self._is_due(record, "admin", self.admin) or record.get("owner") != owner:
            self._make_leaf(record, "admin", self.admin, owner, (MASTERS,), None)
            record["owner"] = owner
            made.append("admin")
        if made:
            _write(self._record, orjson.dumps(record, option=orjson.OPT_INDENT_2), 0o600)
        return made

    def make_client(self, user: str, groups: Sequence[str] = (), *, days: int = LEAF_DAYS) -> tuple[str, str]:
        """A client certificate and its key in PEM, for another user; they are not stored."""
        issuer, issuer_key = self._load_ca()
        certificate, key = _issue(user, groups, None, issuer, issuer_key, self._clock.now(), days)
        return _certificate_pem(certificate).decode(), _key_pem(key).decode()

    def _read_record(self) -> dict[str, object]:
        try:
            record = orjson.loads(self._record.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return {}
        return record if isinstance(record, dict) else {}

    def _is_due(self, record: dict[str, object], name: str, pair: Pair) -> bool:
        if not pair.certificate.exists() or not pair.key.exists():
            return True
        try:
            expires = parse_time(str(record[name]))
        except (KeyError, ValueError):
            return True
        return self._clock.now() + timedelta(days=_RENEW_DAYS) >= expires

    def _make_ca(self, record: dict[str, object]) -> None:
        now = self._clock.now()
        certificate, key = _issue("trainmaster-ca", (), None, None, None, now, _CA_DAYS)
        _write(self.ca.key, _key_pem(key), 0o600)
        _write(self.ca.certificate, _certificate_pem(certificate), 0o644)
        record["ca"] = format_time(now + timedelta(days=_CA_DAYS))

    def _make_leaf(
        self,
        record: dict[str, object],
        name: str,
        pair: Pair,
        user: str,
        groups: Sequence[str],
        names: Sequence[str] | None,
    ) -> None:
        issuer, issuer_key = self._load_ca()
        now = self._clock.now()
        certificate, key = _issue(user, groups, names, issuer, issuer_key, now, LEAF_DAYS)
        _write(pair.key, _key_pem(key), 0o600)
        _write(pair.certificate, _certificate_pem(certificate), 0o644)
        record[name] = format_time(now + timedelta(days=LEAF_DAYS))

    def _load_ca(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        # Imported here because an ordinary start makes no certificates.
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

        key = load_pem_private_key(self.ca.key.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{self.ca.key} is not an elliptic-curve key")
        return x509.load_pem_x509_certificate(self.ca.certificate.read_bytes()), key


def _write(path: Path, data: bytes, mode: int) -> None:
    """Atomic, and the file is never readable by others."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.write(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
    temporary.replace(path)


def _issue(
    user: str,
    groups: Sequence[str],
    names: Sequence[str] | None,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey | None,
    now: datetime,
    days: int,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A CA if there is no issuer, a server certificate if there are `names`, otherwise a client certificate."""
    # Imported here because an ordinary start makes no certificates.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        + [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    )
    signer = issuer_key or key
    is_ca = issuer is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_ERROR)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(_key_usage(is_ca), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if names is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(_alternative_names(names)), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    elif not is_ca:
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    return builder.sign(signer, hashes.SHA256()), key


def _key_usage(is_ca: bool) -> x509.KeyUsage:
    from cryptography import x509  # noqa: PLC0415 - see _issue

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(names: Sequence[str]) -> list[x509.GeneralName]:
    from cryptography import x509  # noqa: PLC0415 - see _issue

    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - see _issue

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - see _issue
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def build_server_tls(server: Pair, ca: Path) -> ssl.SSLContext:
    """TLS for the API server: client certificates of our CA are accepted but not required."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(str(server.certificate), str(server.key))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context
