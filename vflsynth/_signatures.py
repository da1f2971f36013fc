"""Signatures of what leaves a person's hands: proposals of jobs, and published tables.

Ed25519 (RFC 8032), from `cryptography`. A private key is a PEM file that its owner alone can read;
public keys and signatures are hexadecimal digits, short enough for a line of a file.
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from vflsynth.exceptions import ArtefactError, ParameterError, UnusableFileError

PUBLIC_DIGITS = 64
_SIGNATURE_DIGITS = 128


def new_key(path: Path) -> str:
    """Make a private key; return the public one.

    Raises ParameterError if the file exists already, ArtefactError if it cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            try:
                file.write(pem)
                file.flush()
            except OSError:
                path.unlink()
                raise
    except FileExistsError as error:
        raise ParameterError(f"{path} is there already. Fix: name another file") from error
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error.strerror}") from error
    return key.public_key().public_bytes_raw().hex()


def public_key(path: Path) -> str:
    """Return the public key of a private one."""
    return _read(path).public_key().public_bytes_raw().hex()


def sign(path: Path, content: bytes) -> str:
    """Sign with a private key.

    Raises UnusableFileError if the file is not such a key, or others can read it.
    """
    return _read(path).sign(content).hex()


def is_signed(public: str, content: bytes, signature: str) -> bool:
    """Whether the owner of a public key signed this very content."""
    if len(public) != PUBLIC_DIGITS or len(signature) != _SIGNATURE_DIGITS:
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), content)
    except (ValueError, InvalidSignature):
        return False
    return True


def _read(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise UnusableFileError(
            f"{path} cannot be read as a private key. Fix: one made by 'vflsynth parties key'"
        ) from error
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise UnusableFileError(
            f"{path} can be read by others, who could sign in your name. Fix: chmod 600 {path}, "
            "and make another key if somebody may have had it"
        )
    if not isinstance(key, Ed25519PrivateKey):
        raise UnusableFileError(f"{path} is not an Ed25519 key")
    return key
