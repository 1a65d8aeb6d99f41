"""Makes a failing plan small: what can be left out while it still fails in the same way is left out."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from simulation.plan import Plan
from simulation.world import run


def shrink(plan: Plan, kind: str, most: int = 600) -> tuple[Plan, int]:
    """The smallest plan that was found, and how many were run."""
    count, again = 0, True
    while again:
        again = False
        for smaller in _smaller(plan):
            if count >= most:
                return plan, count
            count += 1
            if run(smaller).kind == kind:
                plan, again = smaller, True
                break
    return plan, count


def _without(values: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with less in them, the boldest first."""
    steps = plan.steps
    size = len(steps) // 2
    while size:
        for at in range(0, len(steps), size):
            yield replace(plan, steps=steps[:at] + steps[at + size :])
        size //= 2
    for name in plan.clients:
        others = tuple(step for step in steps if name not in (step.who, step.args.get("client")))
        yield replace(plan, clients=_without(plan.clients, name), steps=others)
    if plan.pair:
        yield replace(plan, pair=False)
    for key in plan.config:
        yield replace(plan, config=_without(plan.config, key))
    for name, spec in plan.clients.items():
        held = spec["subscriptions"]
        less = [{"subscriptions": held[:number] + held[number + 1 :]} for number in range(len(held))]
        for change in [*less, *({key: 0.0} for key in ("hold", "nack", "delay", "move") if spec.get(key))]:
            yield replace(plan, clients={**plan.clients, name: {**spec, **change}})
    for at, step in enumerate(steps):
        args, headers = step.args, step.args.get("headers", {})
        smaller = [{"headers": _without(headers, key)} for key in headers if key not in ("color", "n")]
        if args.get("count", 1) > 1 and step.who != "world":
            smaller.append({"count": args["count"] // 2})
        for change in smaller:
            yield replace(plan, steps=(*steps[:at], replace(step, args={**args, **change}), *steps[at + 1 :]))
    for key, value in plan.settings.items():
        if key != "faults" and value:
            yield replace(plan, settings={**plan.settings, key: 0.0})
