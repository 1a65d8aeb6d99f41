"""Folders of the broker at its start: killed at any moment, and such that cannot be used."""

import logging
import os
import random
import sys
from contextlib import suppress

import pytest
from broker.folders import put_file, start, stop, tree
from broker.harness import Bench
from broker.storage.storing import BIG, change, message, put

from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError

pytestmark = pytest.mark.long


# ---- killed at any moment ----


def kill_at(number):
    """End this process at its n-th operation on files."""
    left = number

    def count():
        nonlocal left
        left -= 1
        if left < 0:
            os._exit(9)

    def counted(function):
        def call(*args, **options):
            count()
            return function(*args, **options)

        return call

    for name in ("write", "pwrite", "fsync", "ftruncate", "close"):
        setattr(os, name, counted(getattr(os, name)))
    watched = {"open", "os.mkdir", "os.chmod", "os.chown", "os.remove", "os.rmdir", "os.rename", "os.link"}

    def hook(event, _args):
        if event in watched or event.startswith("sqlite3.connect"):
            count()

    sys.addaudithook(hook)


def killed_start(data, number, **config):
    """Start a broker that is killed at its n-th operation; whether it got so far."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            kill_at(number)
            start(data, **config)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 9), "it was refused"
    return os.waitstatus_to_exitcode(status) == 9


def empty(folder):
    return folder / "data"


def with_foreign(folder):
    """Files of others, where ours do not go."""
    data = folder / "data"
    (data / "lost+found").mkdir(parents=True)
    put_file(data / "orders.csv")
    (data / "bodies" / "lost+found").mkdir(parents=True)
    return data


@pytest.mark.no_asan  # its allocator hangs in a child that was forked beside threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("make", [empty, with_foreign])
def test_killed_while_it_starts(make, tmp_path):
    """At each operation on files, and again at one: the next one starts, and nothing of others or stored is gone."""
    rnd = random.Random(7)
    number, going = 0, True
    while going:
        data = make(tmp_path / f"{number}")
        foreign = dict(foreign_of(data))
        config = {"large_folder": str(tmp_path / f"{number}" / "large")} if make is empty else {}
        going = killed_start(data, number, **config)
        if number % 4 == 0:
            killed_start(data, rnd.randrange(number + 1), **config)
        bench = start(data, **config)
        stop(bench)
        assert (data / "stompcodec-folder").read_bytes() == b"stompcodec data 1\n"
        assert dict(foreign_of(data)) == foreign
        number += 1
    assert number > (25 if make is empty else 15), "this many operations make a start"


def foreign_of(data):
    for name, value in tree(data).items() if data.exists() else ():
        if "orders" in name or "lost+found" in name:
            yield name, value


# ---- folders that cannot be used ----


def test_a_folder_that_is_a_file(tmp_path):
    put_file(tmp_path / "data")
    with pytest.raises(StoreError, match=r"cannot be used.*name another one"):
        SqliteStore(tmp_path / "data")
    with pytest.raises(StoreError, match="cannot be used"):
        Bench(large_folder=str(tmp_path / "data"))
    assert tree(tmp_path) == {"data": b"mine"}


def test_names_in_the_database_lead_nowhere_else(tmp_path, caplog):
    """A row that was tampered with names a file outside: it is neither read nor removed."""
    store = SqliteStore(tmp_path / "data")
    put(store, message(1, BIG))
    store.close()
    (name,) = os.listdir(tmp_path / "data" / "bodies")
    os.rename(tmp_path / "data" / "bodies" / name, tmp_path / name)
    change(tmp_path / "data", f"UPDATE body SET file = '../../{name}'")
    store = SqliteStore(tmp_path / "data")
    with caplog.at_level(logging.ERROR):
        assert list(store.load()) == []
    with suppress(StoreError):
        store.commit()
    store.close()
    assert (tmp_path / name).exists()
