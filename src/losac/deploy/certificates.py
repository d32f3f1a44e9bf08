"""Keys and certificates of a federation: an authority, the server's certificate, and one key for every SuperNode.

All are on the curve P-384. Private files can be read by their owner only, and nothing that exists is overwritten.
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from losac._files import make_folder

_CURVE = ec.SECP384R1()
_EXISTS = "{} exists and is not overwritten; remove it, or use another folder"
_EARLIER = timedelta(minutes=5)
"""Certificates are valid from shortly before now, for machines with clocks that are behind."""


class Certified(NamedTuple):
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


class NodeKey(NamedTuple):
    """A SuperNode's private and public key, both in OpenSSH's format, which is the one that Flower reads."""

    private: Path
    public: Path


def certificate_authority(folder: Path, *, name: str = "losac federation", days: int = 3650) -> Certified:
    """Write ``ca.crt`` and ``ca.key``: the authority that all members of a federation trust."""
    files = Certified(folder / "ca.crt", folder / "ca.key")
    _refuse_existing(files)
    key = ec.generate_private_key(_CURVE)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    return _write(files, certificate, key)


def server_certificate(folder: Path, hosts: Sequence[str], authority: Certified, *, days: int = 825) -> Certified:
    """Write ``server.crt`` and ``server.key``, valid for these host names and IP addresses."""
    check_hosts(hosts)
    files = Certified(folder / "server.crt", folder / "server.key")
    _refuse_existing(files)
    issuer = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    issuer_key = serialization.load_pem_private_key(authority.key.read_bytes(), password=None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{authority.key} is no elliptic-curve key; make the authority with certificate_authority")
    key = ec.generate_private_key(_CURVE)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    certificate = (
        _builder(subject, issuer.subject, key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA384())
    )
    return _write(files, certificate, key)


def node_key(folder: Path, name: str) -> NodeKey:
    """Write ``NAME`` and ``NAME.pub``: the key by which the server knows a SuperNode."""
    files = NodeKey(folder / name, folder / f"{name}.pub")
    _refuse_existing(files)
    key = ec.generate_private_key(_CURVE)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    _create(files.public, public + f" {name}\n".encode())
    _create(files.private, private)
    return files


def executor_secret(folder: Path) -> Path:
    """Write ``executor.secret``: by it the SuperLink knows the program that may run the server's part of an app."""
    path = folder / "executor.secret"
    _refuse_existing([path])
    _create(path, secrets.token_bytes(32))
    return path


def set_aside(*files: Path) -> None:
    """Give key files another name, to make room for new ones; those that are not there are left out."""
    for path in files:
        if not path.exists():
            continue
        number = 1
        while (other := path.with_name(f"{path.name}.{number}")).exists():
            number += 1
        path.rename(other)


def check_hosts(hosts: Sequence[str]) -> None:
    """Refuse what no server can be reached at.

    >>> check_hosts(["example.org", "::1", "my server"])
    Traceback (most recent call last):
    ...
    ValueError: 'my server' is neither a host name nor an IP address; international names need their ASCII form
    """
    if not hosts:
        raise ValueError("hosts is empty; name every host or IP address at which clients reach the server")
    for host in hosts:
        if not (_is_ip(host) or re.fullmatch(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", host)):
            raise ValueError(
                f"{host!r} is neither a host name nor an IP address; international names need their ASCII form"
            )


def check_certificate(certificate: Path, hosts: Iterable[str]) -> None:
    """Refuse a certificate that has expired, or that does not name all hosts."""
    read = x509.load_pem_x509_certificate(certificate.read_bytes())
    if read.not_valid_after_utc < datetime.now(UTC):
        raise ValueError(
            f"{certificate} expired on {read.not_valid_after_utc:%Y-%m-%d}; remove it and its key, and start again"
        )
    named = [
        name for part in read.extensions if isinstance(part.value, x509.SubjectAlternativeName) for name in part.value
    ]
    for host in hosts:
        if _name(host) not in named:
            known = ", ".join(str(name.value) for name in named)
            raise ValueError(
                f"{certificate} is for {known}, not for {host!r}; remove it and its key, and start again with the host"
            )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(host)) if _is_ip(host) else x509.DNSName(host)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _refuse_existing(files: Iterable[Path]) -> None:
    for path in files:
        if path.exists():
            raise ValueError(_EXISTS.format(path))


def _write(files: Certified, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Certified:
    _create(files.key, _pem(key))
    _create(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    return files


def _create(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read, whole or not at all."""
    make_folder(path.parent, private=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # for its owner alone
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(name, path)
    except FileExistsError:
        raise ValueError(_EXISTS.format(path)) from None
    finally:
        os.unlink(name)
