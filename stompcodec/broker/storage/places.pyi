"""A look at files without `os.stat`: in the extension alone, from src/hot/places.pyx."""

__test__: dict[str, str]

def are_at(places: tuple[tuple[bytes, int, int], ...]) -> bool: ...
