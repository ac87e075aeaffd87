"""Pools that are open for reading only: their virtual disks are read, after a crash and without a disk too, and not a byte of any disk changes."""

import fcntl
import hashlib
import json
import socket
import threading
import time

import pytest

from harness.programs import run, until
from test_pool import SPACE, Machine, machine, pytestmark, rot  # noqa: F401  the fixture and the marks
from test_pool_admin import load_on

# Words of `space create`, the disks.
KINDS = [(["mirror"], "abc"), (["parity"], "abcd"), (["dual-parity", "--groups", "2", "--columns", "7"], "abcdefgh")]


def digests(paths):
    return [hashlib.sha256(p.read_bytes()).hexdigest() for p in paths]


@pytest.mark.parametrize(("words", "names"), KINDS)
def test_what_a_crash_left_is_read_and_no_disk_changes(machine, words, names):
    machine.pool(names)
    machine("space", "create", "vm", "--pool", "tank", "--size", SPACE, "--resiliency", *words)
    machine.attach()
    machine.qemu_io("write -P 0xfe 0 40M", "flush", "write -P 2 30M 1M", "flush")
    # It writes other bytes than 0xfe: the log, which has what was written last, is not damaged below.
    load = load_on(machine)
    time.sleep(0.7)
    machine.server.kill()
    load.communicate()
    assert rot(machine.path("a"), 0xFE, 7) > 50
    # A server opens for writing what is in its places.
    elsewhere = machine.server.folder / "elsewhere"
    elsewhere.mkdir()
    disks = [machine.path(n).rename(elsewhere / n) for n in names]
    before = digests(disks)
    whole = ["read -P 0xfe 26M 4M", "read -P 2 30M 1M", "read -P 0xfe 31M 9M", "read -P 0 40M 8M", "read 0 26M"]
    machine.server.start()
    away = elsewhere / "away"
    for lost in [False, True]:
        if lost:
            # The one with the damage: nothing is lost without it.
            disks[0].rename(away)
        here = disks[1:] if lost else disks
        told = machine("pool", "import", "tank", "--read-only", "--disk", *here)
        assert "pool tank opened for reading only" in told
        shown = machine.status()
        assert shown["is_read_only"] and shown["disks_missing"] == lost, json.dumps(shown)
        # Blocks that the crash left in doubt are resolved in memory first.
        state = "Degraded" if lost else "Read-only"
        until(lambda: machine.status()["operational_status"] == state, timeout=60, what=state)
        assert "read-only, because the pool tank is open" in machine("space", "attach", "vm", "--nbd", machine.socket)
        export = json.loads(run(["nbdinfo", "--json", "--no-content", machine.url()]).out)["exports"][0]
        assert export["is_read_only"] and export["export-size"] == SPACE
        machine.qemu_io(*whole, options=["-r"])
        machine.qemu_io(*whole, options=["-r"])
        assert machine.qemu_io("write -P 3 0 64k", status=1)
        for refused in [["space", "resize", "vm", "--size", 2 * SPACE], ["space", "repair", "vm"], ["space", "destroy", "vm", "--yes"],
                        ["space", "create", "more", "--pool", "tank", "--size", SPACE], ["pool", "optimize", "tank"],
                        ["pool", "rename", "tank", "other"], ["pool", "remove-disk", "tank", "0"], ["pool", "destroy", "tank", "--yes"],
                        ["space", "set", "vm", "--media", "ssd"], ["pool", "set", "tank", "--warn-at", "50"], ["disk", "retire", "tank/0"]]:
            assert "the pool is open for reading only: export it and import it without --read-only" in machine.refused(*refused), refused
        assert "InDoubt" not in json.dumps(machine.health())
        machine("space", "detach", "vm")
        assert machine.json("job", "list") == []
        machine("pool", "export", "tank")
        assert digests([away, *here] if lost else here) == before
    away.rename(disks[0])
    machine("pool", "import", "tank", "--disk", *disks)
    machine.attach()
    machine.qemu_io(*whole)
    machine.until_healthy()


@pytest.mark.parametrize("words", [[], ["--read-only"]])
def test_an_import_waits_for_locks_that_no_process_holds(machine, words):
    """I/O that a killed server has left may hold the locks of its disks for a while: the pool is not opened without them."""
    machine.pool("ab")
    machine.mirror()
    machine("pool", "export", "tank")
    with open(machine.path("b"), "rb") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        here, there = socket.socketpair()
        # In a message that nobody receives, a descriptor is open and no process has it.
        socket.send_fds(here, [b"disk"], [locked.fileno()])
    with here, there:
        ends = threading.Timer(2, there.close)
        ends.start()
        began = time.monotonic()
        told = machine("pool", "import", "tank", *words)
        ends.join()
    assert "pool tank opened" in told and "absent" not in told, told
    assert 1.9 < time.monotonic() - began < 5
    assert machine.status()["disks_missing"] == 0


def test_readers_and_a_writer_keep_each_other_out(machine, serve):
    """Several servers may read a pool at once; meanwhile none can open it for writing, and a pool that is open for writing has no readers. Examinations disturb neither."""
    machine.pool("ab")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 5 0 4M", "flush")
    machine("space", "detach", "vm")
    paths = machine.paths("ab")
    reader, second, writer = Machine(serve()), Machine(serve()), Machine(serve())
    told = reader.refused("pool", "import", "tank", "--read-only", "--force", "--disk", *paths)
    assert f"process {machine.server.pid}" in told and "causeway pool export tank" in told, told
    machine("pool", "export", "tank")
    for one in (reader, second):
        assert "opened for reading only" in one("pool", "import", "tank", "--read-only", "--disk", *paths)
    for words in ([], ["--force"], ["--accept-loss"]):
        told = writer.refused("pool", "import", "tank", *words, "--disk", *paths)
        assert f"process {reader.server.pid} (" in told and f"process {second.server.pid} (" in told and "reads it" in told, told
        assert "export it there" in told and "causeway pool import tank" in told, told
    assert "reading only elsewhere" in json.dumps(writer.json("pool", "show", "tank"))
    for looks in (reader, writer):
        looks("disk", "list")
        looks("disk", "qualify", paths[0])
    reader.attach()
    reader.qemu_io("read -P 5 0 4M", options=["-r"])
    reader("space", "detach", "vm")
    reader("pool", "export", "tank")
    assert f"process {second.server.pid} (" in writer.refused("pool", "import", "tank", "--disk", *paths)
    # One that has only one of the disks keeps all of it from being written.
    second("pool", "export", "tank")
    second("pool", "import", "tank", "--read-only", "--accept-loss", "--disk", paths[0])
    told = writer.refused("pool", "import", "tank", "--accept-loss", "--disk", *paths)
    assert f"process {second.server.pid} (" in told, told
    second("pool", "export", "tank")
    assert "pool tank opened" in writer("pool", "import", "tank", "--disk", *paths)
    assert "causeway pool export tank" in reader.refused("pool", "import", "tank", "--read-only", "--disk", *paths)
    writer.attach()
    writer.qemu_io("read -P 5 0 4M")
