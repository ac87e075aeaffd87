"""Virtual disks of a pool as files of a share: through our client, smbclient and smbprotocol with signing as shipped, and compared with
what NBD and qemu-img see."""

import hashlib
import json
import random
import re
import struct

import pytest

from harness import guest, protocol as p
from harness.programs import run, until
from harness.protocol import Client
from harness.servers import Causeway
from harness.smbclient import SmbClient
from test_pool import MIB, SPACE, Machine, machine, pytestmark  # noqa: F401  the fixture and the marks

SLAB = MIB  # the smallest, which a pool of small disks has
SET_ZERO_DATA, QUERY_RANGES, SET_SPARSE = 0x980C8, 0x940CF, 0x900C4
DEVICE_NOT_READY, DISK_FULL, WRITE_PROTECTED = 0xC00000A3, 0xC000007F, 0xC00000A2
DISPOSITION, END_OF_FILE, RENAME, STANDARD = 13, 20, 10, 5


@pytest.fixture
def share(machine):
    """A pool of two disks, and a share of its virtual disks."""
    machine.pool("ab")
    machine("share", "add", "vms", "--pool", "tank")
    return machine


def client(machine, share="vms"):
    return Client(machine.server, share=share)


def smb(machine):
    return SmbClient(machine.server, share="vms")


def listed(machine):
    """The files and their sizes; smbclient's letters before a size are attributes."""
    return {name: int(size) for name, size in re.findall(r"^  (\S+\.\w+) +\w* +(\d+)  ", smb(machine)("ls").out, re.M)}


def cli(machine, *words, status=0):
    environment = {"CAUSEWAY_PASSWORD": machine.server.password}
    return run([Causeway.binary, *words], status=status, env=environment, timeout=60).out


def url(machine, name):
    server = machine.server
    return f"smb://{server.user}@{server.host}:{server.port}/vms/{name}"


def names(machine):
    return {s["name"]: s["size"] for s in machine.json("space", "list")}


def set_size(file, size, status=p.SUCCESS):
    file.set(p.FILE, END_OF_FILE, struct.pack("<Q", size), status)


def size_of(file):
    return struct.unpack_from("<Q", file.query(p.FILE, STANDARD), 8)[0]


def test_put_and_get_are_what_nbd_reads(share):
    data = random.Random(1).randbytes(5 * MIB)
    local = share.server.folder / "local"
    local.write_bytes(data)
    cli(share, "put", local, url(share, "vm.img"))
    assert names(share) == {"vm": 5 * MIB}
    shown = share.json("share", "list")
    assert [(s["backend"], s["pool"]) for s in shown if s["name"] == "vms"] == [("spaces", "tank")]
    share.attach("vm")
    raw = share.server.folder / "raw"
    run(["qemu-img", "convert", "-f", "raw", "-O", "raw", share.url("vm"), raw])
    assert raw.read_bytes() == data
    share.qemu_io("write -P 7 4096 8k", "flush")
    back = share.server.folder / "back"
    cli(share, "get", url(share, "vm.img"), back)
    assert back.read_bytes() == data[:4096] + bytes([7]) * 8192 + data[12288:]
    share("space", "detach", "vm")


def test_a_file_is_both_forms_and_the_vhd_is_one_to_qemu(share):
    with client(share) as c, c.open("vm.img", disposition=p.CREATE) as f:
        set_size(f, SPACE)
        f.write(b"x" * 8192, 1 << 20)
        # Share modes hold across the two names: they are one file.
        c.open("VM.VHD", share=p.SHARE_NONE, status=p.SHARING_VIOLATION)
    assert listed(share) == {"vm.img": SPACE, "vm.vhd": SPACE + 512}
    image, vhd = share.server.folder / "vm.img", share.server.folder / "vm.vhd"
    smb(share)(f"get vm.img {image}", f"get vm.vhd {vhd}")
    told = json.loads(run(["qemu-img", "info", "--output=json", "-f", "vpc", vhd]).out)
    assert told["virtual-size"] == SPACE
    run(["qemu-img", "compare", "-f", "raw", "-F", "vpc", image, vhd])


