"""The pages of the docs site: what `scripts/build_site.py` gives to Zensical, and what it checks of the result.

`staging` copies the Markdown of the tree, `api`, `commands` and `tables` write the reference from the code, `built`
reads the finished site.
"""


def pages() -> dict[str, str]:
    """Return the texts of all pages that are written from the code, by their names on the site."""
    from sitepages import api, commands, tables

    return {**api.pages(), **commands.pages(), **tables.pages()}
