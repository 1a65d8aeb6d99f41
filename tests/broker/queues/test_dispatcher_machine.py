"""The dispatcher under any order of events, by the machine of dispatching.py."""

import pytest
from broker.dispatching import DispatcherMachine
from hypothesis import settings
from profiles import examples

pytest.importorskip("lark")

DispatcherMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestDispatcher = DispatcherMachine.TestCase