def test_a_vhd_that_is_copied_there_is_the_one_that_comes_back(share):
    """Its writer's footer is kept, behind data that was written in pieces of any size."""
    vhd, raw = share.server.folder / "made.vhd", share.server.folder / "made.raw"
    raw.write_bytes(random.Random(2).randbytes(3 * MIB))
    run(["qemu-img", "convert", "-f", "raw", "-O", "vpc", "-o", "subformat=fixed,force_size=on", raw, vhd])
    data = vhd.read_bytes()
    assert len(data) == 3 * MIB + 512
    smb(share)(f"put {vhd} there.vhd")
    with client(share) as c, c.open("pieces.vhd", disposition=p.CREATE) as f:
        for at in range(0, len(data), 65536 + 512):
            f.write(data[at : at + 65536 + 512], at)
    for name in ("there", "pieces"):
        back = share.server.folder / name
        smb(share)(f"get {name}.vhd {back}")
        assert back.read_bytes() == data, name
    assert names(share) == {"there": 3 * MIB, "pieces": 3 * MIB}


def test_a_dynamic_vhd_is_refused(share):
    vhd, raw = share.server.folder / "dynamic.vhd", share.server.folder / "dynamic.raw"
    raw.write_bytes(bytes(3 * MIB))
    run(["qemu-img", "convert", "-f", "raw", "-O", "vpc", "-o", "subformat=dynamic", raw, vhd])
    assert "STATUS_NOT_SUPPORTED" in cli(share, "put", vhd, url(share, "vm.vhd"), status=1)
    assert share.server.output().count("subformat=fixed,force_size=on") == 1


def test_put_resume_needs_a_share_with_other_names(share):
    local = share.server.folder / "local"
    local.write_bytes(bytes(MIB))
    assert "copy without --resume" in cli(share, "put", "--resume", local, url(share, "vm.img"), status=1)


def test_zeroed_ranges_give_their_room_back(share):
    def footprint():
        return share.json("space", "show", "vm")["footprint"]

    with client(share) as c, c.open("vm.img", disposition=p.CREATE) as f:
        set_size(f, SPACE)
        assert footprint() == 0 and f.ioctl(QUERY_RANGES, struct.pack("<QQ", 0, SPACE)) == b""
        for at in range(0, 24 * MIB, MIB):
            f.write(b"\x05" * MIB, at)
        f.flush()
        full = footprint()
        assert full >= 48 * MIB
        ranges = f.ioctl(QUERY_RANGES, struct.pack("<QQ", 0, SPACE))
        assert struct.unpack_from("<Q", ranges)[0] == 0 and sum(struct.unpack(f"<{len(ranges) // 8}Q", ranges)[1::2]) >= 24 * MIB
        f.ioctl(SET_ZERO_DATA, struct.pack("<QQ", 100, 24 * MIB))
        f.flush()
        assert f.read(200) == b"\x05" * 100 + bytes(100)
        assert f.read(4096, 12 * MIB) == bytes(4096)
        until(lambda: footprint() < full / 2, timeout=30, what=f"less than {full}")


def test_rows_that_a_file_gives_back_take_no_room_on_the_host(share):
    share("share", "add", "free", "--pool", "tank", "--allow-delete")
    row = 2 * MIB

    def used():
        return sum(disk.stat().st_blocks * 512 for disk in (share.server.folder / "disks").glob("*.disk"))

    def fill(f, end):
        for at in range(0, end, MIB):
            f.write(b"\x05" * MIB, at)
        f.flush()

    with client(share, "free") as c, c.open("vm.img", disposition=p.CREATE) as f:
        fill(f, row)
        few = used()
        fill(f, 24 * MIB)
        assert used() > few + 40 * MIB
        set_size(f, row)
        assert used() < few + MIB
        # A file that is made longer again has zeros there, not what the disks held.
        set_size(f, 24 * MIB)
        assert f.read(4096, 12 * MIB) == bytes(4096) and f.read(4096, row - 4096) == b"\x05" * 4096
        fill(f, 24 * MIB)
        f.set(p.FILE, DISPOSITION, b"\1")
    until(lambda: used() < few, timeout=30, what=f"less than {few}")


