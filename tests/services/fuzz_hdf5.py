"""Damage HDF5 files at random and scan each in a child process of bounded time and memory.

usage: python fuzz_hdf5.py SEED COUNT FOLDER    (FOLDER holds sound files, and gets a folder "damaged")

Prints JSON: how often each outcome came, and the kept files of those that must not be: ``bug`` (any other exception than
drystone's own), ``hang`` (more than 20 s). ``crash`` is the HDF5 library dying, which costs a worker its granule.
"""

import collections
import json
import os
import pathlib
import random
import resource
import signal
import sys
import traceback

import drystone.scan.hdf5.scanner  # noqa: F401 - before the forks
from drystone.errors import DrystoneError
from drystone.protocols import ScanOptions, Source
from drystone.scan.hdf5 import Hdf5Scanner
from drystone.storage.local import LocalStore

SECONDS, MEMORY = 20, 3 << 30


def damage(rng, data):
    data = bytearray(data)
    how = rng.random()
    if how < 0.1:
        return data[: rng.randrange(len(data) + 1)]
    if how < 0.3:
        # preallocated and never arrived
        at = rng.randrange(len(data))
        end = min(len(data), at + rng.choice([64, 4096, len(data)]))
        data[at:end] = bytes(end - at)
        return data
    for _ in range(rng.choice([1, 2, 8, 64])):
        at = rng.randrange(len(data) if rng.random() < 0.4 else min(len(data), 4096))
        data[at] = rng.choice([rng.randrange(256), 0, 255, data[at] ^ 1 << rng.randrange(8)])
    return data


def scan_in_child(folder, name):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(SECONDS)
        try:
            source = Source(folder, name, f"raw:{name}", folder.stat(name))
            result = Hdf5Scanner().scan(source, ScanOptions(max_rows=1_000_000))
            result.digest()
            outcome = "refused" if result.refusals else "scanned"
        except DrystoneError as error:
            outcome = f"{type(error).__name__} {error.kind}"
        except BaseException:  # noqa: BLE001 - any other exception is the finding
            outcome = "bug " + traceback.format_exc()[-1500:]
        os.write(write, outcome.encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        outcome = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "hang" if os.WTERMSIG(status) == signal.SIGALRM else f"crash {os.WTERMSIG(status)}"
    return outcome


def main():
    seed, count, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    rng = random.Random(seed)
    sound = sorted(p for p in folder.iterdir() if p.is_file())
    damaged = folder / "damaged"
    damaged.mkdir(exist_ok=True)
    store = LocalStore(damaged)
    counts, kept = collections.Counter(), []
    for i in range(count):
        path = rng.choice(sound)
        name = f"{i}-{path.name}"
        (damaged / name).write_bytes(damage(rng, path.read_bytes()))
        outcome = scan_in_child(store, name)
        counts[outcome.split("\n")[0]] += 1
        if outcome.startswith(("bug", "hang", "crash")):
            kept.append([name, outcome])
        else:
            (damaged / name).unlink()
    print(json.dumps({"seed": seed, "counts": counts, "kept": kept}))


if __name__ == "__main__":
    main()
