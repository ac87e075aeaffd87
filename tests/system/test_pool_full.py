"""Pools on sparse files whose file system runs full: writes fail with ENOSPC, nothing is lost, and with room again the pool continues."""

import json
import os
import shutil
import subprocess

import pytest

from harness.programs import run, until
from test_pool import MIB, Machine, machine, pytestmark as pool_marks  # noqa: F401  the fixture

pytestmark = [
    *pool_marks,
    pytest.mark.skipif(os.geteuid() != 0, reason="to mount needs root"),
    pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="no mkfs.ext4"),
]

# The file system, what lies on it beside the disks and can be removed, and what the disks say they have.
ROOM, BALLAST, DISK = 160 * MIB, 64 * MIB, 128 * MIB


@pytest.fixture
def small(machine):
    """The machine, its disks on a file system of their own that is smaller than they are."""
    image = machine.server.folder / "image"
    with open(image, "wb") as file:
        file.truncate(ROOM)
    run(["mkfs.ext4", "-q", "-F", "-m", "0", image])
    if subprocess.run(["mount", "-o", "loop", image, machine.disks], capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    yield machine
    machine.server.stop()
    until(lambda: subprocess.run(["umount", machine.disks], capture_output=True).returncode == 0, timeout=20, what="it is unused")


def fill(machine):
    """Writes until there is no room; how many MiB were written, and flushed."""
    written = 0
    for at in range(0, 96, 2):
        out = run(["qemu-io", "-f", "raw", "-t", "none", "-c", f"write -P {at % 250 + 1} {at}M 2M", "-c", "flush", machine.url()], status=None).out
        if "failed" in out.lower():
            assert "No space left on device" in out, out
            return written
        written = at + 2
    raise AssertionError("there was room for all")


def reads(megabytes):
    return [f"read -P {at % 250 + 1} {at}M 2M" for at in range(0, megabytes, 2)]


@pytest.mark.parametrize(("words", "names"), [(["mirror"], "ab"), (["simple"], "a"), (["parity"], "abc")])
@pytest.mark.parametrize("crash", [True, False])
def test_a_full_file_system_fails_writes_and_nothing_else(small, words, names, crash):
    machine = small
    ballast = machine.disks / "ballast"
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, BALLAST)
    machine.pool(names)
    machine("space", "create", "vm", "--pool", "tank", "--resiliency", *words, "--size", "100MiB")
    machine.attach()
    written = fill(machine)
    assert written > 16, written
    # The metadata has its room: the pool takes changes, and everything is read.
    shown = machine.status()
    assert "Suspended" not in json.dumps(shown) and "Suspended" not in json.dumps(machine.health()), shown
    machine("pool", "rename", "tank", "tub")
    machine("pool", "rename", "tub", "tank")
    machine.qemu_io(*reads(written))
    report, to_do = machine.health()
    assert to_do and "full" in json.dumps(report) and "free space where the disk is stored" in json.dumps(report), report
    # Neither a crash nor a start without room changes that.
    if crash:
        machine.kill_and_start()
        machine.attach()
    machine.qemu_io(*reads(written))
    # Room, and a command for each disk that was removed from service.
    ballast.unlink()
    for disk in machine.status()["physical_disks"]:
        machine("disk", "return", f"tank/{disk['number']}")
    machine.qemu_io(*reads(written), f"write -P 251 {written}M 2M", "flush")
    machine.until_healthy()
    until(lambda: machine.health()[1] == 0, timeout=120, what="nothing is to be done")
    machine.qemu_io(*reads(written), f"read -P 251 {written}M 2M")
    machine("space", "detach", "vm")
    machine("pool", "export", "tank")


def test_a_pool_is_not_made_where_its_metadata_has_no_room(small):
    machine = small
    machine("disk", "create-file", *machine.paths("ab"), "--size", DISK)
    free = os.statvfs(machine.disks)
    with open(machine.disks / "ballast", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - MIB // 4)
    told = machine.refused("pool", "create", "tank", "--assume-atomic", "--disk", *machine.paths("ab"))
    assert "has no space for" in told and "free some space there" in told, told
    (machine.disks / "ballast").unlink()
    machine("pool", "create", "tank", "--assume-atomic", "--disk", *machine.paths("ab"))
