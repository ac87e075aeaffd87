"""Virtual disks whose number of copies changes while they are in use, on pools of plain files."""

import time

from harness.programs import until
from test_pool import DISK, MIB, SPACE, machine, pytestmark  # noqa: F401  the fixture and the marks
from test_pool_admin import all_written, disks, load_on, until_idle
from test_pool_media import data_on


def space(machine):
    return machine.json("space", "show", "vm")


def until_copies(machine, copies):
    """All of its data has them."""
    done = lambda: space(machine)["copies"] == copies and "copies_wanted" not in space(machine)
    until(done, timeout=120, what=f"{copies} copies: {machine.server.log}")
    until_idle(machine)
    until(lambda: space(machine)["health_status"] == "Healthy", timeout=60, what=f"healthy: {machine.server.log}")


def test_copies_are_made_and_given_up_under_load_and_kill_9(machine):
    machine.pool("abcd")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 9 26M 20M", "flush")
    assert (space(machine)["copies"], space(machine)["redundancy"]) == (2, 1)
    load = load_on(machine)
    time.sleep(0.3)
    told = machine("space", "set", "vm", "--redundancy", "2")
    assert "is changed to 3 copies" in told and "causeway job list" in told, told
    reads = all_written(load)
    until_copies(machine, 3)
    assert space(machine)["redundancy"] == 2 and len(data_on(machine)) >= 3
    logs = [a for a in space(machine)["allocations"] if a["part"] == "Journal"]
    assert len(logs) == 3, logs
    # Two disks with data are taken away: the third copy has everything.
    away = sorted(data_on(machine))[:2]
    for disk in away:
        machine("pool", "offline-disk", "tank", str(disk))
    machine.qemu_io(*reads, "read -P 9 26M 20M", "write -P 7 46M 1M", "flush")
    for disk in away:
        machine("disk", "return", f"tank/{disk}")
    until_idle(machine)
    machine.until_healthy()
    footprint = space(machine)["footprint"]
    # Back to two copies, with the server dying on the way: a third of the room is free again.
    told = machine("space", "set", "vm", "--resiliency", "mirror")
    assert "which frees" in told, told
    machine.kill_and_start()
    until_copies(machine, 2)
    assert space(machine)["footprint"] == footprint * 2 // 3
    machine.attach()
    machine.qemu_io(*reads, "read -P 9 26M 20M", "read -P 7 46M 1M")
    # One copy, and two again while QEMU writes.
    machine("space", "set", "vm", "--resiliency", "simple")
    until_copies(machine, 1)
    load = load_on(machine, writes=2000)
    machine("space", "set", "vm", "--resiliency", "mirror")
    reads = all_written(load, writes=2000)
    until_copies(machine, 2)
    machine.qemu_io(*reads, "read -P 9 26M 20M", "read -P 7 46M 1M")


def test_a_change_of_copies_that_cannot_be_says_why(machine):
    machine.pool("ab")
    machine.mirror()
    told = machine.refused("space", "set", "vm", "--redundancy", "2")
    assert "3 disks are needed and the pool tank has 2" in told and "causeway pool add-disk" in told, told
    told = machine.refused("space", "set", "vm", "--resiliency", "parity")
    assert "3 disks are needed and the pool tank has 2" in told, told
    assert "has 2 copies of its data now" in machine("space", "set", "vm", "--resiliency", "mirror")
    # A virtual disk without data changes at once.
    machine("space", "set", "vm", "--resiliency", "simple")
    until_copies(machine, 1)
    assert machine.json("space", "list")[0]["resiliency"] == "Simple" and disks(machine)
