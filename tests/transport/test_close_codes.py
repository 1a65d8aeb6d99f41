"""The close codes of servers over WebSocket: they are in the error of the connection, and a refusal ends its cause."""

import threading

import pytest
from client.shells import QUICK, Shell
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.codec import Parser
from stompcodec.transport.owner import CloseCodeError

pytest.importorskip("websockets")
from websockets.sync.server import serve

from stompcodec.transport.websocket import client_layer, server_layer


def layers():
    client, server = client_layer("localhost", 80), server_layer()
    client.start()
    server.receive(b"".join(client.take_output()))
    client.receive(b"".join(server.take_output()))
    return client, server


@pytest.mark.parametrize("code", [1001, 1008, 1011, 4001])
def test_a_code_is_the_error_behind_messages_that_came_with_it(code):
    client, server = layers()
    server.send([b"hello"])
    server._protocol.send_close(code, "token expired\n")
    received = client.receive(b"".join(server.take_output()))
    assert [bytes(piece) for piece in received] == [b"hello"]
    assert isinstance(client.error, CloseCodeError)
    assert client.error.code == code
    assert str(client.error) == f"the server closed the WebSocket: {code} token expired"


def test_a_normal_end_is_no_error():
    client, server = layers()
    server.close()
    client.receive(b"".join(server.take_output()))
    assert (client.ended, client.error) == (True, None)


def converse(connection):
    """Answer CONNECT, confirm nothing, and close with 1008 at a SUBSCRIBE to /topic/bad."""
    parser = Parser("1.2")
    for message in connection:
        for frame in parser.feed(message.encode() if isinstance(message, str) else message):
            if frame.command == "CONNECT":
                connection.send(serialize(Frame("CONNECTED", {"version": "1.2"}), "1.2"))
            elif frame.get("destination") == "/topic/bad":
                connection.close(1008, "not allowed")
                return


@pytest.mark.long
def test_a_server_that_refuses_by_a_code_ends_the_subscription_alone():
    shell = Shell("sync")  # both shells have the same engine
    with serve(converse, "127.0.0.1", 0, subprotocols=["v12.stomp"]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}/"
        client = shell.connect(url, reconnect=QUICK, heart_beat=(0, 0))
        good = client.subscribe("/topic/good", confirm=False)
        bad = client.subscribe("/topic/bad", confirm=False)
        with pytest.raises(stomp.ConnectionLostError, match=r"SUBSCRIBE to /topic/bad has ended .*1008 not allowed"):
            bad.get(patience(60))
        client.wait_connected(patience(60))
        assert good.error is None
        shell.stop()
        server.shutdown()
