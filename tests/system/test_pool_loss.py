"""Blocks without a valid copy, on pools of plain files: what a read reports, which advice ends it, and records of errors that were repaired."""

import re
import shlex

import pytest

from harness.programs import until
from test_pool import SPACE, machine, pytestmark  # noqa: F401  the fixture and the marks
from test_pool_admin import until_idle
from test_pool_media import data_on

A, B = 0xB7, 0x5A


def blocks_of(machine, names, pattern):
    """Where 4 KiB that are all `pattern` lie: (disk, offset), in the order of the disk."""
    found = []
    for name in names:
        data = machine.path(name).read_bytes()
        found += [(name, at) for at in range(0, len(data), 4096) if data[at:at + 4096] == bytes([pattern]) * 4096]
    return found


def damage(machine, place):
    name, at = place
    with open(machine.path(name), "r+b") as file:
        file.seek(at + 100)
        file.write(b"rot")


def do(machine, action):
    """Runs a command that `health` names."""
    words = shlex.split(action)
    assert words[0] == "causeway", action
    machine(*words[1:])
    until_idle(machine)


def fails(machine, at):
    return "read failed: Input/output error" in machine.qemu_io(f"read {at} 4k", status=None)


def find(machine, kind):
    """The fault of that kind, also one that another one has caused."""
    faults = machine.health()[0]["faults"]
    every = [*faults, *[c for f in faults for c in f.get("Consequences", [])]]
    return next((f for f in every if f["FaultType"] == kind), None)


@pytest.mark.parametrize("other", ["data", "parity"])
def test_a_lost_unit_is_written_beside_another(machine, other):
    """Two columns of a stripe that survives the loss of one: reads of the data fail, and writing it is the repair that `health` names."""
    machine.pool("abcd")
    machine("space", "create", "vm", "--pool", "tank", "--resiliency", "parity", "--size", SPACE)
    machine.attach()
    piece = machine.json("space", "show", "vm")["interleave"]
    machine.qemu_io(*[f"write -P {p} {(2 * n + c) * piece} {piece}" for n in range(8) for c, p in enumerate([A, B])], "flush")
    machine("space", "detach", "vm")
    assert machine.server.stop() == 0
    columns = {p: blocks_of(machine, "abcd", p) for p in (A, B, A ^ B)}
    for places in columns.values():
        assert len(places) == 8 * piece // 4096 and len({name for name, _ in places}) == 1, "whole stripes are not in the log"
    # Stripe 5 of the third piece.
    nth, first = 2 * piece // 4096 + 5, 4 * piece + 5 * 4096
    second = first + piece
    damage(machine, columns[A][nth])
    damage(machine, columns[B if other == "data" else A ^ B][nth])
    machine.server.start()
    machine.attach()
    assert find(machine, "VirtualDisks.DataLoss") is None
    assert fails(machine, first) and fails(machine, second) == (other == "data")
    lost = find(machine, "VirtualDisks.DataLoss")
    blocks = "2 blocks" if other == "data" else "1 block"
    assert f"{blocks} of 4 KiB of the virtual disk vm" in lost["Reason"] and f"the first at byte {first}: reading" in lost["Reason"], lost
    assert "written again" in lost["Reason"] and "no valid copy on any disk, " in lost["Reason"], lost
    [repair] = lost["RecommendedActions"]
    # The command alone restores nothing.
    do(machine, repair)
    assert find(machine, "VirtualDisks.DataLoss")["Reason"] == lost["Reason"] and fails(machine, first)
    machine.qemu_io(f"write -P 1 {first} 4k", "flush", f"read -P 1 {first} 4k")
    assert fails(machine, second) == (other == "data")
    rest = [f"read -P {A} {4 * piece} 20k", f"read -P 1 {first} 4k", f"read -P {A} {first + 4096} {piece - 6 * 4096}",
            f"read -P {B} {5 * piece} 20k", f"read -P {B} {second + 4096} {piece - 6 * 4096}"]
    for end in [machine.server.stop, machine.server.kill]:
        end()
        machine.server.start()
        machine.attach()
        machine.qemu_io(*rest)
        assert fails(machine, second) == (other == "data")
    do(machine, repair)
    if other == "data":
        assert f"1 block of 4 KiB of the virtual disk vm has no valid copy on any disk, the first at byte {second}" in find(machine, "VirtualDisks.DataLoss")["Reason"]
        machine.qemu_io(f"write -P 2 {second} 4k", "flush")
        do(machine, repair)
    rest.append(f"read -P {2 if other == 'data' else B} {second} 4k")
    assert find(machine, "VirtualDisks.DataLoss") is None
    # The parity is good again, too: one column may be damaged, another time.
    machine.qemu_io(*rest)
    machine("space", "detach", "vm")
    assert machine.server.stop() == 0
    for name, at in [columns[A][nth], columns[A][nth + 1]]:
        damage(machine, (name, at))
    machine.server.start()
    machine.attach()
    machine.qemu_io(*rest)