def test_sizes_go_both_ways_while_another_disk_is_attached(share):
    share.mirror("other")
    share.attach("other")
    share.qemu_io("write -P 3 0 1M", name="other")
    with client(share) as c, c.open("vm.img", disposition=p.CREATE) as f:
        f.write(b"abc", 5)
        assert size_of(f) == 4096 and f.read(10) == bytes(5) + b"abc" + bytes(2)
        set_size(f, 16 * MIB)
        f.write(b"end", 16 * MIB - 3)
        set_size(f, 2 * MIB)
        set_size(f, 16 * MIB)
        assert f.read(3, 16 * MIB - 3) == bytes(3), "what was cut off does not come back"
        assert f.read(10) == bytes(5) + b"abc" + bytes(2)
        set_size(f, 16 * MIB - 5)
        assert size_of(f) == 16 * MIB, "lengths are rounded up to whole blocks"
        assert "have the virtual disk vm open" in share.refused("space", "resize", "vm", "--size", "8MiB")
        assert "have the virtual disk vm open" in share.refused("space", "destroy", "vm", "--yes")
        assert "have the virtual disk vm open" in share.refused("space", "rename", "vm", "new")
        assert "nothing to change" in share("space", "rename", "vm", "vm")
        assert "other of the pool tank is attached" in share.refused("pool", "export", "tank")
    # An attached one grows, but does not become smaller under its other client.
    with client(share) as c, c.open("other.img") as f:
        set_size(f, 2 * SPACE)
        set_size(f, MIB, p.SHARING_VIOLATION)
        f.write(b"new", 2 * SPACE - 3)
        f.flush()
    share.qemu_io("read -P 3 0 1M", f"read -P 0 {SPACE} 1M", f"write -P 4 {SPACE} 1M", name="other")
    share("space", "detach", "other")
    share("space", "resize", "vm", "--size", "8MiB")
    assert names(share)["vm"] == 8 * MIB


def test_an_appended_file_has_its_length_after_a_flush(share):
    with client(share) as c:
        f = c.open("vm.img", disposition=p.CREATE)
        for n in range(10):
            f.write(bytes([n + 1]) * 4096, n * 4096)
        assert size_of(f) == 40960
        f.flush()
        assert names(share) == {"vm": 40960}
        share.server.kill()
    share.server.restart()
    with client(share) as c, c.open("vm.img", disposition=p.OPEN) as f:
        assert size_of(f) == 40960
        assert f.read(40960) == b"".join(bytes([n + 1]) * 4096 for n in range(10))


def test_renaming_renames_the_virtual_disk(share):
    def rename(file, to, status=p.SUCCESS):
        wide = to.encode("utf-16-le")
        file.set(p.FILE, RENAME, struct.pack("<B7xQI", 0, 0, len(wide)) + wide, status)

    with client(share) as c:
        c.open("one.img", disposition=p.CREATE).close()
        c.open("two.img", disposition=p.CREATE).close()
        with c.open("one.img") as f:
            rename(f, "two.vhd", p.OBJECT_NAME_COLLISION)
            rename(f, "three.txt", p.OBJECT_NAME_INVALID)
            rename(f, "three.vhd")
        c.open("one.img", disposition=p.OPEN, status=p.OBJECT_NAME_NOT_FOUND)
        c.open("notes.txt", disposition=p.CREATE, status=p.OBJECT_NAME_INVALID)
    assert set(names(share)) == {"two", "three"}
    share("space", "rename", "three", "four")
    assert "'two' is taken" in share.refused("space", "rename", "four", "two")
    assert set(listed(share)) == {"two.img", "two.vhd", "four.img", "four.vhd"}


