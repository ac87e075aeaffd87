"""Disks for measuring: RAM disks, and a bound on what each of them gives.

A RAM disk is a loop device on a file in /dev/shm, past the page cache. The kernel's own threads copy its bytes, and their processor time is not counted
here: what is left is what asking costs, so the bar is a hard one. (zram would count the copying, and takes whole pages only,
whatever it says; brd and null_blk are not in every kernel.)

The bound is the block layer's, for all processes of a control group: `io.max` (version 2) or `blkio.throttle` (version 1).
"""

import os
import subprocess
from pathlib import Path

GROUP = f"causeway-bench-{os.getpid()}"


class RamDisks:
    """So many of so many bytes; `paths` and `kind`. Gone with `close`."""

    def __init__(self, number, size):
        self.paths, self.files, self.kind = [], [], "loop devices on tmpfs"
        if os.geteuid() != 0:
            raise SystemExit("bench: part pool makes block devices: run it as root")
        try:
            for n in range(number):
                self.paths.append(self._make(n, size))
        except BaseException:
            self.close()
            raise

    def _make(self, number, size):
        file = Path(f"/dev/shm/{GROUP}-{number}")
        self.files.append(file)
        with open(file, "wb") as f:
            f.truncate(size)
        run = subprocess.run(["losetup", "--find", "--show", "--sector-size=4096", "--direct-io=on", file], capture_output=True, text=True)
        if run.returncode != 0:
            raise SystemExit(f"bench: losetup: {run.stderr.strip()}")
        return run.stdout.strip()

    def close(self):
        for path in self.paths:
            subprocess.run(["losetup", "--detach", path], check=False)
        for file in self.files:
            file.unlink(missing_ok=True)
        self.paths, self.files = [], []


class Cap:
    """A control group whose processes get no more than so many bytes a second from each disk, each way."""

    def __init__(self, paths, bytes_per_second):
        devices = [f"{os.major(os.stat(p).st_rdev)}:{os.minor(os.stat(p).st_rdev)}" for p in paths]
        for root in mounts("cgroup2"):
            if "io" in (root / "cgroup.subtree_control").read_text().split():
                self.how, self.group = "io.max", root / GROUP
                rules = {"io.max": [f"{d} rbps={bytes_per_second} wbps={bytes_per_second}" for d in devices]}
                break
        else:
            for root in mounts("cgroup"):
                if (root / "blkio.throttle.read_bps_device").exists() or "blkio" in root.name:
                    self.how, self.group = "blkio.throttle", root / GROUP
                    rules = {f"blkio.throttle.{way}_bps_device": [f"{d} {bytes_per_second}" for d in devices]
                             for way in ("read", "write")}
                    break
            else:
                raise SystemExit("bench: no control group that bounds I/O: neither io.max nor blkio.throttle")
        self.group.mkdir()
        try:
            for name, lines in rules.items():
                for line in lines:
                    (self.group / name).write_text(line)
        except BaseException:
            self.close()
            raise

    def enter(self):
        """For a child before it becomes the program."""
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        self.group.rmdir()


def mounts(kind):
    """Where file systems of a kind are."""
    return [Path(words[1]) for words in map(str.split, open("/proc/mounts")) if words[2] == kind]
