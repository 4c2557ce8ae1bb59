"""Seals what a browser or a Secret keeps, with AES-GCM.

The key of the cipher is made of two halves: one of the installation, one that only the other side has (the key in the
page, or the link). So neither the Secret of the installation nor a stolen cookie opens anything alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

_NONCE_BYTES = 12
_LONGEST = 8 * 1024


def seal(secret: str, half: str, purpose: str, content: bytes, entropy: str) -> str:
    """`purpose` keeps what is sealed for one use from being opened for another. `entropy`: a fresh random text."""
    # Imported on use: it takes a tenth of a second, and most homes have no login.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    nonce = hashlib.sha256(entropy.encode()).digest()[:_NONCE_BYTES]
    sealed = AESGCM(_derive(secret, half, purpose)).encrypt(nonce, content, purpose.encode())
    return base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode()


def unseal(secret: str, half: str, purpose: str, sealed: str) -> bytes | None:
    """None unless it was sealed with both halves for this purpose."""
    if len(sealed) > _LONGEST or not sealed.isascii():
        return None
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    try:
        raw = base64.b64decode(sealed + "=" * (-len(sealed) % 4), altchars=b"-_", validate=True)
        return AESGCM(_derive(secret, half, purpose)).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], purpose.encode())
    except (InvalidTag, ValueError, binascii.Error):
        return None


def _derive(secret: str, half: str, purpose: str) -> bytes:
    """256 bits. Both halves are random and have 256 bits, so one HMAC is enough."""
    return hmac.digest(secret.encode(), f"{purpose}\0{half}".encode("utf-8", "surrogateescape"), hashlib.sha256)
