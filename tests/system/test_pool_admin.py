"""Administration of pools on plain files: disks that leave, are replaced or lost, enclosures, room that runs out, sizes."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from harness.programs import run, until
from test_pool import DISK, MIB, SPACE, Machine, machine, pytestmark  # noqa: F401  the fixture and the marks



def disks(machine, pool="tank"):
    return {d["number"]: d for d in machine.status(pool)["physical_disks"]}


def until_gone(machine, number, pool="tank"):
    until(lambda: number not in disks(machine, pool), timeout=120, what=f"disk {number} gone: {machine.server.log}")


def until_idle(machine):
    until(lambda: machine.json("job", "list") == [], timeout=120, what=f"nothing runs: {machine.server.log}")


def load_on(machine, writes=6000):
    """QEMU writing to the first 25 MiB; its process."""
    script = machine.server.folder / "load"
    script.write_text("".join(f"write -P {n % 250 + 1} {n % 400 * 64}k 64k\n" for n in range(writes)) + "flush\n")
    with open(script) as commands:
        return subprocess.Popen(["qemu-io", "-f", "raw", "-t", "none", machine.url()], stdin=commands, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)


def all_written(load, writes=6000):
    out, _ = load.communicate(timeout=240)
    assert load.returncode == 0 and "failed" not in out.lower() and out.count("wrote 65536/65536") == writes, out[-2000:]
    return [f"read -P {n % 250 + 1} {n % 400 * 64}k 64k" for n in range(writes - 400, writes)]


def test_a_disk_with_data_leaves_under_load(machine):
    """What it has moves to others while QEMU writes; the pool is never worse off than before, and does without it afterwards."""
    machine.pool("abc")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 1 0 40M", "flush")
    victim = next(n for n, d in disks(machine).items() if d["allocated"] > 0)
    path = disks(machine)[victim]["path"]
    load = load_on(machine)
    told = machine("pool", "remove-disk", "tank", str(victim))
    assert f"disk {victim} will be removed from the pool tank when" in told
    while victim in disks(machine):
        shown = machine.status()
        assert shown["can_lose"] == 1 and all(s["health_status"] == "Healthy" for s in shown["virtual_disks"]), shown
        time.sleep(0.2)
    reads = all_written(load)
    machine.until_healthy()
    listed = {d["path"]: d for d in machine.json("disk", "list") if d.get("path")}
    assert listed[path]["can_pool"], "its label is gone"
    machine.server.kill()
    Path(path).unlink()
    machine.server.start()
    # Copies are compared after a crash; until then none may be lost.
    until(lambda: machine.status()["can_lose"] == 1, timeout=60, what="the copies are compared")
    machine.attach()
    machine.qemu_io(*reads, "read -P 1 26M 14M")
    # The two that are left cannot do without each other, and say so.
    left = sorted(disks(machine))[0]
    told = machine.refused("pool", "remove-disk", "tank", str(left))
    assert "do not fit on other disks" in told and "add disks" in told


def test_a_move_goes_on_after_kill_9(machine):
    machine.pool("abcd")
    machine("space", "create", "vm", "--pool", "tank", "--size", "160MiB", "--columns", "1")
    machine.attach()
    machine.qemu_io(*[f"write -P {n + 1} {n * 8}M 8M" for n in range(18)], "flush")
    victim = max(disks(machine).values(), key=lambda d: d["allocated"])["number"]
    machine("pool", "remove-disk", "tank", str(victim))
    machine.kill_and_start()
    until_gone(machine, victim)
    machine.until_healthy()
    machine.attach()
    machine.qemu_io(*[f"read -P {n + 1} {n * 8}M 8M" for n in range(18)])


def test_a_lost_disk_is_rebuilt_on_a_spare(machine):
    """A hot spare has no data until a disk is lost; after the configured delay that disk is rebuilt on it automatically."""
    machine.pool("ab")
    machine("disk", "create-file", machine.path("s"), "--size", DISK)
    machine("pool", "add-disk", "tank", "--assume-atomic", "--usage", "hot-spare", "--disk", machine.path("s"))
    assert "warns at 80 %" in machine("pool", "set", "tank", "--warn-at", "80", "--repair-after", "2s")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 5 0 20M", "flush")
    assert disks(machine)[2]["usage"] == "Hot Spare" and disks(machine)[2]["allocated"] == 0
    machine.server.kill()
    machine.lose("a")
    machine.server.start()
    until(lambda: disks(machine)[2]["allocated"] > 0 and disks(machine)[0]["allocated"] == 0, timeout=120,
          what=f"rebuilt: {machine.server.log}")
    until_idle(machine)
    shown = machine.status()
    assert shown["can_lose"] == 1 and shown["virtual_disks"][0]["health_status"] == "Healthy", shown
    # Nothing is on the lost one any more: it is taken out without being here.
    assert "removed from the pool" in machine("pool", "remove-disk", "tank", "0")
    machine.server.kill()
    machine.lose("b")
    machine.server.start()
    machine("pool", "import", "tank", "--accept-loss")
    machine.attach()
    machine.qemu_io("read -P 5 0 20M")


def test_replaced_retired_and_evened_out(machine):
    machine.pool("ab")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 7 0 40M", "flush")
    machine("disk", "create-file", *machine.paths("cde"), "--size", DISK)
    told = machine("pool", "replace-disk", "tank", machine.path("a"), "--assume-atomic", "--disk", machine.path("c"))
    assert "disk 2 added" in told and "disk 0 will be removed" in told
    until_gone(machine, 0)
    # New disks get their share by themselves.
    machine("pool", "add-disk", "tank", "--assume-atomic", "--disk", *machine.paths("de"))
    until(lambda: min(d["allocated"] for d in disks(machine).values()) > 0, timeout=120, what="all are used")
    until_idle(machine)
    used = [d["allocated"] for d in disks(machine).values()]
    assert max(used) - min(used) <= machine.status()["slab_size"], used
    assert "already evenly full" in machine("pool", "optimize", "tank")
    # A retired one is empty soon, and used again after a command.
    assert "are moved to other disks" in machine("disk", "retire", "tank/1")
    until(lambda: disks(machine)[1]["allocated"] == 0, timeout=120, what="disk 1 is empty")
    assert disks(machine)[1]["usage"] == "Retired"
    retired = [f for f in machine.health()[0]["faults"] if f["FaultType"] == "PhysicalDisk.Retired"]
    assert [f["RecommendedActions"] for f in retired] == [["causeway pool remove-disk tank 1", "causeway disk set tank/1 --usage auto-select"]], retired
    until_idle(machine)
    machine("disk", "set", "tank/1", "--usage", "auto-select")
    assert "is being moved" in machine("pool", "optimize", "tank")
    until(lambda: disks(machine)[1]["allocated"] > 0, timeout=120, what="disk 1 is used")
    until_idle(machine)
    machine.qemu_io("read -P 7 0 40M")
    assert "there is no disk" in machine.refused("disk", "identify", "nothing")
    told = machine.refused("disk", "identify", "tank/1")
    assert "no enclosure" in told and str(machine.path("b")) in told
    assert "tank" in machine("disk", "show", "tank/1")


def test_a_whole_enclosure_may_go(machine):
    """S0-07: a two-way mirror over three enclosures survives one of them, whichever it is."""
    names = {"left": "ab", "middle": "cd", "right": "ef"}
    machine("disk", "create-file", *machine.paths("abcdef"), "--size", DISK)
    machine("pool", "create", "tank", "--assume-atomic", "--enclosure", "left", "--disk", *machine.paths("ab"))
    for name in ["middle", "right"]:
        machine("pool", "add-disk", "tank", "--assume-atomic", "--enclosure", name, "--disk", *machine.paths(names[name]))
    machine("space", "create", "vm", "--pool", "tank", "--size", "200MiB", "--columns", "1")
    machine.attach()
    machine.qemu_io(*[f"write -P {n + 1} {n * 10}M 10M" for n in range(20)], "flush")
    reads = [f"read -P {n + 1} {n * 10}M 10M" for n in range(20)]
    listed = {e["name"]: e for e in machine.json("enclosure", "list")}
    assert listed["left"]["disks"] == ["tank/0", "tank/1"] and listed["right"]["health_status"] == "Healthy"
    machine("pool", "set", "tank", "--repair-after", "never")
    for name, letters in names.items():
        machine.server.kill()
        for letter in letters:
            machine.lose(letter)
        machine.server.start()
        assert machine.status()["disks_missing"] == 2
        gone = next(e for e in machine.json("enclosure", "list") if e["name"] == name)
        assert (gone["missing"], gone["operational_status"]) == (2, "Lost communication")
        machine.attach()
        machine.qemu_io(*reads)
        machine.server.stop()
        for letter in letters:
            machine.reconnect(letter)
        machine.server.start()
        machine.until_healthy()


def test_the_enclosure_that_came_first_may_go_too(machine):
    """A pool that grows by enclosures has its metadata in all of them; and what one had is rebuilt on the others, by jobs that meet in the same rows, without
    one minute's waiting for the other."""
    names = {"one": "abc", "two": "def", "three": "ghi", "four": "jkl"}
    machine("disk", "create-file", *machine.paths("abcdefghijkl"), "--size", DISK)
    machine("pool", "create", "tank", "--assume-atomic", "--enclosure", "one", "--disk", *machine.paths("abc"))
    for name in ["two", "three", "four"]:
        machine("pool", "add-disk", "tank", "--assume-atomic", "--enclosure", name, "--disk", *machine.paths(names[name]))
    until_idle(machine)
    assert machine.status()["can_lose_text"] == "1 enclosure or 2 disks now"
    machine("space", "create", "vm", "--pool", "tank", "--size", "96MiB", "--columns", "2")
    machine.attach()
    machine.qemu_io("write -P 7 0 96M", "flush")
    assert machine.status()["can_lose_text"] == "1 enclosure or 1 disk now"
    machine.server.kill()
    for letter in "abc":
        machine.lose(letter)
    machine.server.start()
    machine.attach()
    machine.qemu_io("read -P 7 0 96M")
    machine("pool", "set", "tank", "--repair-after", "1s")
    began = time.monotonic()
    until(lambda: machine.status()["virtual_disks"][0]["health_status"] == "Healthy", timeout=50, what=f"rebuilt: {machine.server.log}")
    until_idle(machine)
    assert time.monotonic() - began < 55, "no job has waited for its minute"
    assert machine.status()["can_lose_text"] == "1 enclosure or 1 disk now"
    machine.qemu_io("read -P 7 0 96M")


