"""Render the conda recipe, and check that it asks for what pyproject.toml asks for.

It needs py-rattler-build of the extra release, and no channel: nothing is solved or built.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import repository
import requirements

RECIPE = Path(__file__).resolve().parents[1] / "deploy" / "conda" / "recipe.yaml"
#: Extras whose packages the conda package brings along.
EXTRAS = ["cli", "broker"]
#: What a channel would set.
VARIANT = {"c_compiler": ["gcc"], "c_stdlib": ["sysroot"], "python": ["3.13.*"]}


def wanted() -> set[str]:
    """Return the requirements of the extras as conda writes them, but those of an older Python."""
    kept = [line for line in requirements.of(EXTRAS) if "python_version <" not in line]
    return {re.sub(r"(?=[<>=!~])", " ", line.partition(";")[0].strip(), count=1) for line in kept}


def main() -> int:
    import rattler_build

    recipe = rattler_build.Stage0Recipe.from_file(RECIPE)
    (rendered,) = recipe.render(rattler_build.VariantConfig(VARIANT))
    table = rendered.recipe.to_dict()
    asked = set(map(str, table["requirements"]["run"])) - {"python"}
    wrong = []
    if table["package"]["version"] != repository.version():
        wrong.append(f"its version is {table['package']['version']}: run python scripts/repository.py")
    if asked != wanted():
        wrong.append(f"it should require {sorted(wanted())}, and requires {sorted(asked)}")
    for line in wrong:
        print(f"{RECIPE.relative_to(RECIPE.parents[2])}: {line}")
    if not wrong:
        print(f"{RECIPE.relative_to(RECIPE.parents[2])}: rendered, {len(asked)} requirements as in pyproject.toml")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
