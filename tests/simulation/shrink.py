"""Makes a failing plan small: what can be left out while it still fails in the same way is left out."""

from collections.abc import Iterator
from dataclasses import replace

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


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with less in them, the boldest first."""
    steps = plan.steps
    size = len(steps) // 2
    while size:
        for at in range(0, len(steps), size):
            yield replace(plan, steps=steps[:at] + steps[at + size :])
        size //= 2
    for name in plan.clients:
        left = {other: spec for other, spec in plan.clients.items() if other != name}
        yield replace(
            plan,
            clients=left,
            steps=tuple(step for step in steps if step.who != name and step.args.get("client") != name),
        )
    if plan.pair:
        yield replace(plan, pair=False)
    for key in plan.config:
        yield replace(plan, config={other: value for other, value in plan.config.items() if other != key})
    for name, spec in plan.clients.items():
        for number in range(len(spec["subscriptions"])):
            left_over = spec["subscriptions"][:number] + spec["subscriptions"][number + 1 :]
            yield replace(plan, clients={**plan.clients, name: {**spec, "subscriptions": left_over}})
        for key, plain in (("hold", 0.0), ("nack", 0.0), ("delay", 0.0), ("move", 0.0)):
            if spec.get(key):
                yield replace(plan, clients={**plan.clients, name: {**spec, key: plain}})
    for at, step in enumerate(steps):
        if step.args.get("count", 1) > 1 and step.who != "world":
            fewer = replace(step, args={**step.args, "count": step.args["count"] // 2})
            yield replace(plan, steps=(*steps[:at], fewer, *steps[at + 1 :]))
        headers = step.args.get("headers", {})
        for key in headers:
            if key not in ("color", "n"):
                less = {name: value for name, value in headers.items() if name != key}
                yield replace(
                    plan, steps=(*steps[:at], replace(step, args={**step.args, "headers": less}), *steps[at + 1 :])
                )
    for key, value in plan.settings.items():
        if key != "faults" and value:
            yield replace(plan, settings={**plan.settings, key: 0.0})
