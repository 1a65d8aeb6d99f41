"""Placeholder for a source that cannot be imported with the installed PySpark."""

from __future__ import annotations

from typing import Any


def stand_in(name: str, error: Exception) -> type[Any]:
    """Return a data source that can be looked up, but raises `error`, with which its import failed, when it is used.

    Raises ImportError if this PySpark has no Python data sources (before 4.0), or is not installed.
    """
    import pyspark
    from pyspark.sql.datasource import DataSource

    version = getattr(pyspark, "__version__", "without a version")
    text = (
        f'the source "{name}" cannot be used with the installed PySpark {version}: {error} '
        "(pip install 'stompcodec[spark]' brings one that fits)"
    )

    class Unsuitable(DataSource):
        def __init__(self, options: Any) -> None:
            raise ImportError(text)

    Unsuitable.name = classmethod(lambda cls: name)  # type: ignore[method-assign,assignment]
    return Unsuitable
