"""Which tests one process runs together, and which come first, where pytest-xdist shares them among several. The groups
of `--dist loadgroup` do nothing under pytest 9.2 (pytest-xdist 3.8 renames tests to make them), and whole files are
pieces too large to end at the same time. So `make_scheduler` hands out pieces of files, but for the few files where
starting over costs more than waiting: they stay whole, and begin first. It takes effect with `-n 4` alone; another
`--dist` than the default is left as it is."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest
    from xdist.workermanage import WorkerController
__all__ = ["SPARK", "file_of", "make_scheduler", "unit_of", "units", "worth_first"]
#: The tests of these files share one session of Spark, which takes seconds, and a gigabyte.
SPARK = tuple(
    f"spark/{name}.py"
    for name in (
        *("jobs/test_jobs", "live/test_live", "reading/test_file", "report/test_report", "sink/test_sink"),
        *("test_functions", "test_tutorial"),
    )
)
#: What these files set up for all of their tests takes longer than a piece of their tests.
WHOLE = ("broker/test_scenarios.py", "native/test_native.py")
#: Files of a few CPU seconds, most of them with processes of their own: they begin before the short tests, so that none
#: of them is the last to end.
LONG = tuple(
    f"{name}.py"
    for name in (
        *("crash/test_crash", "broker/test_state_machine", "broker/queues/test_dispatcher"),
        *("broker/routing/test_idempotency", "broker/management/test_machine", "codec/test_state_machine"),
        *("simulation/test_simulation", "broker/storage/test_folders", "broker/web/test_page"),
        *("broker/test_hostile", "broker/storage/test_sqlite_faults", "broker/storage/test_space"),
        *("broker/queues/test_slices", "broker/sessions/test_subscription_cost", "broker/sessions/test_plain_road"),
        *("broker/routing/test_fan_out", "bridge/test_carrying", "cli/verbs/test_queue_tools"),
        *("cli/verbs/test_top", "cli/verbs/test_record", "cli/verbs/test_broker", "cli/verbs/test_sub"),
        *("cli/test_process", "client/test_recorder", "client/test_parts", "client/test_reconnecting"),
        *("codec/test_isolated", "codec/test_properties", "codec/test_columns", "testing/test_plugin"),
        *("broker/test_garbage", "test_suite"),
    )
)
#: Tests of a piece.
_PIECE = 20


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0].rpartition("tests/")[2]


def unit_of(nodeid: str) -> str:
    """Return what a test is run together with: all of Spark, its file, or "" for a piece of its file."""
    file = file_of(nodeid)
    if file in SPARK:
        return "spark"
    return file if file in WHOLE else ""


def worth_first(nodeid: str) -> int:
    """Return the place of a test in the order: what takes long and cannot be shared begins first."""
    file = file_of(nodeid)
    if file in SPARK:
        return 0
    order = (*WHOLE, *LONG)
    return 1 + (order.index(file) if file in order else len(order))


def units(nodeids: Sequence[str]) -> dict[str, str]:
    """Return test -> unit, for tests in their order."""
    found = {}
    for run, (_, tests) in enumerate(itertools.groupby(nodeids, key=lambda nodeid: nodeid.partition("::")[0])):
        for number, nodeid in enumerate(tests):
            found[nodeid] = unit_of(nodeid) or f"{run}.{number // _PIECE}"
    return found


def make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler of pytest-xdist that hands out units."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # else units with few tests come last, as long as they may take

    class Units(LoadScopeScheduling):
        def schedule(self) -> None:
            if self.collection is None:
                nodeids = next(iter(self.registered_collections.values()))
                self._units = units(nodeids)
                self._places = {nodeid: place for place, nodeid in enumerate(nodeids)}
            super().schedule()

        def _split_scope(self, nodeid: str) -> str:
            return self._units[nodeid]

        def _assign_work_unit(self, node: WorkerController) -> None:
            # As it is there, without looking each test up in a list of all.
            name, unit = self.workqueue.popitem(last=False)
            self.assigned_work[node][name] = unit
            node.send_runtest_some([self._places[nodeid] for nodeid, done in unit.items() if not done])

        def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
            name = self._units[self.registered_collections[node][item_index]]
            super().mark_test_complete(node, item_index, duration)
            if all(self.assigned_work[node][name].values()):
                del self.assigned_work[node][name]

    return Units(config, log)
