"""TLS: who is trusted, what is refused, and that ends are told apart from cuts."""

import random
import ssl

import pytest
from transport.wires import Peer, Place, Raw, Server, in_thread

from stompcodec.transport import aio, tls
from stompcodec.transport.tls import TlsLayer


@pytest.mark.parametrize(
    ("shown", "trusted", "words"),
    [("stranger", "ca", r"\w"), ("stranger", None, r"\w"), ("client", "ca", r"(?i)mismatch|not valid|match")],
    ids=["another authority", "what the system trusts", "another name"],
)
def test_a_stranger_is_not_trusted(connect, certificates, shown, trusted, words):
    context = tls.client_context(getattr(certificates, trusted)) if trusted else None
    with (
        in_thread("tls", tls.server_context(getattr(certificates, shown))) as server,
        pytest.raises(ssl.SSLCertVerificationError, match=words),
    ):
        connect(server.place, Peer(), ssl=context)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_name_is_looked_up_and_checked_unless_nobody_verifies(version, run, certificates):
    async def main():
        for shown, host, verify in (("server", "localhost", True), ("client", "127.0.0.1", False)):
            context = tls.client_context(certificates.ca, verify=verify)
            context.minimum_version = context.maximum_version = version
            accepting = tls.server_context(getattr(certificates, shown))
            async with Server("tls", context=accepting, echo=True) as server:
                client = Peer()
                await aio.connect(Place(host, server.port, tls=True), client, ssl=context)
                octets = random.Random(1).randbytes(1_000_000)
                client.wire.write([octets])
                assert await client.has(1_000_000) == octets
                client.wire.close()
                assert await client.gone() is None

    run(main())


def test_clients_must_show_a_certificate(run, certificates):
    """If the server has authorities for that; a client learns of the refusal at the latest when it reads."""

    async def main():
        context = tls.server_context(certificates.server, cafile=certificates.ca)
        async with Server("tls", context=context, echo=True) as server:
            shown = await server.connect(tls.client_context(certificates.ca, certificates.client))
            shown.wire.write([b"hello"])
            await shown.has(5)
            shown.wire.close()
            await shown.gone()
            assert len(server.peers) == 1
            for context in (
                tls.client_context(certificates.ca),
                tls.client_context(certificates.ca, certificates.stranger),
            ):
                client = Peer()
                try:
                    await aio.connect(server.place, client, ssl=context)
                except OSError:
                    continue
                assert isinstance(await client.gone(), OSError)
            assert len(server.peers) == 1

    run(main())


def test_older_versions_renegotiation_and_compression_are_off(certificates):
    for context in (tls.client_context(), tls.server_context(certificates.server)):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION


@pytest.mark.parametrize("content", [None, b"no PEM"])
def test_files_that_cannot_be_used_are_named(content, certificates, tmp_path):
    path = tmp_path / "some.pem"
    if content is not None:
        path.write_bytes(content)
    for make in (
        lambda: tls.server_context(path),
        lambda: tls.server_context(certificates.server, path),
        lambda: tls.server_context(certificates.server, cafile=path),
        lambda: tls.client_context(path),
        lambda: tls.client_context(certificates.ca, path),
    ):
        with pytest.raises(OSError, match=r"PEM is expected.*some\.pem"):
            make()


def test_plain_octets_at_a_tls_port(run, contexts):
    async def main():
        async with Server("tls", context=contexts.server) as server, Raw.to(server.port) as raw:
            await raw.send(b"CONNECT\naccept-version:1.2\n\n\0")
            assert b"CONNECTED" not in await raw.rest()
            assert server.peers == []

    run(main())


def layers(contexts):
    """A client's and a server's layer that have shaken hands."""
    client, server = TlsLayer(contexts.client, server_hostname="localhost"), TlsLayer(contexts.server)
    client.start()
    while not (client.opened and server.opened):
        for here, there in ((client, server), (server, client)):
            for data in here.take_output():
                assert there.receive(data) == []
    return client, server


def test_octets_of_one_record_in_any_pieces(contexts):
    client, server = layers(contexts)
    client.receive(b"".join(server.take_output()))  # tickets
    server.send([b"a" * 40_000, b"", b"b"])
    wire = b"".join(server.take_output())
    assert b"aaaa" not in wire
    received = b"".join(b"".join(client.receive(wire[at : at + 7])) for at in range(0, len(wire), 7))
    assert received == b"a" * 40_000 + b"b"
    assert (client.ended, client.error) == (False, None)


def test_the_end_is_signed(contexts):
    """A peer that says goodbye has ended; octets that were changed on the way are an error."""
    client, server = layers(contexts)
    server.send([b"last"])
    server.close()
    assert b"".join(client.receive(b"".join(server.take_output()))) == b"last"
    assert (client.ended, client.error) == (True, None)

    client, server = layers(contexts)
    server.send([b"last"])
    wire = bytearray(b"".join(server.take_output()))
    wire[-1] ^= 1
    assert b"".join(client.receive(wire)) == b""
    assert isinstance(client.error, ssl.SSLError)
    client.send([b"dropped"])
    client.close()
    assert client.receive(b"more") == []


def test_a_server_says_why_it_refuses(contexts):
    layer = TlsLayer(contexts.server)
    layer.start()
    hello = TlsLayer(contexts.client, server_hostname="localhost")
    hello.start()
    broken = bytearray(b"".join(hello.take_output()))
    broken[9:11] = b"\x02\0"  # SSL 2
    layer.receive(broken)
    assert isinstance(layer.error, ssl.SSLError)
    assert b"".join(layer.take_output())[:1] == b"\x15"  # an alert
