"""READY in order, against a list that is sorted each time."""

from hypothesis import given
from hypothesis import strategies as st

from stompcodec.broker.backlog import START, Backlog, Fifo
from stompcodec.broker.message import Message

MESSAGES = st.tuples(st.integers(0, 60), st.sampled_from([4, 4, 4, 0, 9])).map(
    lambda pair: Message(b"m", pair[0], "/queue/a", b"\n\0", priority=pair[1])
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), MESSAGES),
        st.tuples(st.just("put_back"), st.lists(MESSAGES, max_size=40)),
        st.tuples(st.just("remove"), st.integers(0, 100)),
        st.tuples(st.just("popleft"), st.none()),
        st.tuples(st.just("take_out"), st.integers(2, 5)),
    ),
    max_size=30,
)


@given(steps=STEPS, ranked=st.booleans(), start=st.lists(MESSAGES, max_size=20, unique_by=lambda message: message.seq))
def test_a_backlog_is_a_sorted_list(steps, ranked, start):
    backlog, model = Backlog(start, ranked), {message.seq: message for message in start}

    def expected():
        return sorted(model.values(), key=lambda message: (-message.priority if ranked else 0, message.seq))

    for step, value in steps:
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
            message = expected()[value % len(model)]
            assert backlog.remove(message) is message
            assert backlog.remove(message) is None
            del model[message.seq]
        elif step == "popleft" and model:
            message = backlog.popleft()
            assert message is expected()[0]
            del model[message.seq]
        elif step == "take_out":
            gone = backlog.take_out(lambda message, value=value: message.seq % value == 0)
            assert gone == [message for message in expected() if message.seq % value == 0]
            for message in gone:
                del model[message.seq]
        order = expected()
        assert list(backlog) == order
        assert len(backlog) == len(order)
        assert backlog.last_seq == max(model, default=None)
        places = [START, *map(backlog.place, order)]
        assert [backlog.after(place) for place in places] == [*order, None]
        for message in order:
            assert backlog.at(backlog.place(message)) is message
        seqs = sorted(model)
        assert [backlog.after_seq(seq) for seq in [-1, *seqs]] == [*(model[seq] for seq in seqs), None]


@given(st.lists(st.integers(0, 200), max_size=200))
def test_places_of_what_is_gone_are_not_kept(gone):
    backlog = Backlog(Message(b"m", seq, "/queue/a", b"\n\0") for seq in range(200))
    for seq in gone:
        backlog.remove(Message(b"m", seq, "/queue/a", b"\n\0"))
        level = next(iter(backlog._levels.values()))
        assert len(level.seqs) <= 2 * len(backlog) + 65


@given(st.lists(st.integers(0, 50), unique=True), st.integers(0, 50))
def test_what_comes_back_into_a_line(seqs, cut):
    messages = [Message(b"m", seq, "/queue/a", b"\n\0") for seq in seqs]
    line = Fifo(sorted((m for m in messages if m.seq >= cut), key=lambda message: message.seq))
    line.put_back([message for message in messages if message.seq < cut])
    assert [message.seq for message in line] == sorted(seqs)
