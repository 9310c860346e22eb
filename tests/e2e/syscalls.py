"""Run a program and kill it at the n-th system call that changes a given folder.

On-disk state changes only at such calls, so killing at the entry of each one visits every state that a crash can leave.
Linux only: a seccomp filter stops the traced processes at writing calls, ptrace says which, and SIGKILL goes to the process
that made the n-th. Threads and child processes are followed; killing a worker leaves its driver running, as in life.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

_TRACEME, _CONT, _SETOPTIONS, _GETREGSET = 0, 7, 0x4200, 0x4204
_O_FORK, _O_VFORK, _O_CLONE, _O_EXEC, _O_SECCOMP, _O_EXITKILL = 2, 4, 8, 16, 128, 1 << 20
_OPTIONS = _O_FORK | _O_VFORK | _O_CLONE | _O_EXEC | _O_SECCOMP | _O_EXITKILL
_EVENT_SECCOMP = 7
_WALL = 0x40000000
_O_WRITING = os.O_CREAT | os.O_TRUNC

# name: (x86_64 number, aarch64 number, which argument is the descriptor or None, which is the path or None)
_CALLS: dict[str, tuple[int | None, int | None, int | None, int | None]] = {
    "write": (1, 64, 0, None),
    "pwrite64": (18, 68, 0, None),
    "writev": (20, 66, 0, None),
    "fsync": (74, 82, 0, None),
    "fdatasync": (75, 83, 0, None),
    "ftruncate": (77, 46, 0, None),
    "open": (2, None, None, 0),
    "openat": (257, 56, None, 1),
    "rename": (82, None, None, 1),
    "renameat": (264, 38, None, 3),
    "renameat2": (316, 276, None, 3),
    "link": (86, None, None, 1),
    "linkat": (265, 37, None, 3),
    "unlink": (87, None, None, 0),
    "unlinkat": (263, 35, None, 1),
    "mkdir": (83, None, None, 0),
    "mkdirat": (258, 34, None, 1),
    "rmdir": (84, None, None, 0),
    "copy_file_range": (326, 285, 2, None),
    "sendfile": (40, 71, 0, None),
}
_X86 = platform.machine() == "x86_64"
_BY_NUMBER = {
    (c[0] if _X86 else c[1]): (name, c[2], c[3]) for name, c in _CALLS.items() if (c[0] if _X86 else c[1]) is not None
}


@dataclass
class Trace:
    """What a traced run did.

    ``calls`` are (call, path relative to the folder) in order; ``killed`` is the pid that was killed, or None; ``status``
    the exit status of the program, negative for a signal.
    """

    calls: list[tuple[str, str]] = field(default_factory=list)
    killed: int | None = None
    status: int = 0


def supported() -> bool:
    """Whether this machine can trace."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")


def _filter() -> ctypes.Array[ctypes.c_char]:
    numbers = sorted(_BY_NUMBER)
    program = [struct.pack("HBBI", 0x20, 0, 0, 0)]  # load the call's number
    for i, number in enumerate(numbers):
        program.append(struct.pack("HBBI", 0x15, len(numbers) - i, 0, number))
    program.append(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))  # allow
    program.append(struct.pack("HBBI", 0x06, 0, 0, 0x7FF00000))  # stop for the tracer
    return ctypes.create_string_buffer(b"".join(program))


