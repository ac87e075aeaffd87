"""A pool whose disks all fail at once is suspended, and resumes by itself when they are back; its clients keep their files."""

import array
import fcntl
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from harness.programs import run, until
from harness.protocol import Client, Status
from harness.servers import Causeway
from test_pool import MIB, Machine, machine, pytestmark as pool_marks  # noqa: F401  the fixture

pytestmark = [
    *pool_marks,
    pytest.mark.skipif(os.geteuid() != 0, reason="to mount needs root"),
    pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="no mkfs.ext4"),
]

# linux/ext4.h: every I/O fails from then on, as on a disk that was pulled; 1: what the journal has is written first.
EXT4_IOC_SHUTDOWN, LOG_FLUSH = 0x8004587D, 1


class Shelf:
    """Where the disks are: a file system that can be pulled and brought back."""

    def __init__(self, folder, image):
        self.folder, self.image, self.loops = folder, image, []

    def mount(self):
        found = subprocess.run(["losetup", "--find", "--show", self.image], capture_output=True, text=True)
        self.loops += found.stdout.split()
        if found.returncode != 0 or subprocess.run(["mount", *self.loops[-1:], self.folder], capture_output=True).returncode != 0:
            pytest.skip("nothing can be mounted here")

    def pull(self):
        at = os.open(self.folder, os.O_RDONLY)
        fcntl.ioctl(at, EXT4_IOC_SHUTDOWN, array.array("I", [LOG_FLUSH]))
        os.close(at)

    def reconnect(self):
        run(["umount", "-l", self.folder])
        # By another loop device: the first one stays busy until the last file of the old mount is closed.
        self.mount()

    def clear(self):
        run(["umount", "-l", self.folder])
        for loop in self.loops:
            run(["losetup", "--detach", loop])


@pytest.fixture
def shelf(machine):
    image = machine.server.folder / "image"
    with open(image, "wb") as file:
        file.truncate(640 * MIB)
    run(["mkfs.ext4", "-q", "-F", "-m", "0", image])
    shelf = Shelf(machine.disks, image)
    shelf.mount()
    yield shelf
    try:
        machine.server.stop()
    finally:
        shelf.clear()


def write(machine):
    words = ["qemu-io", "-f", "raw", "-t", "none", "-c", "write -P 4 16M 64k", machine.url()]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def suspended(machine):
    return "isks with metadata remain" in str(machine.status())


@pytest.mark.parametrize(("resiliency", "names"), [("mirror", "abc"), ("parity", "abcd"), ("simple", "a")])
def test_a_suspended_pool_resumes_with_its_clients(machine, shelf, resiliency, names):
    machine.pool(names)
    machine("space", "create", "vm", "--pool", "tank", "--resiliency", resiliency, "--size", "48MiB")
    machine("share", "add", "vms", "--pool", "tank", "--resiliency", resiliency)
    machine.attach()
    machine.qemu_io("write -P 1 0 4M", "flush")
    with Client(machine.server, share="vms") as client:
        file = client.open("vm.img")
        file.write(b"\2" * MIB, 8 * MIB)
        file.flush()
        # Not flushed: whether it is lost is known only later.
        file.write(b"\3" * MIB, 8 * MIB)
        shelf.pull()
        # It waits, and fails when the pool is opened again.
        waiting = write(machine)
        until(lambda: suspended(machine), timeout=60, what=f"it is suspended: {machine.server.log}")
        shelf.reconnect()
        machine.until_healthy()
        assert "write failed" in waiting.communicate(timeout=20)[0]
        # The same open file: its flush says once that something may be lost, and what was flushed is there.
        with pytest.raises(Status):
            file.flush()
        file.flush()
        assert set(file.read(MIB, 8 * MIB)) <= {2, 3}
        file.write(b"\5" * 4096, 12 * MIB)
        file.flush()
        file.close()
    # The same socket, whose first flush says the same.
    machine.qemu_io("flush", status=None)
    machine.qemu_io("read -P 1 0 4M", "read -P 5 12M 4k", "write -P 6 20M 1M", "flush")
    events = machine("event", "list")
    assert "it has resumed" in events, events
    # One that is suspended does not keep the server from ending.
    shelf.pull()
    waiting = write(machine)
    until(lambda: suspended(machine), timeout=60, what=f"it is suspended: {machine.server.log}")
    assert machine.server.stop() == 0
    assert "write failed" in waiting.communicate(timeout=20)[0]
    shelf.reconnect()
    machine.server.start()
    machine.until_healthy()
    machine.qemu_io("read -P 1 0 4M", "read -P 6 20M 1M")


def test_a_command_that_waits_for_it_does_not_keep_it_suspended(machine, shelf):
    machine.pool("abc")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 1 0 4M", "flush")
    shelf.pull()
    waiting = write(machine)
    until(lambda: suspended(machine), timeout=60, what=f"it is suspended: {machine.server.log}")
    environment = {**os.environ, "CAUSEWAY_CONTROL": str(Path(machine.server.sockets.name) / "control.sock")}
    detaching = subprocess.Popen([Causeway.binary, "space", "detach", "vm"], env=environment)
    with pytest.raises(subprocess.TimeoutExpired):
        detaching.wait(timeout=3)
    shelf.reconnect()
    machine.until_healthy()
    assert "write failed" in waiting.communicate(timeout=20)[0]
    detaching.wait(timeout=20)
    machine.attach()
    machine.qemu_io("flush", status=None)
    machine.qemu_io("read -P 1 0 4M")


def test_a_disk_that_fails_before_the_suspension_returns_too(machine, shelf):
    """Half of the disks are pulled under load: the first one that fails is taken out of service before the pool is suspended."""
    others = machine.server.folder / "others"
    others.mkdir()
    machine.server.stop()
    machine.server.storage = {"devices": [f"{others}/*.disk", f"{machine.disks}/*.disk"]}
    machine.server.start()
    paths = [folder / f"{name}.disk" for folder, names in ((others, "ab"), (machine.disks, "cd")) for name in names]
    machine("disk", "create-file", *paths, "--size", "128MiB")
    machine("pool", "create", "tank", "--assume-atomic", "--disk", *paths)
    machine("space", "create", "vm", "--pool", "tank", "--resiliency", "mirror", "--size", "48MiB")
    machine.attach()
    machine.qemu_io("write -P 1 0 32M", "flush")
    words = ["fio", "--name=load", "--ioengine=nbd", f"--uri={machine.url()}", "--rw=randwrite", "--bs=4k", "--iodepth=8", "--offset=32M",
             "--size=16M", "--time_based", "--runtime=30", "--eta=never"]
    load = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        shelf.pull()
        until(lambda: suspended(machine), timeout=60, what=f"it is suspended: {machine.server.log}")
        run(["umount", "-l", machine.disks])
        # For as long as it takes to pull a shelf and to put it back.
        time.sleep(6)
        shelf.mount()
        machine.until_healthy()
    finally:
        load.kill()
        load.wait()
    assert machine("disk", "list").count("Lost communication") == 0
    machine.qemu_io("flush", status=None)
    machine.qemu_io("read -P 1 0 32M")