def test_48_disks_24_columns(machine):
    """S1-09: a mirror of 24 columns over 48 disks."""
    paths = [machine.path(f"d{n:02}") for n in range(48)]
    machine("disk", "create-file", *paths, "--size", 32 * MIB)
    machine("pool", "create", "big", "--assume-atomic", "--disk", *paths, timeout=300)
    machine("space", "create", "vm", "--pool", "big", "--columns", "24", "--size", "192MiB")
    shown = machine.json("space", "show", "vm")
    assert (shown["columns"], shown["redundancy"]) == (24, 1)
    machine.attach()
    machine.qemu_io("write -P 3 0 64M", "write -P 4 100M 10M", "flush")
    assert all(d["allocated"] > 0 for d in disks(machine, "big").values()), "all of them work"
    machine.server.kill()
    machine.lose("d07")
    machine.server.start()
    machine.attach()
    machine.qemu_io("read -P 3 0 64M", "read -P 4 100M 10M")


def test_several_disks_are_added_together_or_not_at_all(machine):
    machine.pool("ab")
    machine("disk", "create-file", machine.path("c"), "--size", DISK)
    told = machine.refused("pool", "add-disk", "tank", "--assume-atomic", "--disk", machine.path("c"), machine.path("nothing"))
    assert "No such file" in told
    assert "named twice" in machine.refused("pool", "add-disk", "tank", "--assume-atomic", "--disk", machine.path("c"), machine.path("c"))
    assert sorted(disks(machine)) == [0, 1]
    machine("pool", "add-disk", "tank", "--assume-atomic", "--disk", machine.path("c"))
    assert sorted(disks(machine)) == [0, 1, 2]
    # A path is one of ours, not of the server's directory.
    here = os.path.relpath(machine.path("c"))
    assert "is offline" in machine("pool", "offline-disk", "tank", here)
    assert "returned to the pool" in machine("disk", "return", here)
    told = machine("disk", "set", "tank/2", "--enclosure", "left", "--rack", "r1")
    assert "disk 2 of the pool tank is in rack r1, enclosure left now" in told


