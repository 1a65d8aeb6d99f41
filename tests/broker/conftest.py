"""What each test of the broker leaves behind, and the certificate of brokers with TLS."""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from broker.harness import switch


@pytest.fixture(autouse=True)
def _road_in_c() -> Iterator[None]:
    """The road in C, which is switched for the whole process, is on again after a test that has switched it off."""
    yield
    switch(True)


@pytest.fixture(scope="session")
def own_addresses() -> list[str]:
    """The address of this machine that is not loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        sock.connect(("192.0.2.1", 9))  # sends nothing
        address = str(sock.getsockname()[0])
        return [] if address.startswith("127.") else [address]
    return []


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory, own_addresses: list[str]) -> SimpleNamespace:
    """Files with a certificate of this machine, and the context of a client that trusts it."""
    trustme = pytest.importorskip("trustme", reason="certificates for TLS are made by trustme")
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1", *own_addresses)
    names = {name: str(folder / name) for name in ("both", "cert", "key")}
    issued.private_key_and_cert_chain_pem.write_to_path(names["both"])
    issued.cert_chain_pems[0].write_to_path(names["cert"])
    issued.private_key_pem.write_to_path(names["key"])
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    return SimpleNamespace(**names, trusting=trusting)
