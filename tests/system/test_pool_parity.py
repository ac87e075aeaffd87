"""Slabs of virtual disks with parity that move to other disks beside the clients, on pools of plain files."""

import json
import time
from pathlib import Path

import pytest

from harness.programs import until
from test_pool import DISK, SPACE, machine, pytestmark  # noqa: F401  the fixture and the marks
from test_pool_admin import all_written, disks, load_on, until_gone, until_idle

# Words of `space create`, the disks, how many may be lost.
KINDS = [(["parity"], "abcd", 1), (["dual-parity"], "abcdef", 2), (["dual-parity", "--groups", "2", "--columns", "7"], "abcdefgh", 2)]


def on(machine):
    """The disks that something lies on."""
    return {n for n, d in disks(machine).items() if d["allocated"] > 0}


def made(machine, words, names):
    machine.pool(names)
    machine("space", "create", "vm", "--pool", "tank", "--size", SPACE, "--resiliency", *words)
    assert "InDoubt" not in json.dumps(machine.health())
    machine.attach()
    machine.qemu_io("write -P 1 0 40M", "flush", "write -P 2 30M 1M", "flush")


REST = ["read -P 1 26M 4M", "read -P 2 30M 1M", "read -P 1 31M 9M", "read -P 0 40M 8M"]


def test_what_nobody_uses_is_not_in_doubt_for_long(machine):
    machine.pool("abcd")
    machine("space", "create", "vm", "--pool", "tank", "--size", SPACE, "--resiliency", "parity", "--provisioning", "fixed")
    assert "InDoubt" not in json.dumps(machine.health())
    machine.attach()
    machine.qemu_io("write -P 1 0 8M", "flush", "write -P 2 1M 64k", "flush")
    for end in [machine.server.kill, machine.server.stop]:
        end()
        machine.server.start()
        until(lambda: "InDoubt" not in json.dumps(machine.health()), timeout=20, what="the journal was carried out")


@pytest.mark.parametrize(("words", "names", "promise"), KINDS)
def test_a_disk_with_columns_leaves_under_load(machine, words, names, promise):
    """What it has moves to others while QEMU writes; as many may be lost at every moment as before. Afterwards others are, and nothing is missing."""
    made(machine, words, names)
    victim = max(disks(machine).values(), key=lambda d: d["allocated"])
    assert victim["allocated"] > 0
    load = load_on(machine, writes=2000)
    assert f"disk {victim['number']} will be removed from the pool tank when" in machine("pool", "remove-disk", "tank", str(victim["number"]))
    while victim["number"] in disks(machine):
        shown = machine.status()
        assert shown["can_lose"] == promise and all(s["health_status"] == "Healthy" for s in shown["virtual_disks"]), shown
        time.sleep(0.1)
    reads = all_written(load, writes=2000) + REST
    machine.until_healthy()
    machine.server.kill()
    Path(victim["path"]).unlink()
    machine.server.start()
    # Copies are compared after a crash; until then none may be lost.
    until(lambda: machine.status()["can_lose"] == promise, timeout=60, what="the copies are compared")
    machine.attach()
    machine.qemu_io(*reads)
    machine.server.kill()
    for disk in sorted(d["path"] for d in disks_of(machine, names) if d["path"] != victim["path"])[:promise]:
        Path(disk).rename(Path(disk).with_suffix(".away"))
    machine.server.start()
    machine.attach()
    machine.qemu_io(*reads)


def disks_of(machine, names):
    return [{"path": str(p)} for p in machine.paths(names)]


def test_columns_go_on_moving_after_kill_9(machine):
    """Three times in the middle; the journal moves too, and a disk that replaces another gets what that had."""
    made(machine, ["parity"], "abcd")
    machine("disk", "create-file", machine.path("e"), "--size", DISK)
    told = machine("pool", "replace-disk", "tank", machine.path("a"), "--assume-atomic", "--disk", machine.path("e"))
    assert "disk 0 will be removed" in told, told
    for wait in (0.05, 0.2, 0.4):
        time.sleep(wait)
        machine.kill_and_start()
    until_gone(machine, 0)
    machine.until_healthy()
    until_idle(machine)
    machine.attach()
    machine.qemu_io("read -P 1 0 26M", *REST)
    assert on(machine) <= {1, 2, 3, 4} and 4 in on(machine)
    machine.qemu_io("write -P 8 8k 20k", "flush")
    machine.kill_and_start()
    machine.attach()
    machine.qemu_io("read -P 1 0 8k", "read -P 8 8k 20k", "read -P 1 28k 16M")


def test_new_disks_get_their_share_of_columns(machine):
    made(machine, ["parity"], "abcd")
    machine("disk", "create-file", *machine.paths("efg"), "--size", DISK)
    machine("pool", "add-disk", "tank", "--assume-atomic", "--disk", *machine.paths("efg"))
    until(lambda: on(machine) >= {4, 5, 6}, timeout=120, what=f"all are used: {machine.server.log}")
    until_idle(machine)
    assert machine.status()["can_lose"] == 1
    machine.qemu_io("read -P 1 0 26M", *REST)
    # A retired one is empty soon.
    assert "are moved to other disks" in machine("disk", "retire", "tank/5")
    until(lambda: 5 not in on(machine), timeout=120, what="disk 5 is empty")
    machine.qemu_io("read -P 1 0 26M", *REST)