def test_deleting_asks_the_share(share):
    share("share", "add", "free", "--pool", "tank", "--allow-delete", "--resiliency", "simple")
    with client(share) as c:
        with c.open("vm.img", disposition=p.CREATE) as f:
            f.set(p.FILE, DISPOSITION, b"\1", p.CANNOT_DELETE)
        c.open("vm.img", options=p.DELETE_ON_CLOSE, status=p.CANNOT_DELETE)
    assert names(share) == {"vm": 0}
    with client(share, "free") as c:
        with c.open("vm.vhd", disposition=p.OPEN) as f:
            f.set(p.FILE, DISPOSITION, b"\1")
        assert names(share) == {}
        with c.open("vm.img", disposition=p.CREATE, options=p.DELETE_ON_CLOSE):
            share.refused("space", "rename", "vm", "other")
        assert names(share) == {}, "the deletion is not lost"
        c.open("new.img", disposition=p.CREATE).close()
    assert share.json("space", "show", "new")["resiliency"] == "Simple"
    assert "allow_delete = true" in share.server.config.read_text()


def test_what_was_flushed_is_there_after_kill_9(share):
    data = random.Random(3).randbytes(2 * MIB)
    with client(share) as c:
        f = c.open("vm.img", disposition=p.CREATE)
        set_size(f, SPACE)
        for at in range(0, len(data), MIB):
            f.write(data[at : at + MIB], at)
        f.flush()
        share.server.kill()
    share.server.restart()
    with client(share) as c, c.open("vm.img", disposition=p.OPEN) as f:
        assert b"".join(f.read(MIB, at) for at in range(0, len(data), MIB)) == data


def test_without_its_pool_a_share_says_so(share):
    with client(share) as c:
        with c.open("vm.img", disposition=p.CREATE) as f:
            set_size(f, SPACE)
            assert "have the virtual disk vm open" in share.refused("pool", "export", "tank")
        share("pool", "export", "tank")
        c.open("vm.img", status=DEVICE_NOT_READY)
        c.open("new.img", disposition=p.CREATE, status=DEVICE_NOT_READY)
        assert share.server.output().count("the pool tank is not open") == 1, "logged once"
        share("pool", "import", "tank")
        with c.open("vm.img", disposition=p.OPEN) as f:
            f.write(b"here again" * 4096)


def test_a_full_pool_and_one_for_reading_only_say_so(share):
    with client(share) as c:
        with c.open("vm.img", disposition=p.CREATE) as f:
            set_size(f, 1024 * MIB)
            f.write(b"here" * 1024)
            with pytest.raises(p.Status) as full:
                for at in range(0, 256 * MIB, MIB):
                    f.write(b"x" * MIB, at)
            assert full.value.got == DISK_FULL
            f.ioctl(SET_ZERO_DATA, struct.pack("<QQ", 4096, 1024 * MIB))
            f.flush()
            f.write(b"x" * MIB, 512 * MIB)
        share("pool", "export", "tank")
        share("pool", "import", "tank", "--read-only")
        with c.open("vm.img", disposition=p.OPEN) as f:
            assert f.read(4096, 512 * MIB) == b"x" * 4096
            f.write(b"y" * 4096, status=WRITE_PROTECTED)
        c.open("new.img", disposition=p.CREATE, status=WRITE_PROTECTED)


def test_attachments_come_back_after_kill_9_and_after_a_stop(share):
    share.mirror()
    share.attach()
    share.qemu_io("write -P 5 0 1M", "flush")
    for end in (share.server.kill, share.server.stop):
        end()
        share.server.restart()
        assert share.json("space", "show", "vm")["attached"] == str(share.socket)
        share.qemu_io("read -P 5 0 1M")
        # A script that attaches at each start still works.
        share.attach()
        assert "is attached to" in share.refused("space", "attach", "vm", "--nbd", share.socket, "--read-only")
    share("space", "detach", "vm")
    share.server.kill()
    share.server.restart()
    assert "attached" not in share.json("space", "show", "vm")
    assert "is not attached" in share.refused("space", "detach", "vm")
    # And the share is there again.
    assert set(listed(share)) == {"vm.img", "vm.vhd"}


