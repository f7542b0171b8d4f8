"""Decrypt ECIES, in the default form of Bouncy Castle's cipher of that name.

    sealed  = ephemeral public key | ciphertext | tag
    keys    = KDF2-SHA1(ephemeral public key | shared x-coordinate)
            = 128 bits for the tag, then as many as the ciphertext is long
    message = ciphertext xor the second key
    tag     = HMAC-SHA1(first key, ciphertext | eight bytes of 0)

The eight bytes are the length of an encoding vector, which is not used.

Source: IEEE P1363a (DHAES mode) and Bouncy Castle's IESEngine, with the parameters of
MessageCryptoBc. KDF2 is ANSI X9.63's function.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.x963kdf import X963KDF

_TAG_BYTES = 20
_TAG_KEY_BYTES = 16
_NO_VECTOR = bytes(8)
_COMPRESSED = {2, 3}


def unseal(key: ec.EllipticCurvePrivateKey, sealed: bytes) -> bytes:
    """Return the message; raises ValueError if it was not sealed for this key."""
    coordinate_bytes = -(-key.curve.key_size // 8)
    coordinates = 1 if sealed[:1] and sealed[0] in _COMPRESSED else 2
    point_bytes = 1 + coordinates * coordinate_bytes
    point, rest = sealed[:point_bytes], sealed[point_bytes:]
    ciphertext, tag = rest[:-_TAG_BYTES], rest[-_TAG_BYTES:]
    theirs = ec.EllipticCurvePublicKey.from_encoded_point(key.curve, point)
    shared = key.exchange(ec.ECDH(), theirs)
    sha1 = SHA1()  # noqa: S303 - required by Pulsar
    derivation = X963KDF(sha1, _TAG_KEY_BYTES + len(ciphertext), None)
    keys = derivation.derive(point + shared)
    proof = HMAC(keys[:_TAG_KEY_BYTES], sha1)
    proof.update(ciphertext + _NO_VECTOR)
    try:
        proof.verify(tag)
    except InvalidSignature:
        raise ValueError("the message was sealed for another key, or changed") from None
    pairs = zip(ciphertext, keys[_TAG_KEY_BYTES:], strict=True)
    return bytes(byte ^ key_byte for byte, key_byte in pairs)
