"""Virtual disks with a class of media, on pools of plain files that are set to be SSDs and HDDs."""

import re
import time

from harness.programs import until
from test_pool import DISK, MIB, SPACE, machine, pytestmark  # noqa: F401  the fixture and the marks
from test_pool_admin import all_written, disks, load_on, until_idle

HDD, SSD, UNKNOWN = "cd", "ab", "e"


def mixed(machine):
    """Disks 0 and 1 are HDDs, 2 and 3 SSDs, and of 4 nothing is known."""
    machine("disk", "create-file", *machine.paths(HDD + SSD + UNKNOWN), "--size", DISK)
    machine("pool", "create", "tank", "--assume-atomic", "--media", "hdd", "--disk", *machine.paths(HDD))
    machine("pool", "add-disk", "tank", "--assume-atomic", "--media", "ssd", "--disk", *machine.paths(SSD))
    machine("pool", "add-disk", "tank", "--assume-atomic", "--disk", *machine.paths(UNKNOWN))
    until_idle(machine)


def on(machine):
    """The disks that something lies on."""
    return {n for n, d in disks(machine).items() if d["allocated"] > 0}


def data_on(machine, name="vm"):
    """The disks that the data of a virtual disk lies on. Its log may lie on faster ones."""
    return {a["number"] for a in machine.json("space", "show", name)["allocations"] if a["part"] == "Data"}


def test_a_virtual_disk_lies_on_its_media_and_waits_for_them(machine):
    mixed(machine)
    assert [d["media_type"] for d in disks(machine).values()] == ["HDD", "HDD", "SSD", "SSD", "Unspecified"]
    machine("pool", "set", "tank", "--repair-after", "1s")
    told = machine.refused("space", "create", "no", "--pool", "tank", "--media", "nvme", "--size", "8MiB")
    assert "2 NVMe disks are needed and the pool tank has 0" in told and "causeway disk set tank/4 --media" in told, told
    told = machine.refused("space", "create", "no", "--pool", "tank", "--media", "ssd", "--size", "8MiB", "--resiliency", "three-way-mirror")
    assert "3 SSD disks are needed and the pool tank has 2" in told, told
    machine("space", "create", "all", "--pool", "tank", "--media", "ssd", "--max")
    largest = machine.json("space", "show", "all")["size"]
    assert DISK // 2 < largest < DISK, "what two SSDs have room for in two copies"
    machine("space", "destroy", "all", "--yes")
    machine("space", "create", "vm", "--pool", "tank", "--media", "ssd", "--size", SPACE)
    assert machine.json("space", "show", "vm")["media_type"] == "SSD"
    assert re.search(r"ProvisioningType +MediaType .*\n.*\n.*Thin +SSD", machine("space", "list"))
    machine.attach()
    machine.qemu_io("write -P 5 0 20M", "flush")
    assert on(machine) == {2, 3}
    shown = machine("pool", "show", "tank")
    assert re.search(r"MediaType +: SSD: 2 disks, .* allocated", shown) and re.search(r"MediaType +: HDD: 2 disks, .*, 0 of it allocated", shown), shown
    # One of the two is lost: what it had waits, although there is room elsewhere.
    machine.server.kill()
    machine.lose("b")
    machine.server.start()
    waits = lambda: [j for j in machine.json("job", "list") if j["name"] == "Rebuild" and "SSD disk" in (j.get("reason") or "")]
    until(waits, timeout=60, what=f"the job says what it waits for: {machine.server.log}")
    assert "with room" in waits()[0]["reason"]
    machine.attach()
    machine.qemu_io("read -P 5 0 20M", "write -P 6 20M 1M", "flush")
    time.sleep(2)
    assert on(machine) == {2, 3}
    # Another disk is set to be an SSD, too: the job notices within a minute.
    assert "has the medium SSD" in machine("disk", "set", "tank/4", "--media", "ssd")
    until(lambda: on(machine) == {2, 4}, timeout=50, what=f"rebuilt: {machine.server.log}")
    until_idle(machine)
    assert machine.status()["virtual_disks"][0]["health_status"] == "Healthy"
    machine.qemu_io("read -P 5 0 20M", "read -P 6 20M 1M")