def test_a_pool_that_the_next_start_does_not_find_is_reported(machine):
    """Its disks are at paths outside of storage.devices, and a share and an attachment need it."""
    folder = machine.server.folder / "elsewhere"
    folder.mkdir()
    paths = [folder / f"{name}.disk" for name in "ab"]
    machine("disk", "create-file", *paths, "--size", DISK)
    assert "is not in storage.devices" in machine("pool", "create", "tank", "--assume-atomic", "--disk", *paths)
    machine.mirror()
    machine.attach()
    machine("share", "add", "vms", "--pool", "tank")
    machine.server.stop()
    machine.server.restart()
    report, status = machine.health()
    [fault] = [f for f in report["faults"] if f["FaultType"] == "StoragePool.NotFound"]
    assert status == 1 and fault["RecommendedActions"] == ["causeway pool import tank"]
    assert "the share vms" in fault["Reason"] and f"the virtual disk vm (NBD on {machine.socket})" in fault["Reason"]
    assert "is not in storage.devices" in machine("pool", "import", "tank", "--disk", *paths)
    assert machine.json("space", "show", "vm")["attached"] == str(machine.socket)
    report, _ = machine.health()
    assert "StoragePool.NotFound" not in [f["FaultType"] for f in report["faults"]]


def test_a_full_pool_reads_and_recovers(machine):
    """A thin virtual disk that is larger than its pool: when the room runs out writes fail with the reason, reads continue, and a discard makes writes possible again."""
    machine.pool("ab")
    machine("pool", "set", "tank", "--warn-at", "50")
    told = machine("space", "create", "vm", "--pool", "tank", "--size", "1GiB", "--columns", "1")
    assert "the pool has room for" in told
    machine.attach()
    machine.qemu_io("write -P 9 0 4M", "flush")
    written = 0
    for at in range(4, 1024, 4):
        out = run(["qemu-io", "-f", "raw", "-t", "none", "-c", f"write -P 9 {at}M 4M", machine.url()], status=None).out
        if "failed" in out.lower():
            assert "No space left" in out, out
            break
        written = at + 4
    assert written > 32, written
    assert "no room for another row" in machine.server.log.read_text()
    assert re.search(r"\d+ % of its capacity is in use \(threshold 50 %\)", machine("pool", "show", "tank"))
    assert "is in use (threshold 50 %)" in json.dumps(machine.health())
    machine.qemu_io(f"read -P 9 0 {written}M", "write -P 8 0 4M", "flush", "read -P 8 0 4M")
    machine.qemu_io(f"discard 0 {written // 2}M", f"write -P 7 {written + 4}M 4M", "flush", f"read -P 7 {written + 4}M 4M")


