"""Certificates: what is made, kept and renewed, and which of several is served."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509

from twinbus.clock import SystemClock
from twinbus.errors import ConfigError
from twinbus.server.setup.certificates import TlsOptions, prepare

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def names(file: Path) -> set[str]:
    kind = x509.SubjectAlternativeName
    value = certificate(file).extensions.get_extension_for_class(kind).value
    addresses = value.get_values_for_type(x509.IPAddress)
    return {*value.get_values_for_type(x509.DNSName), *map(str, addresses)}


def test_the_certificate_has_the_names_of_this_machine(tmp_path: Path) -> None:
    _, ca_file = prepare(
        tmp_path, ["Contoso", "fabrikam"], TlsOptions(hosts=("bus.example",)), NOW_MS
    )

    assert ca_file == tmp_path / "ca.pem"
    assert names(tmp_path / "server.pem") == {
        "localhost",
        "127.0.0.1",
        str(ipaddress.ip_address("::1")),
        "contoso.localhost",
        "fabrikam.localhost",
        "bus.example",
    }


def test_keys_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    prepare(tmp_path / "tls", [], TlsOptions(), NOW_MS)

    modes = {
        file.name: stat.S_IMODE(file.stat().st_mode)
        for file in (tmp_path / "tls").iterdir()
    }

    assert modes["server-key.pem"] == modes["ca-key.pem"] == 0o600
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    assert len(modes) == 4


def test_a_second_start_makes_nothing_new(tmp_path: Path) -> None:
    prepare(tmp_path, ["a"], TlsOptions(), NOW_MS)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    prepare(tmp_path, ["a"], TlsOptions(), NOW_MS + 600 * DAY_MS)

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("namespaces", "days"), [(["a", "b"], 0), (["a"], 701), (["a"], 5000)]
)
def test_a_missing_name_or_a_near_end_makes_a_new_one(
    tmp_path: Path, namespaces: list[str], days: int
) -> None:
    prepare(tmp_path, ["a"], TlsOptions(), NOW_MS)
    before = (tmp_path / "server.pem").read_bytes()

    prepare(tmp_path, namespaces, TlsOptions(), NOW_MS + days * DAY_MS)

    authority, server = certificate(tmp_path / "ca.pem"), tmp_path / "server.pem"
    assert server.read_bytes() != before
    certificate(server).verify_directly_issued_by(authority)
    assert certificate(server).not_valid_after_utc <= authority.not_valid_after_utc


def test_clients_keep_trusting_when_the_server_gets_a_new_one(tmp_path: Path) -> None:
    prepare(tmp_path, ["a"], TlsOptions(), NOW_MS)
    authority = (tmp_path / "ca.pem").read_bytes()

    prepare(tmp_path, ["a", "b"], TlsOptions(), NOW_MS + 720 * DAY_MS)

    assert (tmp_path / "ca.pem").read_bytes() == authority


def test_a_host_name_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="punycode"):
        prepare(tmp_path, [], TlsOptions(hosts=("bücher.example",)), NOW_MS)


def pair(folder: Path, host: str) -> tuple[Path, Path]:
    """A certificate as a user would bring it."""
    now_ms = SystemClock().now_ms()
    prepare(folder / host, [], TlsOptions(hosts=(host,)), now_ms)
    return folder / host / "server.pem", folder / host / "server-key.pem"


def test_files_that_are_missing_or_do_not_match_are_refused(tmp_path: Path) -> None:
    one, other = pair(tmp_path, "one.example"), pair(tmp_path, "other.example")

    for bad in (
        (one[0], other[1]),
        (tmp_path / "none.pem", one[1]),
        (one[1], one[1]),
    ):
        with pytest.raises(ConfigError, match="cannot be"):
            prepare(tmp_path, [], TlsOptions(pairs=(bad,)), NOW_MS)


def test_of_several_certificates_the_name_chooses(tmp_path: Path) -> None:
    pairs = (pair(tmp_path, "one.example"), pair(tmp_path, "*.other.example"))
    context, ca_file = prepare(tmp_path, [], TlsOptions(pairs=pairs), NOW_MS)

    assert ca_file is None
    assert "one.example" in served(context, "one.example")
    assert "*.other.example" in served(context, "x.other.example")
    # An unknown name gets the first one, and the client decides.
    assert "one.example" in served(context, "unknown.example")


def served(context: ssl.SSLContext, name: str) -> set[str]:
    """The names in the certificate that a client which asks for a name is shown."""
    ours, theirs = socket.socketpair()
    client = ssl.create_default_context()
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE

    def serve() -> None:
        with context.wrap_socket(ours, server_side=True) as accepted:
            accepted.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(theirs, server_hostname=name) as connected:
        shown = connected.getpeercert(binary_form=True)
    thread.join()
    assert shown is not None
    loaded = x509.load_der_x509_certificate(shown)
    kind = x509.SubjectAlternativeName
    value = loaded.extensions.get_extension_for_class(kind).value
    return set(value.get_values_for_type(x509.DNSName))
