"""Pools on plain files, driven by `causeway disk`, `pool` and `space`; what is on their virtual disks by QEMU over NBD, across kill -9 and lost disks."""

import contextlib
import fcntl
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from harness.programs import Failed, in_terminal, plain, run, until
from harness.schema import validated
from harness.servers import Causeway

pytestmark = [
    pytest.mark.skipif(not Causeway.binary.exists(), reason="causeway is not built"),
    pytest.mark.skipif(shutil.which("qemu-io") is None, reason="qemu-io is missing: scripts/setup test"),
]
MIB = 1 << 20
DISK, SPACE = 128 * MIB, 48 * MIB


class Machine:
    """A server, its folder of disk files, and qemu-io."""

    def __init__(self, server):
        self.server = server
        self.disks = server.folder / "disks"
        self.disks.mkdir(exist_ok=True)
        self.socket = Path(server.sockets.name) / "nbd"

    def path(self, name):
        return self.disks / f"{name}.disk"

    def paths(self, names):
        return [self.path(n) for n in names]

    def __call__(self, *words, status=0, timeout=60):
        """Runs `causeway WORDS`; its output."""
        control = Path(self.server.sockets.name) / "control.sock"
        environment = {"CAUSEWAY_CONTROL": str(control)}
        return run([Causeway.binary, *words], status=status, env=environment, timeout=timeout).out

    def json(self, *words):
        return validated(words, json.loads(self("--json", *words)))

    def refused(self, *words):
        return self(*words, status=1)

    def health(self):
        """The report, and whether something has to be done."""
        control = Path(self.server.sockets.name) / "control.sock"
        told = run([Causeway.binary, "--json", "health"], status=None, env={"CAUSEWAY_CONTROL": str(control)})
        report, _ = json.JSONDecoder().raw_decode(told.out)
        return report, told.status

    def pool(self, names="ab", name="tank"):
        self("disk", "create-file", *self.paths(names), "--size", DISK)
        self("pool", "create", name, "--assume-atomic", "--disk", *self.paths(names))

    def mirror(self, name="vm", pool="tank"):
        self("space", "create", name, "--pool", pool, "--resiliency", "mirror", "--size", SPACE)

    def attach(self, name="vm"):
        self("space", "attach", name, "--nbd", self.socket)

    def url(self, name="vm"):
        return f"nbd+unix:///{name}?socket={self.socket}"

    def qemu_io(self, *commands, status=0, name="vm", options=()):
        each = [part for command in commands for part in ("-c", command)]
        out = run(["qemu-io", *options, "-f", "raw", "-t", "none", *each, self.url(name)], status=status, timeout=120).out
        if status == 0:
            assert "failed" not in out.lower(), out
        return out

    @contextlib.contextmanager
    def connected(self, name="vm"):
        """A client that stays connected: a function that makes it do commands."""
        words = ["stdbuf", "-oL", "qemu-io", "-f", "raw", "-t", "none", self.url(name)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as one:

            def do(*commands):
                for command in commands:
                    one.stdin.write(command + "\n")
                    one.stdin.flush()
                    lines = []
                    while not lines or "ops" not in lines[-1]:
                        lines.append(one.stdout.readline())
                        assert lines[-1] and "failed" not in lines[-1].lower(), lines

            yield do
            one.stdin.close()

    def status(self, name="tank"):
        return self.json("pool", "show", name)

    def until_healthy(self, name="tank"):
        until(lambda: self.status(name)["health_status"] == "Healthy", timeout=60, what=f"{name} healthy: {self.server.log}")

    def kill_and_start(self):
        self.server.kill()
        self.server.start()

    def lose(self, name):
        self.path(name).rename(self.disks / f"{name}.away")

    def reconnect(self, name):
        (self.disks / f"{name}.away").rename(self.path(name))


@pytest.fixture
def machine(serve):
    server = serve(launch=False)
    server.storage = {"devices": [str(server.folder / "disks" / "*.disk")]}
    return Machine(server.start())


def test_a_mirror_from_files_to_qemu(machine):
    """The whole way: files, pool, mirror, NBD, QEMU; and cleanly back."""
    machine("disk", "create-file", *machine.paths("ab"), "--size", DISK)
    listed = machine("disk", "list")
    assert re.search(rf"True .* {machine.path('a')}$", listed, re.M), listed
    machine("pool", "create", "tank", "--assume-atomic", "--disk", *machine.paths("ab"))
    machine.mirror()
    shown = machine.status()
    assert (shown["operational_status"], shown["health_status"], shown["can_lose"]) == ("OK", "Healthy", 1)
    assert "1 disk now" in machine("pool", "list")
    machine.attach()
    machine.qemu_io("write -P 0xa5 0 4M", "write -P 0x5a 17M 64k", "flush", "read -P 0xa5 0 4M", "read -P 0x5a 17M 64k",
                    "read -P 0 5M 1M", "discard 0 1M", "read -P 0 0 1M")
    assert json.loads(run(["nbdinfo", "--json", "--no-content", machine.url()]).out)["exports"][0]["export-size"] == SPACE
    space = machine.json("virtual-disk", "list")[0]
    assert space["footprint"] > 0 and space["attached"] == str(machine.socket)
    assert "In a pool" in machine("disk", "list")
    machine("space", "detach", "vm")
    assert not machine.socket.exists()
    assert machine.server.stop() == 0
    machine.server.start()
    machine.attach()
    machine.qemu_io("read -P 0xa5 1M 3M", "read -P 0x5a 17M 64k")


@pytest.mark.parametrize("resiliency", ["simple", "mirror", "parity"])
def test_discards_in_pieces_give_their_room_back(machine, resiliency):
    """What trimming a file system sends, 1 MiB at a time: a row's slabs are free with the piece that empties it, and no sooner."""
    machine.pool("abc")
    machine("space", "create", "vm", "--pool", "tank", "--resiliency", resiliency, "--size", SPACE)
    machine.attach()

    def footprint():
        return machine.json("virtual-disk", "list")[0]["footprint"]

    machine.qemu_io("write -P 1 24M 64k", "flush")
    one_row = footprint()
    machine.qemu_io("discard 24M 1M", "flush")
    until(lambda: footprint() < one_row, timeout=10, what="the room of the only row")
    empty = footprint()
    machine.qemu_io("write -P 1 0 24M", "flush")
    full = footprint()
    assert full >= empty + 24 * MIB
    machine.qemu_io(*[f"discard {n}M 1M" for n in range(24) if n != 10], "flush", "read -P 1 10M 1M", "read -P 0 0 10M")
    until(lambda: empty < footprint() < full / 2, timeout=10, what="the room of all rows but one")
    machine.qemu_io("discard 10M 1M", "flush", "read -P 0 0 24M")
    until(lambda: footprint() == empty, timeout=10, what="the room of the last row")
    machine.qemu_io("write -P 2 3M 1M", "flush")
    machine.kill_and_start()
    machine.attach()
    machine.qemu_io("read -P 2 3M 1M", "read -P 0 0 3M", "read -P 0 4M 44M")


def test_what_was_flushed_survives_kill_9(machine):
    """kill -9 in the middle of writes: the pool opens automatically, and every block is at least as new as its last flush."""
    machine.pool()
    machine.mirror()
    chance = random.Random(7)
    block, blocks = 64 << 10, SPACE // (64 << 10)
    flushed = {}
    for generation in range(1, 4):
        machine.attach()
        pattern = {b: (generation * 60 + b) % 251 + 1 for b in chance.sample(range(blocks), 60)}
        machine.qemu_io(*[f"write -P {v} {b * block} {block}" for b, v in pattern.items()], "flush")
        flushed.update(pattern)
        # Writes without a flush, to blocks of their own or over existing data.
        again = [f"write -P {flushed[b]} {b * block} {block}" for b in pattern]
        endless = machine.server.folder / "endless"
        endless.write_text("\n".join(again * 2000))
        with open(endless) as commands:
            writing = subprocess.Popen(["qemu-io", "-f", "raw", "-t", "none", machine.url()], stdin=commands,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.1, 0.6))
        still = writing.poll() is None
        machine.kill_and_start()
        writing.kill()
        writing.wait()
        assert still, "the writer was to be cut off"
        assert machine.status()["health_status"] in ("Healthy", "Warning")
        machine.attach()
        machine.qemu_io(*[f"read -P {v} {b * block} {block}" for b, v in flushed.items()])
        machine("space", "detach", "vm")


