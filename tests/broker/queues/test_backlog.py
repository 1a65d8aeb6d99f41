"""READY in order, against a list that is sorted each time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.broker.message import Message
from stompcodec.broker.queues import backlog as backlog_module
from stompcodec.broker.queues.backlog import START, Backlog, Fifo

MESSAGES = st.tuples(st.integers(0, 60), st.sampled_from([4, 4, 4, 0, 9])).map(
    lambda pair: Message(b"m", pair[0], "/queue/a", b"\n\0", priority=pair[1])
)
SEQS = st.integers(-1, 61)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), MESSAGES),
        st.tuples(st.just("put_back"), st.lists(MESSAGES, max_size=40)),
        st.tuples(st.just("remove"), st.integers(0, 100)),
        st.tuples(st.just("popleft"), st.none()),
        st.tuples(st.just("take_out"), st.integers(2, 5)),
        st.tuples(st.just("take_seqs"), st.sets(SEQS, max_size=20)),
        st.tuples(st.just("after"), SEQS),
        st.tuples(st.just("at"), SEQS),
    ),
    max_size=30,
)


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog_module, "_BLOCK", 3)
        patch.setattr(backlog_module, "_NEAR", 2)
        yield


@given(
    steps=STEPS,
    ranked=st.booleans(),
    start=st.lists(MESSAGES, max_size=20, unique_by=lambda message: message.seq),
    line=st.booleans(),
    looking=st.booleans(),
)
def test_a_backlog_is_a_sorted_list(steps, ranked, start, line, looking):
    """Made of a line or of messages in any order; looked at after each step, which cuts the line, or by steps alone."""
    if line:
        start = sorted((m for m in start if m.priority == 4 or not ranked), key=lambda message: message.seq)
    backlog, model = Backlog(Fifo(start) if line else start, ranked), {message.seq: message for message in start}

    def order_of():
        return sorted(model.values(), key=lambda message: (-message.priority if ranked else 0, message.seq))

    for step, value in steps:
        change(step, value, backlog, model, order_of())
        order, seqs = order_of(), sorted(model)
        assert (len(backlog), backlog.last_seq) == (len(order), max(model, default=None))
        if looking:
            assert list(backlog) == order
            places = [START, *map(backlog.place, order)]
            assert [backlog.after(place) for place in places] == [*order, None]
            assert [backlog.at(place) for place in places[1:]] == order
            assert [backlog.after_seq(seq) for seq in [-1, *seqs]] == [*(model[seq] for seq in seqs), None]
    assert list(backlog) == order_of()
    assert [backlog.popleft() for _ in range(len(backlog))] == order_of()


def change(step, value, backlog, model, order):
    if step in ("append", "put_back"):
        new = {message.seq: message for message in ([value] if step == "append" else value)}
        new = {seq: message for seq, message in new.items() if seq not in model}
        if step == "append":
            for message in new.values():
                backlog.append(message)
        else:
            backlog.put_back(list(new.values()))
        model.update(new)
    elif step == "remove" and model:
        message = order[value % len(model)]
        assert backlog.remove(message) is message
        assert backlog.remove(message) is None
        del model[message.seq]
    elif step == "popleft" and model:
        message = backlog.popleft()
        assert message is order[0]
        del model[message.seq]
    elif step in ("take_out", "take_seqs"):
        leaving = {seq for seq in model if seq % value == 0} if step == "take_out" else value
        gone = backlog.take_seqs(value) if step == "take_seqs" else backlog.take_out(lambda m: m.seq in leaving)
        assert gone == [message for message in order if message.seq in leaving]
        for message in gone:
            del model[message.seq]
    elif step == "after":
        behind = sorted(seq for seq in model if seq > value)
        assert backlog.after_seq(value) is (model[behind[0]] if behind else None)
    elif step == "at":
        message = model.get(value)
        assert backlog.at((5 if backlog.ranked else 0, value)) is (
            message if message is not None and (message.priority == 4 or not backlog.ranked) else None
        )
