"""What the tests of management share: a broker without sockets that can be asked."""

import json
from typing import Any

from broker.harness import Bench, Peer

from stompcodec.broker.management.management import Management, OverStomp
from stompcodec.broker.management.schema import REQUESTS, Asker

LOCAL, ELSEWHERE = "127.0.0.1:5000", "192.0.2.7:5000"
#: Fields with which each request has a result.
FIELDS: dict[str, dict[str, str]] = {
    **{"messages": {"destination": "/queue/a"}, "purge": {"destination": "/queue/a"}},
    **{"move": {"destination": "/queue/a", "to": "/queue/b"}, "delete": {"destination": "/queue/a"}},
    **{"pause": {"destination": "/queue/a"}, "resume": {"destination": "/queue/a"}},
    **{"log-level": {"level": "warning"}, "backup": {"to": "relative"}},
}


#: The types of each kind of column.
TYPES: dict[str, Any] = {
    **{"text": (str,), "whole": (int,), "number": (int, float), "flag": (bool,), "list": (list,), "object": (dict,)}
}


class Managed(Bench):
    def __init__(self, store: Any = None, **config: Any) -> None:
        super().__init__(store, **config)
        self.management = Management(self.broker)
        self.over_stomp = OverStomp(self.management)

    def ask(self, request: str, /, **fields: Any) -> dict[str, Any]:
        """The answer to this process, after as many turns as it takes."""
        answers = self.begun(request, **fields)
        self.turn()
        assert len(answers) == 1
        check(answers[0])
        return answers[0]

    def result(self, request: str, /, **fields: Any) -> Any:
        answer = self.ask(request, **fields)
        assert "error" not in answer, answer
        if "rows" not in answer:
            return answer["result"]
        rows = answer["rows"]
        while answer["next"] is not None:
            answer = self.ask(request, **fields, page=answer["next"])
            rows += answer["rows"]
        return rows

    def fault(self, request: str, /, **fields: Any) -> str:
        answer = self.ask(request, **fields)
        assert "error" in answer, answer
        field = answer["error"]["field"]
        assert isinstance(field, str)
        return field

    def bodies(self, destination: str = "/queue/a") -> list[str]:
        return [row["body"] for row in self.result("messages", destination=destination)]

    def count(self, order: str, destination: str = "/queue/a", **fields: Any) -> int:
        found = self.result(order, destination=destination, **fields)["messages"]
        assert isinstance(found, int)
        return found

    def begun(self, request: str, **fields: Any) -> list[dict[str, Any]]:
        """Begin a request that takes some turns; its answers, once they are there."""
        answers = []
        self.management.begin(request, fields, Asker(self.broker.virtual_host("/"), "a test"), answers.append)
        return answers

    def row(self, destination: str) -> dict[str, Any]:
        (found,) = [row for row in self.result("destinations") if row["destination"] == destination]
        assert isinstance(found, dict)
        return found


def check(answer: dict[str, Any]) -> None:
    """An answer is as the schema says."""
    assert json.loads(json.dumps(answer)) == answer
    request = REQUESTS.get(answer["ask"])
    if "error" in answer:
        assert (answer.keys(), answer["error"].keys()) == ({"ask", "time", "error"}, {"field", "message"})
        return
    assert request is not None
    if request.is_list:
        assert answer.keys() == {"ask", "time", "rows", "next"}
        assert answer["next"] is None or isinstance(answer["next"], str)
    else:
        assert answer.keys() == {"ask", "time", "result"}
    for row in answer["rows"] if request.is_list else [answer["result"]]:
        assert list(row) == [column.name for column in request.columns]
        for column in request.columns:
            types = (*TYPES[column.kind.removesuffix("?")], *[type(None)] * column.kind.endswith("?"))
            assert type(row[column.name]) in types, (answer["ask"], column.name, row[column.name])


def over_stomp(peer: Peer, request: str, body: bytes | None = None, /, **fields: Any) -> dict[str, Any]:
    octets = json.dumps(fields).encode() if body is None else body
    peer.put(f"/management/{request}", octets, reply_to="/temp-queue/answers", correlation_id="7")
    message = peer.next("MESSAGE")
    assert (message.headers["correlation-id"], message.headers["content-type"]) == ("7", "application/json")
    answer = json.loads(message.body)
    check(answer)
    return answer
