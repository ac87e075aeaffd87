"""What an 8 KiB READ of a cached block costs the server: locked instructions and allocations, counted one by one.

A worker of the server is single-stepped (tests/stepcount) while goload reads over one TCP connection from a share of a
directory (backend hostdir), in the steady state: the file is in the page cache, all buffers have their size. The counts are of
user space; each READ makes one preadv2, which is how the READs are counted. Nothing is timed, so a busy machine changes nothing.

Signed is the default configuration, where signing is required; unsigned allows it and the client asks for none. The bars are
for 32 READs in flight, where what a turn of the connection costs is shared; one at a time is printed beside them.
"""

import collections
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.servers import Causeway

from . import ROOT

# (signing, READs in flight); the first two have bars.
CASES = {"signed": ("required", 32), "unsigned": ("enabled", 32), "signed-1": ("required", 1), "unsigned-1": ("enabled", 1)}
BARS = {"allocations": 1, "locked": 4}
READS = 512
# Before counting: the file is made, and read for a while.
WARM_UP_S = 5
FILE_MIB = 16
PREADV2 = 327
ALLOCATORS = ("malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc")
STEPCOUNT = ROOT / "target" / "release" / "stepcount"
# Functions that are named by the function that called them: primitives, which tell nothing.
PRIMITIVE = re.compile(r"^(<?\*?(core|alloc|std|parking_lot|lock_api|hashbrown|smallvec|rustix|libc)::|<(core|alloc|std|parking_lot|lock_api|smallvec|\[|&)"
                       r"|__|_?(malloc|calloc|realloc|free|cfree|posix_memalign|aligned_alloc)|alloc$|\?\?)")


def mappings(pid):
    """The files mapped into a process, as (start, end, offset, path)."""
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/"):
            start, end = (int(x, 16) for x in words[0].split("-"))
            found.append((start, end, int(words[2], 16), words[5]))
    return found


def segments(path):
    """The loaded segments of an ELF file, as (offset, address, size)."""
    text = subprocess.run(["readelf", "-lW", path], check=True, capture_output=True, text=True).stdout
    return [tuple(int(x, 16) for x in m) for m in re.findall(r"^\s*LOAD\s+(0x\w+)\s+(0x\w+)\s+0x\w+\s+(0x\w+)", text, re.M)]


def allocators(pid):
    """Where the C library's allocator begins in a process."""
    libc = next(m for m in mappings(pid) if "/libc.so" in m[3] and m[2] == 0)
    names = subprocess.run(["nm", "-D", "--defined-only", libc[3]], check=True, capture_output=True, text=True).stdout
    found = dict(re.findall(rf"^(\w+) \w ({'|'.join(ALLOCATORS)})(?:@@\S+)?$", names, re.M) and
                 [(name, value) for value, name in re.findall(rf"^(\w+) \w ({'|'.join(ALLOCATORS)})(?:@@\S+)?$", names, re.M)])
    return [f"{libc[0] + int(value, 16):x}" for value in found.values()]


class Symbols:
    """Names of the functions that addresses of a process lie in."""

    def __init__(self, pid):
        self.maps, self.known, self.segments = mappings(pid), {}, {}

    def place(self, address):
        for start, end, offset, path in self.maps:
            if start <= address < end:
                at = address - start + offset
                if path not in self.segments:
                    self.segments[path] = segments(path)
                for file_offset, virtual, size in self.segments[path]:
                    if file_offset <= at < file_offset + size:
                        return path, at - file_offset + virtual
        return None, address

    def resolve(self, addresses):
        """Fills `known`: for each address the functions there, the innermost inlined one first."""
        by_file = collections.defaultdict(list)
        for address in addresses:
            path, at = self.place(address)
            if path:
                by_file[path].append((address, at))
            else:
                self.known[address] = ["??"]
        for path, wanted in by_file.items():
            out = subprocess.run(["addr2line", "-aifCe", path, *(f"{at:x}" for _, at in wanted)], check=True, capture_output=True, text=True).stdout
            parts = re.split(r"^0x[0-9a-f]+\n", out, flags=re.M)[1:]
            for (address, _), part in zip(wanted, parts):
                self.known[address] = [shortened(name) for name in part.splitlines()[0::2]]

    def stack(self, addresses):
        """The names of an event's functions, innermost first; an address of a caller is that of its call."""
        return [name for i, a in enumerate(addresses) for name in self.known[a if i == 0 else a - 1]]


def shortened(name):
    """A name without its hash and its type arguments."""
    name = re.sub(r"::h[0-9a-f]{16}$", "", name)
    while (cut := re.sub(r"::<[^<>]*>", "", name)) != name:
        name = cut
    return name


def owner(stack):
    """The functions an event is booked on: the first that is no primitive, with the one that called it."""
    ours = [name for name in stack if not PRIMITIVE.match(name)]
    return " < ".join(dict.fromkeys(ours[:3])) or stack[0]


def thread(pid, name):
    """The id of a thread of a process by its name."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    sys.exit(f"bench: the server has no thread {name}")


def stepped(pid, worker, goload, reads=READS):
    """Steps a worker of a server that `goload`, a command, reads from: counts for each READ, and tables by function."""
    client = subprocess.Popen(goload, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(WARM_UP_S)
        if client.poll() is not None:
            sys.exit(f"bench: goload failed:\n{client.stderr.read()[-2000:]}")
        done = subprocess.run([STEPCOUNT, str(pid), str(worker), str(PREADV2), str(reads), *allocators(pid)],
                              capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            sys.exit(f"bench: {done.stderr}")
        found = json.loads(done.stdout)
        symbols = Symbols(pid)
        symbols.resolve({a if i == 0 else a - 1 for e in found["events"] for i, a in enumerate(e["stack"])})
    finally:
        client.kill()
        client.wait()
    tables = {kind: collections.Counter() for kind in ("locked", "fence", "allocation")}
    for event in found["events"]:
        tables[event["kind"]][owner(symbols.stack(event["stack"]))] += event["n"] / reads
    totals = {kind: sum(table.values()) for kind, table in tables.items()}
    return {"instructions": found["instructions"] / reads, "locked": totals["locked"], "fences": totals["fence"],
            "allocations": totals["allocation"], "syscalls": {k: n / reads for k, n in found["syscalls"].items()},
            "by_function": {kind: dict(table.most_common()) for kind, table in tables.items()}}