def restart(machine):
    """A disk that leaves later has missed only what is written from now on."""
    assert machine.server.stop() == 0
    machine.server.start()
    machine.attach()


@pytest.mark.parametrize(("resiliency", "missed", "restarts"), [("mirror", False, True), ("parity", False, True), ("mirror", True, True), ("parity", True, False)])
def test_an_absent_disk_is_asked_for(machine, resiliency, missed, restarts):
    """What is damaged on the disks that are here is good on one that is away: `health` names that disk, and with it everything reads as before. `missed`: it has missed a write beside the damage, so its copy does not count; of parity, a server that was not restarted knows its checksums (0004, section K)."""
    names = "abcd"
    machine.pool(names)
    machine("space", "create", "vm", "--pool", "tank", "--resiliency", resiliency, "--size", SPACE)
    machine.attach()
    piece = machine.json("space", "show", "vm")["interleave"]
    written = [(p, (2 * n + c) * piece) for n in range(4) for c, p in enumerate([A, B])]
    machine.qemu_io(*[f"write -P {p} {at} {piece}" for p, at in written], "flush")
    restart(machine)
    away = min(name for name, _ in blocks_of(machine, names, A))
    number = names.index(away)
    # The fourth unit: the other copy, or the column that it is computed from.
    damaged = [place for place in blocks_of(machine, names, A if resiliency == "mirror" else B) if place[0] != away][3]
    # The checksums of all columns are in memory.
    machine.qemu_io(f"read -P {A} 0 4k")
    machine("pool", "offline-disk", "tank", str(number))
    first = 1 if missed else A
    if missed:
        machine.qemu_io("write -P 1 0 4k", "flush")
    reads = [f"read -P {first} 0 4k", f"read -P {A} 4k {piece - 4096}", *[f"read -P {p} {at} {piece}" for p, at in written[1:]]]
    if restarts:
        assert machine.server.stop() == 0
    machine.lose(away)
    damage(machine, damaged)
    if restarts:
        machine.server.start()
        machine.attach()
    # No write was in flight at the stop: this is damage, and not what a crash has left.
    assert fails(machine, 3 * 4096)
    absent = find(machine, "PhysicalDisk.MaintenanceMode")
    assert f"disk {number} (" in absent["FaultingObjectDescription"] and absent["RecommendedActions"] == [f"causeway disk return tank/{number}"], absent
    lost = find(machine, "VirtualDisks.DataLoss")
    assert bool(lost) == missed
    assert missed or f"the newest data is on disk {number}, which cannot be read; bring one of them back" in machine.server.log.read_text()
    repair = "causeway space repair tank/vm"
    if lost:
        assert "1 block of 4 KiB of the virtual disk vm has no valid copy on any disk that is present" in lost["Reason"], lost
        assert f"disk {number} (" in lost["Reason"] and "which is absent, may have a valid copy: connect it again first" in lost["Reason"], lost
        assert lost["RecommendedActions"] == [*absent["RecommendedActions"], repair], lost
    machine.reconnect(away)
    for action in [*absent["RecommendedActions"], repair]:
        do(machine, action)
    machine.qemu_io(*reads)
    assert find(machine, "VirtualDisks.DataLoss") is None
    machine.kill_and_start()
    machine.attach()
    machine.qemu_io(*reads)