def _child(argv: Sequence[str], env: dict[str, str], cwd: str, output: int) -> None:
    os.chdir(cwd)
    os.dup2(output, 1)
    os.dup2(output, 2)
    body = _filter()
    header = struct.pack("HxxxxxxP", (len(body) - 1) // 8, ctypes.addressof(body))
    buffer = ctypes.create_string_buffer(header)
    _libc.ptrace(_TRACEME, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    if _libc.prctl(38, 1, 0, 0, 0) or _libc.prctl(22, 2, buffer, 0, 0):
        os._exit(126)
    os.execvpe(argv[0], list(argv), env)


def run(
    argv: Sequence[str], folder: str, *, env: dict[str, str], cwd: str, kill_at: int | None = None, log: str = os.devnull
) -> Trace:
    """Run to the end, or kill at the entry of the ``kill_at``-th changing call (counted from 0) below ``folder``.

    The tracer is a process of its own: it waits for whatever child stops, and may not take other children's ends.
    """
    job = json.dumps({"argv": list(argv), "folder": folder, "env": env, "cwd": cwd, "kill_at": kill_at, "log": log})
    done = subprocess.run([sys.executable, __file__], input=job, capture_output=True, text=True, timeout=600, check=True)
    found = json.loads(done.stdout)
    return Trace([(call, path) for call, path in found["calls"]], found["killed"], found["status"])


def _trace(argv: Sequence[str], folder: str, env: dict[str, str], cwd: str, kill_at: int | None, log: str) -> Trace:
    folder = os.path.realpath(folder)
    trace = Trace()
    with open(log, "ab") as output:
        pid = os.fork()
        if pid == 0:
            try:
                _child(argv, env, cwd, output.fileno())
            finally:
                os._exit(127)
    os.waitpid(pid, 0)
    _libc.ptrace(_SETOPTIONS, pid, None, _OPTIONS)
    _libc.ptrace(_CONT, pid, None, None)
    while True:
        try:
            tid, status = os.waitpid(-1, _WALL)
        except ChildProcessError:
            return trace
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if tid == pid:
                trace.status = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            continue
        pass_on = 0
        if status >> 8 == (signal.SIGTRAP | _EVENT_SECCOMP << 8):
            call = _describe(tid, folder)
            if call is not None:
                if trace.killed is None and kill_at == len(trace.calls):
                    trace.killed = _process_of(tid)
                    os.kill(trace.killed, signal.SIGKILL)
                trace.calls.append(call)
        elif status >> 16 == 0:
            stop = os.WSTOPSIG(status)
            pass_on = 0 if stop in (signal.SIGTRAP, signal.SIGSTOP) else stop
        _libc.ptrace(_CONT, tid, None, pass_on)


def _process_of(tid: int) -> int:
    with open(f"/proc/{tid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Tgid:"))


def _describe(tid: int, folder: str) -> tuple[str, str] | None:
    """The call's name and path, where it may change something below the folder."""
    number, args = _registers(tid)
    name, fd_at, path_at = _BY_NUMBER[number]
    try:
        if fd_at is not None:
            path = os.readlink(f"/proc/{tid}/fd/{args[fd_at]}")
        else:
            if name in ("open", "openat") and not args[1 if name == "open" else 2] & (_O_WRITING | os.O_WRONLY | os.O_RDWR):
                return None
            path = _text(tid, args[path_at or 0])
            if not path.startswith("/"):
                path = os.path.join(os.readlink(f"/proc/{tid}/cwd"), path)
    except OSError:
        return None
    path = os.path.normpath(path)
    return (name, os.path.relpath(path, folder)) if path.startswith(folder + "/") else None


def _registers(tid: int) -> tuple[int, list[int]]:
    buffer = ctypes.create_string_buffer(512)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 512)
    _libc.ptrace(_GETREGSET, tid, ctypes.c_void_p(1), ctypes.cast(vector, ctypes.c_void_p))
    words = struct.unpack("27Q", buffer.raw[: 27 * 8])
    if _X86:  # order of struct user_regs_struct
        return words[15], [words[i] & 0xFFFFFFFFFFFFFFFF for i in (14, 13, 12, 7, 9, 8)]
    return words[8], list(words[:6])


def _text(tid: int, address: int) -> str:
    with open(f"/proc/{tid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        raw = b""
        while b"\0" not in raw and len(raw) < 4096:
            raw += memory.read(min(256, 4096 - address % 4096 or 4096))
            memory.seek(address + len(raw))
    return os.fsdecode(raw.split(b"\0")[0])


if __name__ == "__main__":
    result = _trace(**json.load(sys.stdin))
    json.dump({"calls": result.calls, "killed": result.killed, "status": result.status}, sys.stdout)
