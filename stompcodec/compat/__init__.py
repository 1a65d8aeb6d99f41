"""Drop-in: programs written for other STOMP libraries, run on our codec unchanged.

Each module is for one library, which has to be installed beside this package:

- `stompcodec.compat.stomppy`: stomp.py; `install()`, or `Connection10/11/12` and `WSConnection`.
- `stompcodec.compat.stompman`: stompman; `install()`, or `Connection` and `WebSocketConnection`.
- `stompcodec.compat.coilmq`: coilmq; `install()`.
- `stompcodec.compat.aiostomp`: aiostomp; `install()`.

`install()` returns an object whose `undo()` gives the library back as it was. `stompcodec compat check` tells whether
what is installed here is known.
"""

__all__: list[str] = []
