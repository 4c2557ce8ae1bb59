"""Random key pairs for MPI's ssh and for Flux. The cryptography package is imported only when a key pair is made."""

from __future__ import annotations

import base64
from dataclasses import dataclass

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


@dataclass(frozen=True, slots=True)
class KeyPair:
    private: str
    public: str

    def __repr__(self) -> str:
        return "KeyPair(hidden)"


def make_ssh_keys() -> KeyPair:
    """ECDSA on P-521, as upstream: a PEM `EC PRIVATE KEY` and a line for authorized_keys."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  # 40 ms, and only MPI jobs need it
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode() + "\n")


def make_curve_keys() -> KeyPair:
    """X25519 in Z85, as in CURVE certificates. Upstream derives it from the TrainJob's uid, which is not a secret."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  # only Flux jobs need it
    from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415

    key = x25519.X25519PrivateKey.generate()
    raw = serialization.Encoding.Raw
    private = key.private_bytes(raw, serialization.PrivateFormat.Raw, serialization.NoEncryption())
    public = key.public_key().public_bytes(raw, serialization.PublicFormat.Raw)
    return KeyPair(encode_z85(private), encode_z85(public))


def encode_z85(data: bytes) -> str:
    """ZeroMQ's base 85. The length of the data must be a multiple of four."""
    text: list[str] = []
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        digits = []
        for _ in range(5):
            number, digit = divmod(number, 85)
            digits.append(_Z85[digit])
        text.extend(reversed(digits))
    return "".join(text)


def encode_data(text: str) -> str:
    """Encodes a value for a Secret's `data`."""
    return base64.b64encode(text.encode()).decode()
