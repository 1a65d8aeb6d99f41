"""The values of known headers: tables of those that are true or false, and of those that are numbers.

In our own dialect, a value that is not understood is answered by ERROR. The other dialects do what their brokers do:
they go on as if the header were missing. Then the log has one warning for each connection.
"""

from __future__ import annotations

from functools import partial

from stompcodec.broker.errors import Refused
from stompcodec.broker.message import DELAYS, LIFE_HEADERS
from stompcodec.broker.queues.subscribe_request import Odd, SubscribeRequest, read_request, read_truth
from stompcodec.broker.sessions.session import Session
from stompcodec.codec import Frame

#: Headers of SEND and NACK that are true or false, and their meaning without a value; None: the configuration says it.
#: Those of SUBSCRIBE are in `queues/subscribe_request.py`.
TRUTHS: dict[str, bool | None] = {"persistent": None, "requeue": True}
#: Headers of SEND that are whole numbers from 0 on, and the most digits. The priority has one digit.
NUMBERS: dict[str, int] = {**dict.fromkeys((*LIFE_HEADERS, *DELAYS), 15), "priority": 1}
#: Characters of a value that an ERROR shows.
_SHOWN = 40


def odd(session: Session, name: str, value: str, says: str) -> None:
    """Refuse a value of a header that is not understood, or warn of it, as the dialect asks."""
    config, shown = session.broker.config, ascii(value[:_SHOWN])
    if config.dialect == "stompcodec":
        raise Refused(f"bad {name}", f"{name} is {shown}: write {says}.")
    if not session.had_odd:
        session.had_odd = True
        session.broker.log.warning(
            "%s: the header %s is %s, and is ignored, as %s does (write %s)", session, name, shown, config.dialect, says
        )


def truth(session: Session, frame: Frame, name: str) -> bool | None:
    """Return the value of a header of `TRUTHS`; the meaning of a missing one if it is not understood."""
    text = session.header(frame, name)
    default = TRUTHS[name]
    return default if text is None else read_truth(name, text, default, _odd(session))


def check_numbers(session: Session, frame: Frame) -> None:
    """Look at the numbers of a SEND: one that is not understood has no effect later on, or is refused here."""
    for name, most in NUMBERS.items():
        text = session.header(frame, name)
        if text is not None and not (text.isascii() and text.isdigit() and len(text) <= most):
            says = "a digit, 0 to 9" if most == 1 else f"a whole number of milliseconds, of at most {most} digits"
            odd(session, name, text, says)


def request_of(session: Session, frame: Frame) -> SubscribeRequest:
    """Read a SUBSCRIBE or RECEIVE, or raise Refused if a header has an invalid value."""
    return read_request(frame, session.exact, session.broker.config, _odd(session))


def _odd(session: Session) -> Odd:
    return partial(odd, session)
