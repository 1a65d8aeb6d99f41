"""The broker, its store, its clients, a disk and a network in one process, under one seed and one simulated clock.
`world.py` runs a plan and says what broke; `plan.py` makes one from a seed; `disk.py` and `vfs.py` are the disk below
SQLite, `network.py` the wires, `host.py` the machine that the broker runs on; `clients.py` the peers;
`watcher.py` sees every frame, and `rules.py` says what the broker owes; `shrink.py` makes a failing plan small, and
`planted.py` breaks the broker on purpose. `scripts/simulate.py` runs many seeds."""
