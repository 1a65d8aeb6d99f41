"""Take from Python what it does not have on Windows, import every module of the package, and use it. Run by
tests/packaging/test_windows.py.

    windows.py {list,use,run} FOLDER

`list` prints the modules of others that the package imports. The other two read it and import these first, as they are
on this system. `run` runs the code that follows the list behind a NUL. What stays as it is here: paths, the C backend,
and the answers of the operating system.
"""

import asyncio
import builtins
import contextlib
import errno
import fcntl
import importlib
import io
import os
import pkgutil
import re
import runpy
import select
import selectors
import shutil
import signal
import socket
import stat
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

MISSING_MODULES = ("fcntl", "grp", "pwd", "pty", "resource", "spwd", "syslog", "termios", "tty")
MISSING_FROM_OS = re.compile(
    r"fork|forkpty|chown|fchown|lchown|fchmod|fchdir|fdatasync|getuid|geteuid|getgid|getegid|getgroups|getlogin_r|killpg"
    r"|getpgid|getpgrp|getpriority|getsid|set\w*id|setpriority|mkfifo|mknod|nice|openpty|posix_\w+|pread|preadv|pwrite"
    r"|pwritev|readv|writev|sched_\w+|sendfile|statvfs|fstatvfs|sync|uname|wait|wait3|wait4|waitid|lockf|pipe2|chroot"
    r"|register_at_fork|getloadavg|sysconf|pathconf|confstr|ctermid|memfd_create|pidfd_open|eventfd\w*|splice|O_NOFOLLOW"
    r"|O_DIRECTORY|O_NONBLOCK|O_CLOEXEC|O_SYNC|O_DSYNC|O_ASYNC|O_NOCTTY|O_PATH|O_TMPFILE|WNOHANG|WIF\w+|WEX\w+|WTERMSIG"
)
SIGNALS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN"}
MISSING_FROM_SIGNAL = ("alarm", "getitimer", "pause", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait")
NOT_IN_A_NAME = re.compile(r'[<>:"|?*\x00-\x1f]|[ .]\Z')


class Missing:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in MISSING_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def take_modules() -> None:
    flock, exclusive_at_once = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB
    for name in MISSING_MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Missing())  # type: ignore[arg-type]

    def locking(file: int, mode: int, octets: int) -> None:
        flock(file, exclusive_at_once)

    fake = types.ModuleType("msvcrt")
    fake.locking, fake.LK_NBLCK = locking, 2  # type: ignore[attr-defined]
    sys.modules["msvcrt"] = fake


def take_names() -> None:
    statvfs = os.statvfs

    def disk_usage(path: Any) -> Any:
        found = statvfs(path)
        blocks = (found.f_blocks, found.f_blocks - found.f_bfree, found.f_bavail)
        return shutil._ntuple_diskusage(*(number * found.f_frsize for number in blocks))  # type: ignore[attr-defined]

    shutil.disk_usage = disk_usage
    for name in [name for name in vars(os) if MISSING_FROM_OS.fullmatch(name)]:
        delattr(os, name)
    for name in [name for name in vars(signal) if name.startswith("SIG") and name.isupper() and name not in SIGNALS]:
        delattr(signal, name)
    for name in MISSING_FROM_SIGNAL:
        delattr(signal, name)
    for name in ("AF_UNIX", "SO_REUSEPORT", "MSG_DONTWAIT", "MSG_NOSIGNAL"):
        delattr(socket, name)
    for name in ("epoll", "poll"):
        delattr(select, name)
    for name in ("EpollSelector", "PollSelector"):
        delattr(selectors, name)
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc]
    os.supports_dir_fd = os.supports_fd = set()
    shutil._use_fd_functions = False  # type: ignore[attr-defined]


def _refused(name: str) -> Callable[..., None]:
    def refuse(*_args: object, **_named: object) -> None:
        raise NotImplementedError(name)

    return refuse