def test_a_virtual_disk_changes_its_media_under_load_and_kill_9(machine):
    mixed(machine)
    machine.mirror("other")
    machine("space", "destroy", "other", "--yes")
    machine("space", "create", "vm", "--pool", "tank", "--media", "ssd", "--size", SPACE)
    machine.attach()
    machine.qemu_io("write -P 9 26M 20M", "flush")
    assert on(machine) == {2, 3}
    for media, why in [("scm", "2 SCM disks are needed"), ("nvme,scm", "2 NVMe or SCM disks are needed")]:
        assert why in machine.refused("space", "set", "vm", "--media", media)
    load = load_on(machine)
    time.sleep(0.3)
    assert "are moved there" in machine("space", "set", "vm", "--media", "hdd")
    reads = all_written(load)
    until(lambda: data_on(machine) == {0, 1}, timeout=120, what=f"moved: {machine.server.log}")
    until_idle(machine)
    assert on(machine) <= {0, 1, 2, 3}
    machine.qemu_io(*reads, "read -P 9 26M 20M")
    # Back, and the server dies in the middle: the move continues at the next start.
    machine("space", "set", "vm", "--media", "flash")
    machine.kill_and_start()
    until(lambda: on(machine) == {2, 3}, timeout=120, what=f"moved: {machine.server.log}")
    until_idle(machine)
    assert machine.json("space", "show", "vm")["media_type"] == "SSD, NVMe, SCM"
    machine.attach()
    machine.qemu_io(*reads, "read -P 9 26M 20M")
    # A disk turns out to be something else: what lies on it moves to where it should be.
    machine("disk", "set", "tank/4", "--media", "nvme")
    told = machine("disk", "set", "tank/2", "--media", "hdd")
    assert "are on other media" in told, told
    until(lambda: on(machine) == {3, 4}, timeout=120, what=f"moved: {machine.server.log}")
    until_idle(machine)
    # There is no other disk for it: health says so, and the virtual disk may lie anywhere again.
    machine("disk", "set", "tank/3", "--media", "hdd")
    until(lambda: "VirtualDisks.OtherMedia" in str(machine.health()[0]), timeout=30, what="a fault")
    machine("space", "set", "vm", "--media", "any")
    assert machine.json("space", "show", "vm")["media_type"] == "Unspecified"
    until(lambda: "VirtualDisks.OtherMedia" not in str(machine.health()[0]), timeout=30, what="no fault")
    machine.qemu_io(*reads, "read -P 9 26M 20M")


def test_parity_changes_its_media_and_its_journal_goes_to_faster_ones(machine):
    machine("disk", "create-file", *machine.paths("abcdefg"), "--size", DISK)
    machine("pool", "create", "tank", "--assume-atomic", "--media", "hdd", "--disk", *machine.paths("abcd"))
    machine("pool", "add-disk", "tank", "--assume-atomic", "--media", "ssd", "--disk", *machine.paths("efg"))
    machine("space", "create", "vm", "--pool", "tank", "--media", "hdd", "--resiliency", "parity", "--size", SPACE)
    machine.attach()
    machine.qemu_io("write -P 5 0 8M", "flush")
    allocated = {n: d["allocated"] for n, d in disks(machine).items()}
    journal = [n for n in (4, 5, 6) if allocated[n] > 0]
    assert sum(allocated[n] > 0 for n in range(4)) >= 3 and len(journal) == 2, allocated
    machine("space", "set", "vm", "--media", "hdd,ssd")
    assert machine.json("space", "show", "vm")["media_type"] == "HDD, SSD"
    machine.qemu_io("read -P 5 0 8M")
    # To other media while QEMU writes, the journal with it; and back, with the server dying on the way.
    load = load_on(machine, writes=2000)
    assert "are moved there" in machine("space", "set", "vm", "--media", "ssd")
    until(lambda: on(machine) == {4, 5, 6}, timeout=120, what=f"moved: {machine.server.log}")
    reads = all_written(load, writes=2000)
    until_idle(machine)
    machine.qemu_io(*reads)
    machine("space", "set", "vm", "--media", "hdd")
    time.sleep(0.1)
    machine.kill_and_start()
    until(lambda: len(on(machine) & {0, 1, 2, 3}) >= 3 and not on(machine) - set(range(4)) - set(journal), timeout=120, what=f"moved: {machine.server.log}")
    until_idle(machine)
    machine.attach()
    machine.qemu_io(*reads)
