"""What an 8 KiB READ of a cached block costs the server: locked instructions and allocations, counted one by one.

A worker of the server is single-stepped (tests/stepcount) while `causeway bench` reads over one TCP connection from a share of
a directory (backend hostdir) whose file is in the page cache. The counts are of user space; each READ makes one preadv2, which
is how the READs are counted. Nothing is timed, so a busy machine changes nothing.

Signed is the default configuration, where signing is required (AES-GMAC); unsigned allows it, and the client asks for none. The
bars are for 32 READs in flight, where the cost of a turn of the connection is shared; one at a time is printed beside them.
"""

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.servers import Causeway

from . import BINARY, ROOT

# (signing, READs in flight)
CASES = {"signed": ("required", 32), "unsigned": ("enabled", 32), "signed, one at a time": ("required", 1),
         "unsigned, one at a time": ("enabled", 1)}
# For those with many in flight.
BARS = {"allocations": 1, "locked": 4}
# READs that are stepped; a multiple of those in flight, so that whole turns are counted.
READS = 64
# Before counting, so that all buffers have their size.
WARM_UP_S = 3
FILE_MIB = 16
PREADV2 = 327
ALLOCATORS = ("malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc")
STEPCOUNT = ROOT / "target" / "release" / "stepcount"
# Rows of the table by function.
ROWS = 8
# Primitives say nothing of why: an event is booked on the functions that called them.
PRIMITIVE = re.compile(r"^(<?\*?(core|alloc|std|parking_lot|lock_api|hashbrown|smallvec|rustix|libc)::|<(core|alloc|std|parking_lot|lock_api|smallvec|\[|&)"
                       r"|(fetch_\w+|compare_exchange\w*|swap|lock|unlock|register|clone|drop|try_update|drop_in_place|alloc_impl\w*|with_capacity_in|\{closure\S*)(<.*|$)"
                       r"|__|_?(malloc|calloc|realloc|free|cfree|posix_memalign|aligned_alloc)|alloc$|\?\?)")


class DiskServer(Causeway):
    """Our server with a share of a directory."""

    binary = BINARY


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
    found = re.findall(rf"^(\w+) \w (?:{'|'.join(ALLOCATORS)})(?:@@\S+)?$", names, re.M)
    return [f"{libc[0] + int(value, 16):x}" for value in dict.fromkeys(found)]


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
    """The functions an event is booked on: the innermost that is no primitive, and the one that called it."""
    ours = list(dict.fromkeys(name for name in stack if not PRIMITIVE.match(name)))
    return " < ".join(ours[:2]) or stack[0]


def thread(pid, name):
    """The id of a thread of a process by its name."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    sys.exit(f"bench: the server has no thread {name}")


def stepped(pid, worker, load, password, reads=READS):
    """Steps a worker of a server that `load`, a command, reads from: counts for each READ, and tables by function."""
    client = subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "CAUSEWAY_PASSWORD": password})
    try:
        time.sleep(WARM_UP_S)
        if client.poll() is not None:
            sys.exit(f"bench: {' '.join(map(str, load))}:\n{client.stderr.read()[-2000:]}")
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
            "allocations": totals["allocation"], "syscalls": sum(found["syscalls"].values()) / reads,
            "by_function": {kind: dict(table.most_common()) for kind, table in tables.items()}}


def measure(place):
    """Counts all cases and prints tables; {case: {instructions, locked, fences, allocations, syscalls, by_function}}."""
    everything = {}
    print(f"{'8 KiB READ of a cached block':<30}{'locked':>8} {'fences':>8} {'allocations':>12} {'system calls':>13} {'instructions':>13}")
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for case, (signing, depth) in CASES.items():
            server = DiskServer(Path(folder) / case.replace(", ", "-").replace(" ", "-"), signing=signing, settings={"workers": 1}).start()
            try:
                (server.path() / "data").write_bytes(os.urandom(FILE_MIB << 20))
                words = ["bench", "--quiet", "--json", "--transport=tcp", *(["--unsigned"] if signing == "enabled" else []), "-b8K", "-r",
                         "-w0", "-t1", f"-o{depth}", "-W0", "-d3600", f"smb://{server.user}@{server.host}:{server.port}/{server.share}/data"]
                everything[case] = found = stepped(server.pid, thread(server.pid, "worker-0"), [BINARY, *words], server.password)
            finally:
                server.stop()
            print(f"{case:<30}{found['locked']:8.2f} {found['fences']:8.2f} {found['allocations']:12.2f} {found['syscalls']:13.2f} "
                  f"{found['instructions']:13.0f}{verdict(case, found)}")
    for kind in ("locked", "allocation"):
        for name, count in list(everything["signed"]["by_function"][kind].items())[:ROWS]:
            print(f"  {kind}, signed: {count:6.2f}  {name}")
    return everything


def over(case, found):
    """The bars that a case misses."""
    return [f"{found[what]:.2f} {what} (bar {most})" for what, most in BARS.items() if CASES[case][1] > 1 and found[what] > most]


def verdict(case, found):
    if CASES[case][1] == 1:
        return ""
    return "  NOT MET" if over(case, found) else "  met"


def missed(everything):
    """The bars that were not met, as text."""
    return [f"counts {case}: {what}" for case, found in everything.items() for what in over(case, found)]


def table(everything):
    """The results as Markdown."""
    lines = ["| for each READ | locked instructions | allocations | system calls | instructions in user space | |", "|---|---|---|---|---|---|"]
    for case, found in everything.items():
        verdict_ = {"": "", "  met": "met", "  NOT MET": "**not met**"}[verdict(case, found)]
        lines.append(f"| {case} | {found['locked'] + found['fences']:.2f} | {found['allocations']:.2f} | {found['syscalls']:.2f} "
                     f"| {found['instructions']:,.0f} | {verdict_} |")
    lines += ["", "| locked instructions, signed | for each READ |", "|---|---|"]
    functions = list(everything["signed"]["by_function"]["locked"].items())
    short = lambda part: part if len(part) <= 80 else part[:80] + "…"
    lines += [f"| {' ← '.join(f'`{short(part)}`' for part in name.split(' < '))} | {count:.2f} |" for name, count in functions[:ROWS]]
    rest = functions[ROWS:]
    lines.append(f"| {len(rest)} others | {sum(count for _, count in rest):.2f} |")
    return "\n".join(lines)
