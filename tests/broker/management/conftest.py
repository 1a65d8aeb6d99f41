"""Tests of management restore what orders change outside the broker."""

import logging

import pytest


@pytest.fixture(autouse=True)
def _log_levels():
    """An order may change the level of the log."""
    logs = [logging.getLogger(f"stompcodec.broker{end}") for end in ("", ".management")]
    before = [log.level for log in logs]
    yield
    for log, level in zip(logs, before, strict=True):
        log.setLevel(level)
