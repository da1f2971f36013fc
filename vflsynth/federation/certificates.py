"""A start-up kit's certificate: whose it is, how long it is valid, and who can read its key."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from vflsynth.exceptions import UnusableFileError

_SOON, _SOON_ROOT = 30, 180
"""Days before its end from which a certificate is worth renewing, and that of the authority."""


def check_certificate(kit: Path, name: str) -> str:
    """Look at a kit's certificate and private key; return whose it is, and for how many days.

    A node with a wrong one would knock at the server for ever, and neither says why. `name` is
    whose it must be, but at a server, which has that of its host. Raises UnusableFileError.
    """
    startup = kit / "startup"
    kind = "server" if (startup / "fed_server.json").is_file() else "client"
    path, key, root = startup / f"{kind}.crt", startup / f"{kind}.key", startup / "rootCA.pem"
    try:
        certificate, authority = (
            x509.load_pem_x509_certificate(file.read_bytes()) for file in (path, root)
        )
        private = load_pem_private_key(key.read_bytes(), password=None)
        mode = stat.S_IMODE(key.stat().st_mode)
    except (OSError, ValueError, TypeError) as error:
        raise UnusableFileError(
            f"{path}, {root} or the key cannot be read. Fix: package the kit"
        ) from error
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    owner = str(names[0].value) if names else ""
    if kind == "client" and owner != name:
        raise UnusableFileError(
            f"{path} is of {owner!r}, and not of {name!r}. Fix: package the kit"
        )
    if certificate.public_key() != private.public_key():
        raise UnusableFileError(f"{key} is not the key of {path}. Fix: package the kit")
    own = _days_left(path, certificate)
    if mode & 0o077:
        raise UnusableFileError(f"{key} can be read by others. Fix: chmod 600 {key}")
    of_root = _days_left(root, authority)
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise UnusableFileError(
            f"{path} is not of the authority of {root}: one is another study's. Fix: package the "
            "kit"
        ) from error
    text = f"of {owner}, {own} days left{'; renew it now' if own < _SOON else ''}"
    if of_root < _SOON_ROOT:
        text += (
            f"; the authority's own ends in {of_root} days, and every certificate with it: plan "
            "for a new one"
        )
    return text


def _days_left(path: Path, certificate: x509.Certificate) -> int:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    now = datetime.now(UTC)
    if not begins <= now <= ends:
        raise UnusableFileError(
            f"{path} is valid from {begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M}, and the clock "
            f"here says {now:%Y-%m-%d %H:%M} (UTC). Fix: set the clock, or have it renewed"
        )
    return (ends - now).days
