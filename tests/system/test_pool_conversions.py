"""Virtual disks that are converted to parity and back while they are in use, on pools of plain files."""

import time

from harness.programs import until
from test_pool import machine, pytestmark  # noqa: F401  the fixture and the marks
from test_pool_admin import all_written, load_on, until_idle
from test_pool_copies import space
from test_pool_media import data_on


def until_converted(machine, resiliency, columns):
    """All of its data is in rows of this shape."""
    def done():
        now = space(machine)
        return "converted_percent" not in now and (now["resiliency"], now["columns"]) == (resiliency, columns)
    until(done, timeout=180, what=f"{resiliency} with {columns} columns: {machine.server.log}")
    until_idle(machine)
    until(lambda: space(machine)["health_status"] == "Healthy", timeout=60, what=f"healthy: {machine.server.log}")


def test_a_mirror_becomes_parity_and_a_mirror_again_under_load_and_kill_9(machine):
    machine.pool("abcde")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 9 26M 20M", "flush")
    columns = space(machine)["columns"]
    load = load_on(machine)
    time.sleep(0.3)
    told = machine("space", "set", "vm", "--resiliency", "parity")
    assert "is converted to parity" in told and "causeway job list" in told, told
    reads = all_written(load)
    until_converted(machine, "Parity", 4)
    assert space(machine)["redundancy"] == 1 and space(machine)["efficiency"] == 75
    # A lost disk is recovered from the others.
    away = min(data_on(machine))
    machine("pool", "offline-disk", "tank", str(away))
    machine.qemu_io(*reads, "read -P 9 26M 20M", "write -P 7 46M 1M", "flush")
    machine("disk", "return", f"tank/{away}")
    until_idle(machine)
    machine.until_healthy()
    # Back to a mirror, with the server dying on the way.
    machine("space", "set", "vm", "--resiliency", "mirror", "--columns", str(columns))
    machine.kill_and_start()
    until_converted(machine, "Mirror", columns)
    machine.attach()
    machine.qemu_io(*reads, "read -P 9 26M 20M", "read -P 7 46M 1M")
    # Nothing of the former rows is left.
    assert space(machine)["efficiency"] == 50 and space(machine)["footprint"] <= 2 * space(machine)["size"]


def test_columns_change_and_a_conversion_is_not_interrupted(machine):
    machine.pool("abcde")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 5 0 40M", "flush")
    told = machine("space", "set", "vm", "--resiliency", "dual-parity", "--columns", "4")
    assert "survives the loss of 2 disks" in told, told
    # The change may have ended already; otherwise another one has to wait.
    if "converted_percent" in space(machine):
        told = machine.refused("space", "set", "vm", "--resiliency", "mirror")
        assert "is being converted" in told and "causeway job list" in told, told
    until_converted(machine, "Parity", 4)
    assert space(machine)["redundancy"] == 2
    machine.qemu_io("read -P 5 0 40M")
    told = machine.refused("space", "set", "vm", "--columns", "9")
    assert "disks are needed" in told, told