BOOTED = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
grep ' / ' /proc/mounts
rm /ballast
head -c 3000000 /dev/urandom > /data
sha256sum < /data > /sum
sync
fstrim -v /
mount -o remount,ro /
echo BOOTED $(cat /sum)
poweroff -f
"""
IN_GUEST = """
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
fail() {{ echo "FAILED: $*"; dmesg | grep -iE 'cifs|smb' | tail -20; exit 1; }}
mkdir -p /mnt/x /host
rdma link add siw0 type siw netdev $ETH
ping -c 1 -W 10 {server.host} > /dev/null || fail network
mount.cifs //{server.host}/vms /mnt/x -o "username={server.user},password={server.password},vers=3.1.1,cache=none,hard,{transport}" || fail mount
echo MOUNTED $(grep ' cifs ' /proc/mounts)
[ "$(ls /mnt/x)" = "$(printf 'vm.img\\nvm.vhd')" ] || fail "$(ls /mnt/x)"
# A root file system of what this guest has, made on the file.
mkdir -p /tmp/root/proc /tmp/root/sys /tmp/root/dev
cp -a /bin /sbin /lib /lib64 /usr /tmp/root/ 2>/dev/null || true
cp /files/booted /tmp/root/booted
head -c 20000000 /dev/zero | tr '\\0' x > /tmp/root/ballast
mke2fs -q -F -t ext4 -b 4096 -d /tmp/root /mnt/x/vm.img || fail mke2fs
sync
# The host's QEMU, as a process of this kernel.
mount -t hostfs -o / host /host
mount --bind /mnt/x /host/mnt
mount --bind /dev /host/dev
mount -t proc proc /host/proc
chroot /host /usr/bin/qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none -machine q35 -accel tcg,tb-size=64 -cpu max -m 192 \\
  -kernel {kernel} -append "console=ttyS0 root=/dev/vda rw init=/booted panic=-1 mitigations=off" \\
  -drive file=/mnt/vm.img,if=virtio,format=raw,cache=none,aio=threads,discard=unmap -serial stdio || fail qemu
umount /host/mnt /mnt/x
"""


@pytest.mark.skipif(guest.unavailable_reason() is not None, reason=str(guest.unavailable_reason()))
@pytest.mark.parametrize("transport", ["tcp", "rdma"])
def test_qemu_boots_from_a_file_over_the_kernels_client(kind, scratch, transport):
    """QEMU runs in a guest (user-mode Linux) whose kernel has the share mounted, and boots Linux from vm.img with O_DIRECT and trim."""
    with guest.Network(mtu=1500) as network:
        server = kind(scratch / f"boot-{transport}", host=guest.HOST, port=445, iwarp_port=5445, prefix=network.prefix)
        server.storage = {"devices": [str(server.folder / "disks" / "*.disk")]}
        machine = Machine(server.start())
        try:
            machine("disk", "create-file", *machine.paths("ab"), "--size", "512MiB")
            machine("pool", "create", "tank", "--assume-atomic", "--disk", *machine.paths("ab"))
            machine("space", "create", "vm", "--pool", "tank", "--resiliency", "mirror", "--size", "256MiB")
            machine("share", "add", "vms", "--pool", "tank")
            booted = server.folder / "booted"
            booted.write_text(BOOTED)
            booted.chmod(0o755)
            script = IN_GUEST.format(server=server, transport={"tcp": "port=445", "rdma": "rdma"}[transport], kernel=guest.unpacked(guest.QEMU))
            out = guest.boot(network, script, files=[booted], timeout=400).out
            [mounted] = re.findall("^MOUNTED.*", out, re.M)
            assert (",rdma" in mounted) == (transport == "rdma"), mounted
            assert re.search(r"/dev/root / ext4 rw|/dev/vda / ext4 rw", out), out[-3000:]
            [said] = re.findall(r"BOOTED ([0-9a-f]{64})", out)
            machine.attach()
            image = server.folder / "image"
            run(["qemu-img", "convert", "-f", "raw", "-O", "raw", machine.url(), image])
            run(["e2fsck", "-fn", image])
            run(["debugfs", "-R", f"dump /data {server.folder / 'data'}", image])
            assert hashlib.sha256((server.folder / "data").read_bytes()).hexdigest() == said
            assert re.search(r"/: \d\d.* trimmed", out), out[-3000:]
        finally:
            server.stop()
