"""Certificates: the user's own, or ones made for development.

Owns the folder `tls` of the data. Made once: an authority (`ca.pem`, which clients are
told to trust) and a server certificate for this machine's names, which is made anew
when a name is missing or its end is near. Keys are readable by their owner alone. Rule:
TLS 1.2 or newer, and no fallback to anything else. Knows nothing about sockets.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.errors import ConfigError

# Importing it takes longer than the rest of a start: imported only where it is needed.
if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA_FILE = "ca.pem"

_CA_NAME = "twinbus development authority"
# Machines whose clocks differ a little should agree that it is valid already.
_BACKDATE = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Certificates with their keys, and more names for the certificate of our own."""

    pairs: tuple[tuple[Path, Path], ...] = ()
    hosts: tuple[str, ...] = ()


def prepare(
    folder: Path, namespaces: Sequence[str], options: TlsOptions, now_ms: int
) -> tuple[ssl.SSLContext, Path | None]:
    """The context to serve with, and the file to trust, if it is ours."""
    if options.pairs:
        return _by_name([_context(*pair) for pair in options.pairs], options), None
    now = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
    hosts = ["localhost", "127.0.0.1", "::1"]
    hosts += [f"{name.lower()}.localhost" for name in namespaces]
    hosts += [host.lower() for host in options.hosts]
    pair = _development(folder, list(dict.fromkeys(hosts)), now)
    return _context(*pair), folder / CA_FILE


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A key that wants a password would ask for it on the terminal, and wait.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise ConfigError(
            f"{certificate} and {key} cannot be used ({error.reason}). They must be "
            "PEM files that belong together, and the key must have no password."
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{certificate} or {key} cannot be read ({error.strerror})."
        ) from error
    return context


def _by_name(contexts: list[ssl.SSLContext], options: TlsOptions) -> ssl.SSLContext:
    """Let the name that a client asks for choose among several certificates."""
    first = contexts[0]
    if len(contexts) == 1:
        return first
    by_name: dict[str, ssl.SSLContext] = {}
    for context, (file, _) in zip(contexts, options.pairs, strict=True):
        for name in _names(_load(file)):
            by_name.setdefault(name.lower(), context)

    def choose(peer: Any, name: str | None, _: ssl.SSLContext) -> None:
        asked = (name or "").lower()
        parent = f"*.{asked.partition('.')[2]}"
        peer.context = by_name.get(asked) or by_name.get(parent) or first

    first.sni_callback = choose
    return first


# -- made by ourselves -------------------------------------------------------------


def _development(folder: Path, hosts: list[str], now: dt.datetime) -> tuple[Path, Path]:
    """The server's certificate and key in that folder, made if need be."""
    certificate, key = folder / "server.pem", folder / "server-key.pem"
    try:
        # The mode is for the last folder alone, and both are private.
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        authority = _authority(folder, now)
        if not _is_good(certificate, key, hosts, now, authority[0]):
            _make_server((certificate, key), hosts, now, authority)
    except OSError as error:
        raise ConfigError(
            f"Certificates cannot be kept in {folder} ({error.strerror}). "
            "Choose another --data."
        ) from error
    return certificate, key


def _authority(
    folder: Path, now: dt.datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    file, key_file = folder / CA_FILE, folder / "ca-key.pem"
    if file.exists() and key_file.exists():
        try:
            known = load_pem_private_key(key_file.read_bytes(), None)
        except ValueError:
            known = None
        if not isinstance(known, ec.EllipticCurvePrivateKey):
            raise ConfigError(
                f"{key_file} is damaged. Remove {folder} and start again."
            )
        if _ends(_load(file)) - now > dt.timedelta(days=limits.CERTIFICATE_DAYS):
            return _load(file), known
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _CA_NAME)])
    usage = _usage(key_cert_sign=True, crl_sign=True)
    builder = _builder(name, name, now, limits.CA_CERTIFICATE_DAYS)
    builder = builder.public_key(key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    certificate = _signed(builder, key.public_key(), (None, key))
    _write_pair((file, key_file), certificate, key)
    return certificate, key


def _make_server(
    files: tuple[Path, Path],
    hosts: list[str],
    now: dt.datetime,
    authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "twinbus")])
    builder = _builder(name, authority[0].subject, now, limits.CERTIFICATE_DAYS)
    builder = builder.public_key(key.public_key())
    names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    for extension, critical in (
        (names, False),
        (x509.BasicConstraints(False, None), True),
        (_usage(digital_signature=True), True),
        (x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), False),
    ):
        builder = builder.add_extension(extension, critical)
    _write_pair(files, _signed(builder, key.public_key(), authority), key)


def _is_good(
    file: Path,
    key: Path,
    hosts: list[str],
    now: dt.datetime,
    authority: x509.Certificate,
) -> bool:
    """Whether a certificate that was made earlier still serves."""
    from cryptography.exceptions import InvalidSignature

    if not (file.exists() and key.exists()):
        return False
    certificate = _load(file)
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    is_fresh = _ends(certificate) - now > dt.timedelta(
        days=limits.CERTIFICATE_RENEW_DAYS
    )
    return is_fresh and set(hosts) <= _names(certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, now: dt.datetime, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _BACKDATE)
    return builder.not_valid_after(now + dt.timedelta(days=days))


def _signed(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePublicKey,
    authority: tuple[x509.Certificate | None, ec.EllipticCurvePrivateKey],
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    # Strict clients follow these identifiers from one certificate to the next.
    own = x509.SubjectKeyIdentifier.from_public_key(key)
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority[1].public_key())
    builder = builder.add_extension(own, critical=False)
    builder = builder.add_extension(by, critical=False)
    return builder.sign(authority[1], hashes.SHA256())


def _usage(**given: bool) -> x509.KeyUsage:
    from cryptography import x509

    kinds = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{kind: given.get(kind, False) for kind in kinds})


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise ConfigError(
            f"--tls-host {host!r} is no host name. Write it in ASCII (punycode)."
        ) from error


def _names(certificate: x509.Certificate) -> set[str]:
    from cryptography import x509

    try:
        kind = x509.SubjectAlternativeName
        names = certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return set()
    dns = set(names.get_values_for_type(x509.DNSName))
    return dns | {str(ip) for ip in names.get_values_for_type(x509.IPAddress)}


def _ends(certificate: x509.Certificate) -> dt.datetime:
    return certificate.not_valid_after_utc


def _load(file: Path) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{file} is not a certificate in PEM form.") from error


def _write_pair(
    files: tuple[Path, Path],
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
) -> None:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    form = PrivateFormat.PKCS8
    _write(files[1], key.private_bytes(Encoding.PEM, form, NoEncryption()), 0o600)
    _write(files[0], certificate.public_bytes(Encoding.PEM), 0o644)


def _write(file: Path, data: bytes, mode: int) -> None:
    """Replace a file in one step; no other user can read it at any moment."""
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(file)