def test_a_virtual_disk_shrinks_where_nothing_is(machine):
    machine.pool("ab")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 6 0 4M", "write -P 6 40M 1M", "flush")
    machine("space", "detach", "vm")
    told = machine.refused("space", "resize", "vm", "--size", "8MiB")
    assert "has data" in told and "--yes" in told
    machine.attach()
    machine.qemu_io("discard 40M 1M", "flush")
    machine("space", "detach", "vm")
    machine("space", "resize", "vm", "--size", "8MiB")
    # What is no size destroys nothing, whatever is confirmed.
    assert "cannot have 0 bytes" in machine.refused("space", "resize", "vm", "--size", "0", "--yes")
    assert "cannot have 0 bytes" in machine.refused("space", "create", "empty", "--pool", "tank", "--size", "0")
    told = machine.refused("disk", "create-file", machine.path("small"), "--size", "1MiB")
    assert "at least 16 MiB" in told and "--slab-size" not in told
    machine.attach()
    machine.qemu_io("read -P 6 0 4M")
    machine("space", "detach", "vm")
    machine("space", "resize", "vm", "--size", "2MiB", "--yes")
    assert machine.json("space", "show", "vm")["size"] == 2 * MIB
    machine("space", "resize", "vm", "--size", str(SPACE))
    machine.attach()
    # What was cut off is zeros, and does not come back.
    machine.qemu_io("read -P 6 0 2M", "read -P 0 2M 46M")
