"""What several tests of the codec look at."""

import pytest
from codec.samples import PAIRS, WIRE


@pytest.fixture(params=["made", "parsed"])
def frame(codec, request):
    """The same frame from both sources."""
    if request.param == "made":
        return codec.Frame("SEND", PAIRS, b"hello")
    (parsed,) = codec.Parser("1.2").feed(WIRE)
    return parsed