def test_a_crash_is_told_once(machine):
    """Writes that kill -9 interrupts are no damage: the log has one line for all of them, and no warning."""
    machine.pool()
    machine.mirror()
    machine.attach()
    machine.qemu_io(f"write -P 1 0 {SPACE}", "flush")
    message = "blocks that differed after a crash are equal on all copies again"
    for attempt in range(10):
        # Many writes in flight: some are on one disk only.
        with subprocess.Popen(["qemu-img", "bench", "-w", "-t", "none", "-f", "raw", "-c", "10000000", "-d", "32", "-s", "4096",
                               "-S", "69632", machine.url()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as writing:
            time.sleep(0.5)
            before = len(machine.server.log.read_text())
            machine.kill_and_start()
            writing.kill()
        def lines():
            return machine.server.log.read_text()[before:].splitlines()
        until(lambda: any(message in line for line in lines()), timeout=60, what=f"resolved: {machine.server.log}")
        assert sum(message in line for line in lines()) == 1, machine.server.log
        assert not [line for line in lines() if "WARN" in line and "pool::" in line], machine.server.log
        if not any(message in line and "blocks=0" in line for line in lines()):
            break
    else:
        pytest.fail("no crash left anything that differed")
    until(lambda: machine.json("space", "list")[0]["health_status"] == "Healthy", timeout=30, what="healthy")


def test_a_server_starts_while_the_one_before_still_ends(machine):
    """Right after kill -9, when the process was not reaped yet: in a container that may last for ever."""
    machine.pool()
    dead = machine.server.process
    os.killpg(dead.pid, signal.SIGKILL)
    stat = Path(f"/proc/{dead.pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", timeout=20, what="it has ended")
    machine.server.start()
    assert machine.status()["operational_status"] == "OK", machine("pool", "list")
    dead.wait()


def test_a_server_starts_while_io_of_the_one_before_still_ends(machine):
    """Outstanding kernel I/O of a process outlives it, and so does the lock on the disk."""
    machine.pool()
    machine.server.kill()
    disk = open(machine.path("b"))
    fcntl.flock(disk, fcntl.LOCK_EX)
    threading.Timer(2, disk.close).start()
    machine.server.start()
    assert machine.status()["operational_status"] == "OK", machine("pool", "list")


def test_a_second_server_is_told_who_has_the_pool(machine, serve):
    machine.pool()
    other = Machine(serve())
    told = other.refused("pool", "import", "tank", "--disk", *machine.paths("ab"))
    assert f"another server holds it: process {machine.server.pid} on the machine" in told and "UTC" in told, told
    for words in ([], ["--force"]):
        told = other.refused("pool", "import", "tank", *words, "--disk", *machine.paths("ab"))
        assert "export it there: causeway pool export tank" in told and "import tank --force" not in told, told
    assert "Not open" in other("pool", "list")
    shown = other("pool", "show", "tank")
    assert str(machine.path("a")) in shown and "SlabSize" not in shown, shown
    assert "another process uses it" in other.refused("pool", "create", "mine", "--force", "--disk", machine.path("a"))
    assert machine.status()["operational_status"] == "OK"
    machine("pool", "export", "tank")
    other("pool", "import", "tank", "--disk", *machine.paths("ab"))
    assert other.status()["operational_status"] == "OK"


def test_names_that_would_mean_something_else(machine):
    machine.pool()
    for name in ["tank/vm", ".journal-1", " vm", "vm\n", ""]:
        assert "is not a valid name" in machine.refused("space", "create", name, "--pool", "tank", "--size", "1MiB")
        assert "is not a valid name" in machine.refused("pool", "rename", "tank", name)
    assert machine.json("space", "list") == [] and machine.json("pool", "list")[0]["name"] == "tank"


def test_fio_verifies_across_kill_9(machine):
    """fio writes over what it has written, with checksums in each 4 KiB; cut by kill -9, every block is whole, of the one run or the other."""
    if shutil.which("fio") is None or "nbd" not in run(["fio", "--enghelp"]).out:
        pytest.skip("fio has no nbd engine")
    machine.pool("abc")
    machine.mirror()
    machine.attach()
    job = ["fio", "--name=vm", "--ioengine=nbd", f"--uri={machine.url()}", "--bs=4k", "--size=16m",
           "--iodepth=16", "--verify=crc32c", "--verify_fatal=1"]
    run([*job, "--rw=randwrite", "--do_verify=0", "--end_fsync=1"], timeout=120, cwd=machine.server.folder)
    cut = subprocess.Popen([*job, "--rw=randwrite", "--do_verify=0", "--randseed=9", "--loops=1000"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=machine.server.folder)
    time.sleep(0.7)
    assert cut.poll() is None, "fio was to be cut off"
    machine.kill_and_start()
    cut.kill()
    cut.wait()
    machine.attach()
    run([*job, "--rw=read"], timeout=120, cwd=machine.server.folder)


def test_three_disks_go_on_with_two(machine):
    """A disk is lost, the pool opens without a word from anybody; it returns and is brought up to date; another is lost."""
    machine.pool("abc")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 1 0 24M", "flush")
    machine.server.kill()
    machine.lose("a")
    machine.server.start()
    shown = machine.status()
    assert (shown["health_status"], shown["can_lose"], shown["disks_missing"]) == ("Warning", 0, 1)
    assert "Lost communication" in machine("pool", "show", "tank")
    machine.attach()
    machine.qemu_io("read -P 1 0 24M", "write -P 2 4M 8M", "flush")
    assert machine.json("space", "list")[0]["operational_status"] == "Degraded"
    machine.reconnect("a")  # it returns by itself
    machine.until_healthy()
    assert machine.status()["can_lose"] == 1
    machine.server.kill()
    machine.lose("b")
    machine.server.start()
    machine.attach()
    machine.qemu_io("read -P 1 0 4M", "read -P 2 4M 8M", "read -P 1 12M 12M")


def test_two_disks_need_a_word_when_one_is_lost(machine):
    """The one that is left may be the older one: only --accept-loss opens it. The other returns, is brought up to date, and carries the data alone."""
    machine.pool("ab")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 3 0 8M", "flush")
    machine.server.kill()
    machine.lose("a")
    machine.server.start()
    listed = machine("pool", "list")
    assert "Not open" in listed and "1 of 2 disks with metadata are present and 2 are needed" in listed
    told = machine.refused("pool", "import", "tank")
    assert "may have newer data" in told and "causeway pool import tank --accept-loss" in told
    assert "is not open" in machine.refused("space", "create", "x", "--pool", "tank", "--size", "1MiB")
    machine("pool", "import", "tank", "--accept-loss")
    machine.attach()
    machine.qemu_io("read -P 3 0 8M", "write -P 4 2M 2M", "flush")
    machine.reconnect("a")
    machine("disk", "return", "--accept-loss", machine.path("a"))
    machine.until_healthy()
    machine.server.stop()
    machine.lose("b")
    machine.server.start()
    machine("pool", "import", "tank", "--accept-loss")
    machine.attach()
    machine.qemu_io("read -P 3 0 2M", "read -P 4 2M 2M", "read -P 3 4M 4M")


def test_a_disk_that_became_shorter_is_left_out(machine):
    """It does not affect the others, and is reported with the command that helps; with its size restored it joins again, and its losses are repaired."""
    machine.pool("abc")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 3 0 16M", "flush")
    assert machine.server.stop() == 0
    path = machine.server.folder / machine.path("b")
    size = path.stat().st_size
    os.truncate(path, size // 2)
    machine.server.start()
    machine.attach()
    machine.qemu_io("read -P 3 0 16M", "write -P 4 4M 4M", "flush")
    assert "has become shorter" in machine("pool", "show", "tank")
    assert machine.server.stop() == 0
    os.truncate(path, size)
    machine.server.start()
    machine.until_healthy()
    machine("space", "repair", "vm")
    machine.attach()
    machine.qemu_io("read -P 3 0 4M", "read -P 4 4M 4M", "read -P 3 8M 8M")


def test_a_disk_leaves_and_returns_under_load(machine):
    """A disk is removed while QEMU writes, and returned while QEMU continues; then it has everything."""
    machine.pool("ab")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 1 0 32M", "flush")
    script = machine.server.folder / "load"
    script.write_text("".join(f"write -P {n % 250 + 1} {n % 400 * 64}k 64k\n" for n in range(12000)) + "flush\n")
    with open(script) as commands:
        load = subprocess.Popen(["qemu-io", "-f", "raw", "-t", "none", machine.url()], stdin=commands, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
    machine("pool", "offline-disk", "tank", machine.path("a"))
    assert load.poll() is None, "the load goes on"
    assert "In maintenance mode" in machine("pool", "show", "tank")
    assert "the only current copy" in machine.refused("pool", "offline-disk", "tank", "1")
    assert "returned to the pool" in machine("pool", "add-disk", "tank", "--disk", machine.path("a"))
    out, _ = load.communicate(timeout=120)
    assert load.returncode == 0 and "failed" not in out.lower() and out.count("wrote 65536/65536") == 12000, out[-2000:]
    machine.until_healthy()
    # The one that was away, alone.
    assert machine.server.stop() == 0
    machine.lose("b")
    machine.server.start()
    machine("pool", "import", "tank", "--accept-loss")
    machine.attach()
    machine.qemu_io(*[f"read -P {n % 250 + 1} {n % 400 * 64}k 64k" for n in range(11600, 12000)], "read -P 1 26M 6M")


def rot(path, pattern, every):
    """Damages every n-th 4 KiB of a disk file that is all `pattern`; how many."""
    data = bytearray(path.read_bytes())
    blocks = [at for at in range(0, len(data), 4096) if data[at:at + 4096] == bytes([pattern]) * 4096][::every]
    with open(path, "r+b") as file:
        for at in blocks:
            file.seek(at + 100)
            file.write(b"rot")
    return len(blocks)


def test_rot_is_found_and_healed(machine):
    """Silently corrupted data is never returned: a read or a scrub takes the other copy and repairs the damage."""
    machine.pool()
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 0xb7 0 4M", "flush")

    def damage(name, every):
        assert machine.server.stop() == 0
        count = rot(machine.path(name), 0xB7, every)
        machine.server.start()
        return count

    def healed():
        return sum(f["units"] for f in machine.status()["findings"] if "repaired from another copy" in f["found"])

    assert damage("a", 3) == 342
    machine.attach()
    # Reads find what is in their way, and the scrub the rest.
    machine.qemu_io("read -P 0xb7 0 1M")
    machine("space", "repair", "vm")
    until(lambda: healed() == 342 and machine.json("job", "list") == [], timeout=60, what="all healed")
    assert "342 blocks of 4 KiB on disk 0" in machine("pool", "show", "tank")
    # What was put right holds: the other copy may go bad in the same places and elsewhere.
    assert damage("b", 2) == 512
    machine("space", "repair", "vm")
    until(lambda: healed() == 512 and machine.json("job", "list") == [], timeout=60, what="all healed")
    machine("space", "repair", "vm")
    until(lambda: machine.json("job", "list") == [], timeout=60, what="nothing runs")
    assert healed() == 0, "it found nothing more, so what was is forgotten"
    machine.attach()
    machine.qemu_io("read -P 0xb7 0 4M")


def test_export_import_rename_and_read_only(machine):
    machine.pool()
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 9 0 1M", "flush")
    machine("pool", "rename", "tank", "store")
    # A command about the pool detaches no virtual disk.
    for refused in (["pool", "export", "store"], ["pool", "destroy", "store", "--yes"]):
        told = machine.refused(*refused)
        assert "vm of the pool store is attached" in told and "causeway space detach store/vm" in told, told
    machine.qemu_io("read -P 9 0 1M")
    machine("space", "detach", "vm")
    machine("pool", "export", "store")
    assert "it was exported" in machine("pool", "list")
    machine("pool", "import", "store", "--read-only")
    assert machine.status("store")["is_read_only"]
    assert "reading only" in machine.refused("space", "destroy", "vm", "--yes")
    machine("pool", "export", "store")
    # By the places given, not by those of the configuration.
    elsewhere = machine.server.folder / "elsewhere"
    elsewhere.mkdir()
    for name in "ab":
        machine.path(name).rename(elsewhere / name)
    assert "no disk of a pool store" in machine.refused("pool", "import", "store")
    machine("pool", "import", "store", "--disk", elsewhere / "a", elsewhere / "b")
    machine.attach("store/vm")
    machine.qemu_io("read -P 9 0 1M")


def test_failures_are_json_where_that_is_asked_for(machine):
    machine.pool()
    assert machine.refused("pool", "show", "nope").startswith("causeway: there is no pool nope")
    for words, error in [(["pool", "show", "nope"], "there is no pool nope"), (["pool", "remove-disk", "tank", "9"], "the pool tank has no disk 9")]:
        told = json.loads(machine("--json", *words, status=1))
        assert told["error"] == error and set(told) <= {"error", "do"}
    told = json.loads(machine("--json", "pool", "destroy", "tank", status=1))
    assert "--yes" in told["error"] + told.get("do", "")


def test_spaces_grow_and_go(machine):
    machine.pool()
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 6 0 1M", "flush")
    assert "detach it first" in machine.refused("space", "resize", "vm", "--size", MIB)
    with machine.connected() as connected:
        connected("read -P 6 0 1M")
        assert "when they connect again" in machine("space", "resize", "vm", "--size", SPACE + MIB)
        connected("write -P 7 64k 64k", f"read -P 0 {SPACE - MIB} 1M")
    # A new client has it all.
    machine.qemu_io("write -P 6 64k 64k", f"write -P 9 {SPACE} 1M", "flush", f"read -P 9 {SPACE} 1M")
    machine("space", "detach", "vm")
    assert "has data beyond" in machine.refused("space", "resize", "vm", "--size", MIB // 2)
    machine.attach()
    machine.qemu_io("read -P 6 0 1M", f"write -P 8 {SPACE} 1M", "flush", f"read -P 8 {SPACE} 1M")
    machine("space", "detach", "vm")
    machine("space", "create", "all", "--pool", "tank", "--max", "--provisioning", "fixed")
    full = machine.status()
    assert {s["name"]: s["provisioning"] for s in full["virtual_disks"]} == {"vm": "Thin", "all": "Fixed"}
    told = machine.refused("space", "create", "more", "--pool", "tank", "--size", "64MiB", "--provisioning", "fixed")
    assert "do not fit into the pool tank" in told
    # A fixed one for whose new size there is no room stays as it is.
    told = machine.refused("space", "resize", "all", "--size", "1GiB")
    assert "the virtual disk all cannot be resized to 1 GiB: the pool tank has room for" in told and "pool add-disk tank" in told, told
    now = machine.status()
    assert (now["allocated"], now["virtual_disks"]) == (full["allocated"], full["virtual_disks"])
    told = machine.refused("space", "destroy", "all")
    assert "this would destroy the virtual disk all" in told and "--yes" in told
    machine("space", "destroy", "all", "--yes")
    assert machine.status()["allocated"] < full["allocated"]
    told = machine.refused("pool", "destroy", "tank")
    assert "on 2 disks, with vm" in told and "--yes" in told
    machine("pool", "destroy", "tank", "--yes")
    assert machine.json("pool", "list") == []
    assert all(d["can_pool"] for d in machine.json("disk", "list") if d.get("path", "").endswith(".disk"))


def test_what_is_refused_says_why(machine):
    machine.pool("ab")
    machine.mirror()
    machine("disk", "create-file", *machine.paths("xy"), "--size", DISK)
    cases = [
        (["pool", "show", "nowhere"], "there is no pool nowhere: see causeway pool list"),
        (["space", "create", "a", "--pool", "nowhere", "--size", "1MiB"], "there is no pool nowhere"),
        (["space", "attach", "nothing", "--nbd", machine.socket], "there is no virtual disk nothing"),
        (["space", "create", "t", "--pool", "tank", "--resiliency", "three-way-mirror", "--size", "1MiB"],
         "3 disks are needed and the pool tank has 2"),
        (["space", "create", "vm", "--pool", "tank", "--size", "1MiB"], "the name 'vm' is taken"),
        (["pool", "create", "tank", "--disk", machine.path("x")], "a pool tank exists already"),
        (["pool", "create", "b", "--disk", machine.path("a")], "In a pool|belongs to the pool 'tank'"),
        (["pool", "create", "b", "--disk", machine.path("a"), "--force"], "the pool 'tank', which is open on this server"),
        (["pool", "create", "b", "--disk", machine.path("x"), machine.path("x")], "is named twice"),
        (["pool", "create", "b", "--disk", machine.path("none")], "No such file"),
        (["pool", "create", "b", "--assume-atomic", "--slab-size", "3MiB", "--disk", machine.path("x")], "power of two"),
        (["space", "attach", "vm", "--nbd", "/nonexistent/folder/nbd"], "its directory does not exist"),
        (["space", "attach", "vm", "--nbd", machine.server.config], "another file or server uses this path"),
        (["space", "attach", "vm", "--nbd", "/tmp/" + "n" * 200], "107 bytes"),
        (["space", "detach", "vm"], "is not attached"),
        (["pool", "remove-disk", "tank", "17"], "the pool tank has no disk 17"),
        (["disk", "create-file", machine.path("x"), "--size", DISK], "File exists"),
        (["disk", "create-file", machine.path("small"), "--size", "1MiB"], "has at least 16 MiB"),
        (["disk", "create-file", machine.path("large"), "--size", 2**64 - 4096], "."),
        (["disk", "set", "tank/0", "--enclosure", "a\x1b[31m"], "control characters"),
        (["space", "create", "a", "--pool", "tank", "--size", 2**64 - 1], "a virtual disk cannot have 18446744073709551615 bytes"),
        (["space", "resize", "vm", "--size", 2**64 - 1], "a virtual disk cannot have 18446744073709551615 bytes"),
    ]
    for words, why in cases:
        told = machine.refused(*words)
        assert re.search(why, told), f"{words}: {told}"
    assert not machine.path("large").exists(), "what could not be made is not left"
    assert [p["name"] for p in machine.json("pool", "list")] == ["tank"]
    # A pool that is not here any more: its disk says whose it is, and is taken with --force only.
    machine("pool", "create", "old", "--assume-atomic", "--disk", machine.path("x"))
    machine("pool", "export", "old")
    assert "the pool 'old' (disk 0" in machine.refused("pool", "create", "new", "--assume-atomic", "--disk", machine.path("x"))
    machine("pool", "create", "new", "--assume-atomic", "--force", "--disk", machine.path("x"), machine.path("y"))
    machine("pool", "remove-disk", "new", machine.path("y"))
    machine("pool", "add-disk", "new", "--assume-atomic", "--disk", machine.path("y"))
    with pytest.raises(Failed):
        machine("pool", "import", "--accept-loss")  # of which?


def test_health_folds_causes_and_gives_commands(machine):
    """A lost disk is one fault; the command that it names repairs it, and then nothing is wrong. Each is logged once and counted."""
    machine.pool("abc")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 1 0 8M", "flush")

    def faults():
        report, status = machine.health()
        # Disks that could be pooled are this machine's.
        found = [f for f in report["faults"] if f["FaultType"] != "PhysicalDisk.CanPool"]
        assert status == (1 if any(f["PerceivedSeverity"] >= 5 for f in found) else 0), report
        return found

    assert faults() == []
    pool = machine.health()[0]["pools"][0]
    assert (pool["name"], pool["can_lose"], pool["operational_status"]) == ("tank", "1 disk now", "OK")
    assert [c["kind"] for c in pool["children"]] == ["PhysicalDisk"] * 3 + ["VirtualDisk"]
    machine.server.kill()
    machine.lose("a")
    machine.server.start()
    [fault] = faults()
    fields = {"FaultId", "FaultType", "Reason", "PerceivedSeverity", "FaultingObjectDescription", "FaultingObjectLocation", "RecommendedActions"}
    assert fields <= fault.keys(), fault
    assert (fault["FaultType"], fault["PerceivedSeverity"]) == ("PhysicalDisk.LostCommunication", 5)
    assert "pool tank, disk 0" in fault["FaultingObjectLocation"]
    follows = {f["FaultingObjectDescription"]: f["FaultType"] for f in fault["Consequences"]}
    assert follows == {"virtual disk vm": "VirtualDisks.LastCopy"}
    told = machine.refused("health")
    assert re.search(r"^Warning: disk 0 .*PhysicalDisk.LostCommunication", told, re.M), told
    assert "do:     causeway disk return tank/0" in told and "1 fault needs action" in told
    log = machine.server.log
    until(lambda: log.read_text().count("fault raised") == 1, timeout=20, what="told")
    machine.reconnect("a")
    [action] = fault["RecommendedActions"]
    words = shlex.split(action)
    assert words[0] == "causeway" and re.search("returned|in service", machine(*words[1:])), "perhaps it returned by itself"
    until(lambda: faults() == [], timeout=60, what="nothing is wrong")
    until(lambda: log.read_text().count("fault cleared") >= 1, timeout=20, what="told")
    assert fault["FaultId"] in log.read_text()
    shown = machine("counters", "Storage Health", "--instance", "tank")
    assert re.search(r"Current Warnings +0", shown), shown
    assert "nothing is wrong" in machine("health") or "PhysicalDisk.CanPool" in machine("health")
    # A pool that is not open is a fault; one that was given up is none.
    machine("space", "detach", "vm")
    machine("pool", "export", "tank")
    [fault] = faults()
    assert (fault["FaultType"], fault["PerceivedSeverity"]) == ("StoragePool.NotOpen", 4)


def test_damage_and_full_pools_are_faults(machine):
    machine.pool()
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 0xb7 0 4M", "flush")
    assert machine.server.stop() == 0
    assert rot(machine.path("a"), 0xB7, 16) == 64
    machine.server.start()
    machine("space", "repair", "vm")
    until(lambda: machine.json("job", "list") == [], timeout=60, what="nothing runs")
    found = {f["FaultType"]: f for f in machine.health()[0]["faults"]}
    damaged = found["PhysicalDisk.HighErrorCount"]
    assert "64 blocks of 4 KiB" in damaged["Reason"] and str(machine.path("a")) in damaged["FaultingObjectLocation"]
    assert "causeway space repair tank/vm" in damaged["RecommendedActions"]
    assert re.search(r"LastScrub +: 20\d\d-.* UTC: 64 blocks repaired, 0 lost", machine("space", "show", "vm"))
    machine("space", "create", "thin", "--pool", "tank", "--size", "1GiB")
    machine("space", "create", "all", "--pool", "tank", "--max", "--provisioning", "fixed")
    found = {f["FaultType"]: f for f in machine.health()[0]["faults"]}
    full = found["StoragePool.PoolCapacityThresholdExceeded"]
    assert full["PerceivedSeverity"] == 6
    assert {"VirtualDisks.NoRoom"} == {f["FaultType"] for f in full["Consequences"]}


def test_what_is_lost_is_told_after_a_restart_until_it_was_restored(machine):
    """Units that are damaged on both copies: `health` reports those that were read, also after a clean end and after kill -9, until they are written again and a repair has read them."""
    machine.pool()
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 0xb7 0 1M", "flush")
    assert machine.server.stop() == 0
    for name in "ab":
        assert rot(machine.path(name), 0xB7, 16) == 16
    machine.server.start()
    machine.attach()

    def losses():
        report, status = machine.health()
        found = [f for f in report["faults"] if f["FaultType"] == "VirtualDisks.DataLoss"]
        assert (status == 1) == bool(found)
        return found

    assert losses() == []
    for at in ["64k", "64k", "128k", "64k"]:
        assert "read failed" in machine.qemu_io(f"read {at} 4k", status=None)
    [fault] = losses()
    assert "2 blocks of 4 KiB of the virtual disk vm" in fault["Reason"] and "the first at byte 65536" in fault["Reason"], fault
    assert fault["RecommendedActions"] == ["causeway space repair tank/vm"] and "virtual disk vm" in fault["FaultingObjectLocation"], fault
    assert machine.server.stop() == 0
    machine.server.start()
    assert [f["Reason"] for f in losses()] == [fault["Reason"]]
    machine.attach()
    assert "read failed" in machine.qemu_io("read 0 4k", status=None)
    # It is recorded beside the reads.
    time.sleep(1)
    machine.kill_and_start()
    [fault] = losses()
    assert "3 blocks of 4 KiB" in fault["Reason"] and "the first at byte 0:" in fault["Reason"], fault
    assert "have no valid copy on any disk" in machine("health", status=1)

    def repaired():
        machine("space", "repair", "vm")
        until(lambda: machine.json("job", "list") == [], timeout=60, what="nothing runs")

    repaired()
    assert "16 blocks of 4 KiB" in losses()[0]["Reason"]
    machine.attach()
    machine.qemu_io("write -P 0xb8 0 1M", "flush")
    assert "16 blocks of 4 KiB" in losses()[0]["Reason"], "no scrub has run"
    repaired()
    assert losses() == []
    machine.kill_and_start()
    assert losses() == []


def test_metadata_that_rots_under_an_open_pool_is_written_anew(machine):
    """Of two disks both are needed to open the pool: labels and checkpoints rot on one, and then on the other."""
    machine.pool("ab")
    machine.mirror()
    for number, name in enumerate("ab"):
        with open(machine.path(name), "r+b") as disk:
            # docs/on-disk-format.md: the first label, and what pools of this size have as the first checkpoint.
            for place in [64 << 10, 256 << 10]:
                disk.seek(place + 20)
                byte = disk.read(1)[0]
                disk.seek(place + 20)
                disk.write(bytes([byte ^ 1]))
        machine("space", "repair", "vm")
        until(lambda: machine.json("job", "list") == [], timeout=60, what="nothing runs")
        found = [f for f in machine.status()["findings"] if f["disk"] == number]
        assert len(found) == 1 and found[0]["units"] == 2 and "metadata" in found[0]["found"], found
    machine.server.kill()
    machine.server.start()
    assert machine.status()["operational_status"] == "OK", machine("pool", "list")


def test_jobs_are_paused_resumed_and_survive_kill_9(machine):
    machine.pool()
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 5 0 48M", "flush")
    assert "there is no job 4711" in machine.refused("job", "pause", "4711")

    def paused():
        """A repair that was caught before its end."""
        machine("space", "repair", "vm")
        for job in machine.json("job", "list"):
            control = {"CAUSEWAY_CONTROL": str(Path(machine.server.sockets.name) / "control.sock")}
            if run([Causeway.binary, "job", "pause", job["id"]], status=None, env=control).status == 0:
                return job["id"]
        return None

    number = until(paused, timeout=60, what="a repair that runs")
    [job] = machine.json("job", "list")
    assert (job["id"], job["name"], job["state"], job["reason"]) == (number, "Repair", "Suspended", "paused by command")
    assert job["bytes_processed"] + job["bytes_left"] == job["bytes_total"] > 0
    time.sleep(1)
    assert machine.json("job", "list")[0]["bytes_processed"] <= job["bytes_processed"] + (4 << 20), "it stands still"
    assert "is running already" in machine("space", "repair", "vm")
    assert "paused by command" in machine("job", "list")
    assert "not complete" in machine("space", "show", "vm")
    # It continues after a restart, without the pause.
    machine.kill_and_start()
    until(lambda: machine.json("space", "show", "vm")["scrub"].get("ended_unix_s"), timeout=60, what="it ended")
    machine.attach()
    number = until(paused, timeout=60, what="a repair that runs")
    machine("job", "resume", str(number))
    shown = machine("job", "list", "--follow")
    assert "PercentComplete" in shown
    assert machine.json("job", "list") == []
    assert "0 blocks repaired, 0 lost" in machine("space", "show", "vm")
    number = until(paused, timeout=60, what="a repair that runs")
    # Those that are gone keep nothing from the others.
    told = machine.refused("job", "stop", "4711", str(number), "4712")
    assert "stopped" in told and "there is no job 4711, 4712" in told, told
    until(lambda: machine.json("job", "list") == [], timeout=60, what="it ended")
    assert "not complete" in machine("space", "show", "vm")
    # Nor is the next one paused.
    machine("space", "repair", "vm")
    until(lambda: machine.json("job", "list") == [], timeout=60, what="it ended")


@pytest.mark.parametrize(("resiliency", "names", "lost", "others"), [("parity", "abcd", "b", "c"), ("dual-parity", "abcde", "bd", "ac")])
def test_parity_survives_what_it_promises(machine, resiliency, names, lost, others):
    """Written, overwritten, killed, with as many disks lost as promised; they return and are brought up to date; others are lost."""
    machine.pool(names)
    made = machine("space", "create", "vm", "--pool", "tank", "--resiliency", resiliency, "--size", SPACE)
    assert f"it has {len(names) - 1} columns, {len(lost)} of them parity" in made, made
    space = machine.json("space", "show", "vm")
    assert (space["resiliency"], space["redundancy"], space["columns"]) == ("Parity", len(lost), len(names) - 1)
    assert space["efficiency"] == 200 // (2 + len(lost))
    assert machine.status()["can_lose"] == len(lost)
    machine.attach()
    machine.qemu_io("write -P 1 0 24M", "flush", "write -P 2 3M 5M", "write -P 3 12k 8k", "flush", "discard 20M 1M", "flush")
    written = machine.server.folder / "written"
    written.write_text("write -P 4 9M 1M\n" * 500)
    with open(written) as commands:
        writing = subprocess.Popen(["qemu-io", "-f", "raw", "-t", "none", machine.url()], stdin=commands,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.4)
        still = writing.poll() is None
        machine.server.kill()
        writing.kill()
        writing.wait()
    assert still, "the writer was to be cut off"
    for disk in lost:
        machine.lose(disk)
    machine.server.start()
    shown = machine.status()
    assert (shown["health_status"], shown["can_lose"], shown["disks_missing"]) == ("Warning", 0, len(lost))
    assert [s["name"] for s in machine.json("space", "list")] == ["vm"], "the journal is not listed"
    machine.attach()
    reads = ["read -P 1 0 12k", "read -P 3 12k 8k", "read -P 1 20k 3052k", "read -P 2 3M 5M", "read -P 1 10M 10M", "read -P 0 20M 1M",
             "read -P 1 21M 3M", "read -P 0 24M 24M"]
    machine.qemu_io(*reads, "write -P 5 22M 2M", "write -P 6 64k 4k", "flush")
    reads = ["read -P 1 0 12k", "read -P 3 12k 8k", "read -P 6 64k 4k", *reads[3:6], "read -P 1 21M 1M", "read -P 5 22M 2M"]
    for disk in lost:
        machine.reconnect(disk)
    machine.until_healthy()
    assert machine.status()["can_lose"] == len(lost)
    machine.qemu_io(*reads)
    machine.server.kill()
    for disk in others:
        machine.lose(disk)
    machine.server.start()
    machine.attach()
    machine.qemu_io(*reads)
    machine("space", "detach", "vm")
    machine("space", "destroy", "vm", "--yes")
    assert machine.status()["allocated"] == 0


def test_local_reconstruction_survives_what_it_promises(machine):
    """LRC (8,2,1): written, overwritten, killed, with two disks lost; they return and are brought up to date; two others are lost."""
    names, lost, others = "abcdefghijkl", "bf", "ac"
    machine.pool(names)
    made = machine("space", "create", "vm", "--pool", "tank", "--resiliency", "dual-parity", "--groups", "2", "--size", SPACE)
    assert "it has 11 columns, LRC (8,2,1)" in made, made
    space = machine.json("space", "show", "vm")
    assert (space["resiliency"], space["redundancy"], space["columns"], space["groups"], space["efficiency"]) == ("Parity", 2, 11, 2, 72)
    assert "NumberOfGroups        : 2" in machine("space", "show", "vm")
    assert machine.status()["can_lose"] == 2
    machine.attach()
    machine.qemu_io("write -P 1 0 24M", "flush", "write -P 2 3M 5M", "write -P 3 12k 8k", "flush", "discard 20M 1M", "flush")
    machine.server.kill()
    for disk in lost:
        machine.lose(disk)
    machine.server.start()
    assert machine.status()["disks_missing"] == 2
    machine.attach()
    reads = ["read -P 1 0 12k", "read -P 3 12k 8k", "read -P 1 20k 3052k", "read -P 2 3M 5M", "read -P 1 8M 12M", "read -P 0 20M 1M",
             "read -P 1 21M 3M", "read -P 0 24M 24M"]
    machine.qemu_io(*reads, "write -P 5 22M 2M", "write -P 6 64k 4k", "flush")
    reads = ["read -P 1 0 12k", "read -P 3 12k 8k", "read -P 6 64k 4k", *reads[3:6], "read -P 1 21M 1M", "read -P 5 22M 2M"]
    for disk in lost:
        machine.reconnect(disk)
    machine.until_healthy()
    assert machine.status()["can_lose"] == 2
    machine.qemu_io(*reads)
    machine.server.kill()
    for disk in others:
        machine.lose(disk)
    machine.server.start()
    machine.attach()
    machine.qemu_io(*reads)
    machine("space", "detach", "vm")
    machine("space", "destroy", "vm", "--yes")
    assert machine.status()["allocated"] == 0


def test_local_reconstruction_refuses_what_cannot_be(machine):
    machine.pool("abc")
    for words, why in [(["dual-parity", "--groups", "2"], "11 disks are needed"), (["dual-parity", "--groups", "2", "--columns", "6"], "6 disks are needed"),
                       (["parity", "--groups", "2"], "--resiliency dual-parity --groups 2"), (["mirror", "--groups", "2"], "omit --groups")]:
        said = machine.refused("space", "create", "vm", "--pool", "tank", "--size", "8MiB", "--resiliency", *words)
        assert why in said, said
    machine("disk", "create-file", *machine.paths("defgh"), "--size", DISK)
    for disk in "defgh":
        machine("pool", "add-disk", "tank", "--assume-atomic", "--disk", machine.path(disk))
    said = machine.refused("space", "create", "vm", "--pool", "tank", "--size", "8MiB", "--resiliency", "dual-parity", "--groups", "2", "--columns", "8")
    assert "an even number of data columns, 4 to 14" in said, said


def test_parity_refuses_what_cannot_be(machine):
    machine.pool("abc")
    for words, why in [(["--resiliency", "dual-parity"], "4 disks"), (["--resiliency", "parity", "--columns", "2"], "2 columns are too few: at least 3 are needed"),
                       (["--resiliency", "parity", "--columns", "5"], "5 disks")]:
        said = machine.refused("space", "create", "vm", "--pool", "tank", "--size", "8MiB", *words)
        assert why in said, said


def deaf(machine, requests=64):
    """A client that asks for replies and takes none."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    client.connect(str(machine.socket))
    take = lambda n: client.recv(n, socket.MSG_WAITALL)  # noqa: E731
    assert take(18)[:8] == b"NBDMAGIC"
    client.sendall(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x08\0\0\0\0\0\x01\0\x03")
    take(20 + 12 + 20 + 14 + 20)
    for n in range(requests):
        client.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, n, 0, MIB))
    take(16)
    return client


def test_clients_that_take_no_replies_stall_nobody(machine):
    """Neither another's I/O, nor detaching, nor, several of them, the end of the server."""
    machine.pool("ab")
    machine.mirror()
    machine.attach()
    machine.qemu_io("write -P 7 0 4M", "flush")
    client = deaf(machine)
    machine.qemu_io("read -P 7 0 4M")
    machine("space", "detach", "vm", timeout=30)
    client.close()
    machine.attach()
    clients = [deaf(machine) for _ in range(4)]
    assert machine.server.stop() == 0
    [client.close() for client in clients]


def test_names_with_blanks_are_quoted_and_encoded(machine):
    """The commands in messages can be run; and a journal is no virtual disk of users."""
    machine.pool("abc", "my pool")
    machine("space", "create", "my vm", "--pool", "my pool", "--resiliency", "parity", "--size", SPACE)
    assert machine.json("pool", "list")[0]["spaces"] == 1
    place = machine.socket.with_name("a b&c#d")
    told = machine("space", "attach", "my vm", "--nbd", place)
    [url] = re.findall(r"nbd\+unix:\S+", told)
    assert url.endswith("/a%20b%26c%23d") and "/my%20vm?" in url
    run(["qemu-io", "-f", "raw", "-c", "write -P 1 0 1M", "-c", "flush", url], timeout=120)
    assert "causeway space detach 'my pool/my vm'" in machine.refused("pool", "export", "my pool")
    machine("space", "detach", "my pool/my vm")
    machine("pool", "export", "my pool")
    assert "causeway pool import 'my pool'" in machine.refused("space", "create", "a", "--pool", "my pool", "--size", "1MiB")


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_terminal(machine, columns):
    """No line is wider than the terminal, what matters is there, and states have a colour unless NO_COLOR is set."""
    machine.pool("abc")
    machine.mirror()
    machine.attach()
    machine("pool", "offline-disk", "tank", "1")
    environment = {"CAUSEWAY_CONTROL": str(Path(machine.server.sockets.name) / "control.sock")}

    def shown(*words, **more):
        return in_terminal([Causeway.binary, *words], columns, env=environment | more)[0]

    wanted = {
        ("disk", "list"): ["tank", "In a pool", "maintenance"],
        ("pool", "list"): ["tank", "Degraded", "Warning", "1 disk now"],
        ("space", "list"): ["vm", "Mirror", "48 MiB"],
        ("pool", "show", "tank"): ["CanLose", "vm", "tank"],
        ("event", "list"): ["pool tank", "created from 3 disks"],
        ("job", "list"): ["Name", "Object"],
    }
    for words, texts in wanted.items():
        text = plain(shown(*words))
        assert all(len(line) <= columns for line in text.splitlines()), text
        folded = " ".join(text.split())
        for word in texts:
            assert word in folded or word in text, (words, word, text)
    assert "ProvisioningType" in plain(shown("space", "list", "--wide")) and "not shown" in shown("space", "list")
    assert "\x1b[" in shown("pool", "list") and "\x1b[" not in shown("pool", "list", NO_COLOR="1")
    assert "\x1b[" in shown("health") and "\x1b[" not in shown("health", NO_COLOR="1")
    assert machine("pool", "list", "--columns", "Size,friendlyname").split()[:2] == ["Size", "FriendlyName"]
    assert "the columns are FriendlyName" in machine("pool", "list", "--columns", "Sise", status=2)