def change_sockets() -> None:
    """Sockets alone can be selected, pairs are made by TCP, and event loops have neither readers nor signals."""
    real = select.select

    def selecting(r: Any, w: Any, x: Any, timeout: float | None = None) -> Any:
        files = [each if isinstance(each, int) else each.fileno() for each in [*r, *w, *x]]
        if not files:
            raise OSError(10022, "An invalid argument was supplied")
        if not all(stat.S_ISSOCK(os.fstat(each).st_mode) for each in files):
            raise OSError(10038, "An operation was attempted on something that is not a socket")
        return real(r, w, x, timeout)

    def pair() -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            return socket.create_connection(server.getsockname()), server.accept()[0]

    select.select = selecting  # type: ignore[assignment]
    socket.socketpair = pair  # type: ignore[assignment]
    loop = asyncio.SelectorEventLoop
    for name in ("add_reader", "remove_reader", "add_writer", "remove_writer", "add_signal_handler"):
        setattr(loop, name, _refused(name))


def change_files() -> None:
    """A file that this process has open cannot be removed or renamed, some names cannot be, folders are not opened."""

    def with_rules(function: Callable[..., Any], removes: int = 0) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if any(value is not None for name, value in named.items() if name.endswith("dir_fd")):
                raise NotImplementedError("dir_fd unavailable on this platform")
            for path in args[:removes]:
                if _held(path):
                    raise PermissionError(errno.EACCES, "[WinError 32] another process uses the file", str(path))
            for path in args[: removes or 1]:
                if isinstance(path, str | os.PathLike) and NOT_IN_A_NAME.search(os.path.basename(os.fspath(path))):
                    raise OSError(errno.EINVAL, "Invalid argument", str(path))
            return function(*args, **named)

        return call

    opening = os.open

    def open_file(path: Any, flags: int, *args: Any, **named: Any) -> int:
        if not isinstance(path, int) and os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opening(path, flags, *args, **named)

    seek = os.lseek
    # NTFS knows larger offsets than file systems here.
    os.lseek = lambda file, at, how: at if at > 2**60 else seek(file, at, how)
    os.O_BINARY = 0  # type: ignore[attr-defined]
    os.open = with_rules(open_file)
    os.mkdir = with_rules(os.mkdir)
    os.unlink = os.remove = with_rules(os.unlink, 1)
    os.rename = _without_overwriting(with_rules(os.rename, 2))
    os.replace = with_rules(os.replace, 2)
    builtins.open = io.open = with_rules(io.open)


def _without_overwriting(rename: Callable[..., Any]) -> Callable[..., Any]:
    def call(source: Any, target: Any, **named: Any) -> Any:
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, "[WinError 183] the file exists already", str(target))
        return rename(source, target, **named)

    return call


def _held(path: Any) -> bool:
    try:
        wanted = os.stat(path)[1:3]
    except OSError:
        return False
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.fstat(int(name))[1:3] == wanted:
                return True
        except OSError:
            continue
    return False


def simulate(names: str) -> None:
    for name in names.split():
        with contextlib.suppress(ImportError):  # Cython's runtime is none that can be imported
            importlib.import_module(name)
    take_names()
    take_modules()
    change_sockets()
    change_files()
    Path.__new__.__globals__["WindowsPath"] = type(Path())  # os.name decides which kind of path is made
    os.name, sys.platform = "nt", "win32"
    warnings.filterwarnings("error", category=EncodingWarning)  # cp1252 would be taken there, for one


def modules() -> list[str]:
    package = importlib.import_module("stompcodec")
    found = [each.name for each in pkgutil.walk_packages(package.__path__, "stompcodec.")]
    return [name for name in found if not name.endswith("__main__")]


def import_all() -> list[str]:
    """Import every module, but those whose extra is not installed, and return the names of the latter."""
    left = []
    for name in modules():
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing = (error.name or "").partition(".")[0]
            if missing in MISSING_MODULES or missing in ("", "stompcodec"):
                raise
            left.append(name)
    return left


def main(what: str, folder: Path) -> None:
    if what == "list":
        import_all()
        print(*(name for name in sys.modules if name != "__main__" and not name.startswith("stompcodec")))
    else:
        names, _, code = sys.stdin.read().partition("\0")
        simulate(names)
        if what == "run":
            exec(code, {})
        else:
            print("left out:", *import_all())
            runpy.run_path(str(Path(__file__).with_name("everywhere.py")))["main"](folder)
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
