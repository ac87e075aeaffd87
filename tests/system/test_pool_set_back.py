"""A disk that comes back as an older image of itself, on pools of plain files: nothing that was flushed is lost."""

import shutil
import time

from harness.programs import run, until
from test_pool import Causeway, machine, pytestmark  # noqa: F401  the fixture and the marks
from test_pool_admin import until_idle
from test_pool_media import data_on


def take_offline(machine, disk):
    """Takes a disk offline as soon as the pool allows it; the refusals until then."""
    refusals = []

    def done():
        control = {"CAUSEWAY_CONTROL": f"{machine.server.sockets.name}/control.sock"}
        told = run([Causeway.binary, "pool", "offline-disk", "tank", str(disk)], status=None, env=control)
        refusals.extend([] if told.status == 0 else [told.out])
        return told.status == 0

    until(done, timeout=60, what=f"the disk {disk} is offline: {refusals[-1:]} {machine.server.log}")
    return refusals


def test_a_set_back_disk_is_found_before_another_may_leave(machine):
    """After a crash one disk is older than the others by a flush. The pool's metadata does not know it; the log does."""
    machine.pool("abc")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 1 0 16M", "flush", "write -P 69 0 16M", "flush")
    parts = machine.json("space", "show", "vm")["allocations"]
    logs = {p["number"] for p in parts if p["part"] == "Journal"}
    back = min(data_on(machine) - logs)
    [other] = [n for n in data_on(machine) & logs][:1]
    file = machine.path("abc"[back])
    kept = machine.disks / "kept"
    shutil.copyfile(file, kept)
    machine.qemu_io("write -P 70 0 16M", "flush")
    machine.server.kill()
    kept.replace(file)
    machine.server.start()
    for refusal in take_offline(machine, other):
        assert "after a crash" in refusal and "causeway job list" in refusal, refusal
    machine.attach()
    machine.qemu_io("read -P 70 0 16M")
    machine("disk", "return", f"tank/{other}")
    until_idle(machine)
    machine.until_healthy()
    time.sleep(0.5)
    machine.qemu_io("read -P 70 0 16M")