def test_the_newest_data_on_an_absent_disk_is_no_loss(machine):
    """Of two copies one has missed a write, and the disk with the other one is away: reads of it fail, and `health` names the disk that has to come back."""
    names = "abcd"
    machine.pool(names)
    machine.mirror()
    machine.attach()
    machine.qemu_io(f"write -P {A} 0 2M", "flush")
    first, second = sorted(data_on(machine))
    machine("pool", "offline-disk", "tank", str(first))
    machine.qemu_io(f"write -P {B} 1M 1M", "flush")
    assert machine.server.stop() == 0
    machine.lose(names[second])
    machine.server.start()
    machine.attach()
    machine("disk", "return", f"tank/{first}")
    assert fails(machine, 1 << 20)
    report, status = machine.health()
    assert status == 1
    [absent] = [f for f in report["faults"] if f["FaultType"] == "PhysicalDisk.LostCommunication"]
    assert f"disk {second} (" in absent["FaultingObjectDescription"] and absent["RecommendedActions"] == [f"causeway disk return tank/{second}"], absent
    follows = [c for c in absent["Consequences"] if c["FaultType"] == "VirtualDisks.Detached"]
    assert follows and "is on absent disks, so reading these parts fails. Connect the absent disks" in follows[0]["Reason"], absent
    assert find(machine, "VirtualDisks.DataLoss") is None and "backup" not in machine("health", status=1)
    machine.reconnect(names[second])
    do(machine, absent["RecommendedActions"][0])
    reads = [f"read -P {A} 0 1M", f"read -P {B} 1M 1M"]
    machine.qemu_io(*reads)
    machine.until_healthy()
    # The first one has got what it had missed.
    machine("pool", "offline-disk", "tank", str(second))
    machine.qemu_io(*reads)


def test_errors_are_cleared_and_counted_again(machine):
    """HighErrorCount of a disk ends with `pool clear`, for that disk only, and begins again with the next error."""
    machine.pool()
    machine.mirror()
    machine.attach()
    machine.qemu_io(f"write -P {A} 0 4M", "flush")
    machine("space", "detach", "vm")
    assert machine.server.stop() == 0
    on = {name: blocks_of(machine, name, A) for name in "ab"}
    for place in on["a"][:8] + on["b"][512:520]:
        damage(machine, place)
    machine.server.start()
    machine.attach()

    def counts():
        """Errors of the disks, by number."""
        found = [f for f in machine.health()[0]["faults"] if f["FaultType"] == "PhysicalDisk.HighErrorCount"]
        return {int(re.search(r"disk (\d+)", f["FaultingObjectDescription"])[1]): int(f["Reason"].split()[0]) for f in found}

    def scrub():
        machine("space", "repair", "vm")
        until_idle(machine)

    assert counts() == {}
    scrub()
    assert counts() == {0: 8, 1: 8}
    [action] = [a for a in find(machine, "PhysicalDisk.HighErrorCount")["RecommendedActions"] if "pool clear" in a]
    assert action == "causeway pool clear tank 0"
    do(machine, action)
    assert counts() == {1: 8}
    # New errors count from zero; those of the other disk go on.
    for place in on["a"][100:103] + on["b"][600:601]:
        damage(machine, place)
    scrub()
    assert counts() == {0: 3, 1: 9}
    machine("pool", "clear", "tank")
    assert counts() == {}
    assert "PhysicalDisk.HighErrorCount" not in machine("health", status=None)
    machine.qemu_io(f"read -P {A} 0 4M")
    assert counts() == {}


def test_a_virtual_disk_that_cannot_be_opened_is_no_healthy_one(machine):
    """Both copies of its log are away: nothing of it can be read, until one is back."""
    machine.pool("abcdef")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 5 0 8M", "flush")
    machine("space", "detach", "vm")
    logs = {p["number"] for p in machine.json("space", "show", "vm")["allocations"] if p["part"] == "Journal"}
    assert len(logs) == 2, logs
    assert machine.server.stop() == 0
    away = {machine.path("abcdef"[n]): machine.disks / f"away-{n}" for n in logs}
    for path, kept in away.items():
        path.rename(kept)
    machine.server.start()
    report = machine.health()[0]
    fault = find(machine, "VirtualDisks.Detached")
    assert fault and "cannot be opened" in fault["Reason"] and fault["RecommendedActions"], report
    assert max(f["PerceivedSeverity"] for f in report["faults"]) == 6, report
    space = machine.json("space", "show", "vm")
    assert (space["operational_status"], space["health_status"]) == ("Detached", "Unhealthy"), space
    refused = machine("space", "attach", "vm", "--nbd", str(machine.disks / "refused.sock"), status=None)
    assert "cannot be opened" in refused, refused
    for path, kept in away.items():
        kept.rename(path)
    until(lambda: find(machine, "VirtualDisks.Detached") is None, timeout=60, what=f"it is open: {machine.server.log}")
    machine.attach()
    machine.qemu_io("read -P 5 0 8M")
