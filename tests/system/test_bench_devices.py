"""`causeway bench` on block devices: loop devices, past the page cache, and what keeps it from destroying what is on one."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess

import pytest

from harness.programs import run
from harness.servers import Causeway

pytestmark = [
    pytest.mark.skipif(not Causeway.binary.exists(), reason="causeway is not built"),
    pytest.mark.skipif(os.geteuid() != 0, reason="block devices need root"),
    pytest.mark.skipif(shutil.which("losetup") is None, reason="no losetup"),
]

SIZE = 16 << 20
SECONDS = ["-d1", "-W0"]


class Device:
    """A loop device on a file of random bytes."""

    def __init__(self, folder, sector=512):
        self.file = folder / "disk"
        self.file.write_bytes(os.urandom(SIZE))
        made = subprocess.run(["losetup", "--find", "--show", f"--sector-size={sector}", self.file], capture_output=True, text=True)
        if made.returncode != 0:
            pytest.skip(f"no loop device can be made: {made.stderr.strip()}")
        self.path = made.stdout.strip()

    def digest(self):
        """Of what is on it, past its cache."""
        subprocess.run(["blockdev", "--flushbufs", self.path], check=True)
        with open(self.path, "rb") as device:
            return hashlib.sha256(device.read()).hexdigest()

    def close(self):
        subprocess.run(["losetup", "--detach", self.path], check=True)


@pytest.fixture
def device(tmp_path):
    device = Device(tmp_path)
    yield device
    device.close()


@pytest.fixture
def mounted(device, tmp_path):
    """The device with a file system that is mounted."""
    run(["mkfs.ext4", "-q", "-F", device.path])
    place = tmp_path / "mounted"
    place.mkdir()
    if subprocess.run(["mount", device.path, place]).returncode != 0:
        pytest.skip("nothing can be mounted here")
    yield device
    run(["umount", place])


def bench(*words, status=0):
    return run([Causeway.binary, "bench", "--quiet", *words], status=status, timeout=60)


def span(result):
    [span] = json.loads(result.out)["timespans"]
    assert span["total"]["ios"] > 0 and not span["errors"], result
    return span


def test_reads_need_no_word(device):
    before = device.digest()
    report = span(bench("--json", "-b4K", "-r", "-o8", "-t2", "-Sh", "-L", *SECONDS, device.path))
    assert report["engine"].startswith("io_uring, O_DIRECT"), report["engine"]
    assert {t["size"] for thread in report["threads"] for t in thread["targets"]} == {SIZE}
    assert device.digest() == before


@pytest.mark.parametrize("words", [["-w100"], ["-w1", "-Sb"], ["-w50", "-Sm"], ["-w100", "-c4M"]], ids=" ".join)
def test_writes_are_refused_without_the_word(device, words):
    before = device.digest()
    refused = bench(*words, "-b4K", *SECONDS, device.path, status="failure")
    assert "--overwrite-devices" in refused.out and device.path in refused.out, refused
    assert device.digest() == before


def test_the_refusal_is_before_anything_is_written(device, tmp_path):
    beside = tmp_path / "made"
    bench("-w100", "-b4K", "-c1M", *SECONDS, beside, device.path, status="failure")
    assert not beside.exists()


@pytest.mark.parametrize("words", [["-Sh"], ["-Su"], ["-Sb"], ["-Sm"]], ids=" ".join)
def test_several_threads_write_and_what_they_wrote_is_there(device, words):
    """Each thread opens the device, and none of them keeps the others out."""
    before = device.digest()
    report = span(bench("--json", "--verify", "--overwrite-devices", "-b4K", "-r", "-o8", "-t3", "-w60", *words, *SECONDS, device.path))
    assert report["verified"]["sectors"] > 0 and report["verified"]["mismatches"] == 0, report["verified"]
    assert device.digest() != before


def test_a_mounted_device_is_refused_whatever_is_said(mounted):
    refused = bench("-w100", "-b4K", "--overwrite-devices", *SECONDS, mounted.path, status="failure")
    assert "in use" in refused.out, refused
    # It may be read.
    span(bench("--json", "-b4K", "-r", *SECONDS, mounted.path))


def test_nobody_mounts_it_meanwhile(device, tmp_path):
    run(["mkfs.ext4", "-q", "-F", device.path])
    place = tmp_path / "mounted"
    place.mkdir()
    # The last third of the device: the file system can still be mounted afterwards.
    words = ["-w100", "-b4K", "-B10M:4M", "--overwrite-devices", "-d20", "-W0", "-g10i"]
    load = subprocess.Popen([Causeway.binary, "bench", "--quiet", *words, device.path], stdout=subprocess.DEVNULL)
    try:
        # Once to have it for itself, and again for the load.
        while files(load.pid).count(device.path) < 2:
            assert load.poll() is None, "it ended"
        assert subprocess.run(["mount", device.path, place], capture_output=True).returncode != 0
    finally:
        load.terminate()
        load.wait(30)


def files(pid):
    """What a process has open at this moment."""
    found = []
    try:
        for n in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found.append(os.readlink(f"/proc/{pid}/fd/{n}"))
    except FileNotFoundError:
        pass  # the process has ended
    return found


def test_sectors_are_the_devices(tmp_path):
    device = Device(tmp_path, sector=4096)
    try:
        refused = bench("-b512", "-Su", *SECONDS, device.path, status="failure")
        assert "multiples of 4096" in refused.out, refused
        span(bench("--json", "-b4K", "-Su", *SECONDS, device.path))
    finally:
        device.close()
