"""Files as disks: what they hold is not erased without asking, and what happens to them behind the server's back is noticed."""

import json
import os
import tarfile
import time

import pytest

from harness.programs import run, until
from test_pool import DISK, MIB, machine, pytestmark  # noqa: F401  the fixture


def test_a_file_with_contents_is_not_erased_without_asking(machine):
    paths = machine.paths(["tar", "bytes"])
    with tarfile.open(paths[0], "w") as tar:
        tar.add(__file__, arcname="test")
    paths[1].write_bytes(bytes(5 * MIB) + os.urandom(4096))
    for path in paths:
        os.truncate(path, DISK)
    before = [path.read_bytes() for path in paths]
    told = machine.refused("pool", "create", "tank", "--assume-atomic", "--disk", *paths)
    assert "a tar archive" in told and "--force" in told, told
    told = machine.refused("pool", "create", "tank", "--assume-atomic", "--disk", paths[1])
    assert f"data of an unknown kind (at {5 * MIB})" in told, told
    assert [path.read_bytes() for path in paths] == before
    machine("pool", "create", "tank", "--assume-atomic", "--force", "--disk", *paths)
    # What was in a pool that is destroyed was ours, and is given back to the file system.
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 7 0 16M", "flush")
    machine("space", "detach", "vm")
    machine("pool", "destroy", "tank", "--yes")
    assert all(os.stat(path).st_blocks * 512 < MIB for path in paths)
    machine("pool", "create", "tank", "--assume-atomic", "--disk", *paths)


@pytest.mark.parametrize("resiliency", ["mirror", "parity"])
def test_freed_slabs_take_no_room_on_the_host(machine, resiliency):
    """Discarded rows, and those of a deleted virtual disk, are holes in the files of the pool."""
    machine.pool("abc")
    used = lambda: sum(os.stat(machine.path(name)).st_blocks * 512 for name in "abc")  # noqa: E731
    machine("space", "create", "vm", "--pool", "tank", "--resiliency", resiliency, "--size", "64M")
    machine.attach()
    machine.qemu_io("write -P 7 0 4k", "flush", "discard 0 64M", "flush")
    empty = used()
    machine.qemu_io("write -P 7 0 32M", "flush")
    assert used() > empty + 32 * MIB
    machine.qemu_io("discard 0 64M", "flush")
    until(lambda: used() < empty + 2 * MIB, timeout=10, what="the room of what was discarded")
    machine.qemu_io("write -P 8 0 32M", "flush", "read -P 8 0 32M")
    machine("space", "detach", "vm")
    machine("space", "destroy", "vm", "--yes")
    until(lambda: used() < empty + 2 * MIB, timeout=10, what="the room of what was destroyed")


@pytest.mark.parametrize("how", ["removed", "truncated", "overwritten"])
def test_a_file_that_is_not_a_disk_any_more_leaves_within_5_s(machine, how):
    machine.pool("abc")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 7 0 16M", "flush")
    lost = machine.path("b")
    since = time.monotonic()
    if how == "removed":
        lost.unlink()
    elif how == "truncated":
        os.truncate(lost, 8 * MIB)
    else:
        with open(lost, "r+b") as file:
            file.write(bytes(MIB))
            file.seek(-MIB, os.SEEK_END)
            file.write(bytes(MIB))
    until(lambda: machine.status()["health_status"] != "Healthy", timeout=15, what="it is missed")
    assert time.monotonic() - since < 5
    report, _ = machine.health()
    assert "removed, truncated or overwritten" in json.dumps(report), report
    machine.qemu_io("read -P 7 0 16M", "write -P 8 8M 4M", "flush", "read -P 8 8M 4M")


def test_an_empty_disk_is_copied_at_once(machine):
    """By base:allocation only what has slabs is read: all of it took 11.5 s."""
    vast(machine)
    copy = machine.server.folder / "copy"
    convert = ["qemu-img", "convert", "-n", "--target-is-zero", "-f", "raw", "-O", "raw", machine.url(), copy]
    for program in (["nbdcopy", "--destination-is-zero", machine.url(), copy], convert):
        seconds = []
        for _ in range(3):
            sparse(copy)
            seconds.append(run(program).seconds)
            assert os.stat(copy).st_blocks == 0
        # The quickest: others use this machine, too.
        assert min(seconds) < 1, f"{program[0]}: {seconds}"


def test_a_map_and_a_copy_have_what_was_written_and_holes_where_it_was_discarded(machine):
    vast(machine)
    assert maps(machine) == [(0, 20 << 30, True)]
    gib = 1 << 30
    machine.qemu_io("write -P 8 19G 4k", "flush")
    # A row, which has a slab of each column.
    [(start, row)] = written(machine)
    assert start == 19 * gib and row <= 4 * MIB
    machine.qemu_io(f"write -P 7 9G {2 * row}", "flush")
    assert written(machine) == [(9 * gib, 2 * row), (19 * gib, row)]
    copy = sparse(machine.server.folder / "copy")
    run(["nbdcopy", "--destination-is-zero", machine.url(), copy])
    run(["qemu-img", "compare", "-f", "raw", "-F", "raw", machine.url(), copy])
    with open(copy, "rb") as file:
        file.seek(9 * gib)
        assert file.read(2 * row) == b"\x07" * 2 * row
    assert os.stat(copy).st_blocks * 512 < 16 * MIB
    # A discarded row is a hole, and reads as zeros also where nobody asks for the map.
    machine.qemu_io(f"discard 9G {row}", "flush", f"read -P 0 9G {row}", f"read -P 7 {9 * gib + row} {row}")
    assert written(machine) == [(9 * gib + row, row), (19 * gib, row)]
    machine.qemu_io("discard 9G 1G", "discard 19G 1G", "flush")
    assert maps(machine) == [(0, 20 * gib, True)]


def vast(machine):
    """A virtual disk that is larger than its pool, attached."""
    machine.pool("abc")
    machine("space", "create", "vm", "--pool", "tank", "--resiliency", "mirror", "--size", "20GiB")
    machine.attach()


def maps(machine):
    """The extents of the virtual disk, as (start, length, whether it is a hole): libnbd's, which are QEMU's, too."""
    told = json.loads(run(["nbdinfo", "--map", "--json", machine.url()]).out)
    extents = merged((e["offset"], e["length"], {0: False, 3: True}[e["type"]]) for e in told)
    told = json.loads(run(["qemu-img", "map", "--output=json", "-f", "raw", machine.url()]).out)
    assert merged((e["start"], e["length"], e["zero"] and not e["data"]) for e in told) == extents
    return extents


def written(machine):
    return [(start, length) for start, length, hole in maps(machine) if not hole]


def merged(extents):
    """Neighbours of one kind as one: a client asks for at most 4 GiB at a time."""
    out = []
    for start, length, hole in extents:
        if out and out[-1][2] == hole:
            before = out.pop()
            start, length = before[0], before[1] + length
        out.append((start, length, hole))
    return out


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(20 << 30)
    return path
