"""Files made, looked at, listed, renamed and deleted: Causeway beside Samba's smbd with an independent client.

In turns, with gonames (tests/goload/names) over loopback: one connection, 32 operations at once, 10,000 files in one folder of
a share that holds nothing else, signing enabled but not required on both. Medians. CPU is the server's own with its children,
from /proc, over the operations; a listing is of all 10,000.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.servers import Causeway, Smbd

from . import medians

OPERATIONS = ("create", "stat", "list", "rename", "delete")
FILES = 10_000
# The most of smbd's CPU for one operation that is allowed.
AIM = 1 / 3
LINE = re.compile(r"^(\w+) ops=\d+ ops/s=(\S+) server_cpu_us/op=(\S+) client_cpu_us/op=(\S+)$", re.M)


def load(server):
    """One run of gonames; {operation: {ops_s, cpu_us}}."""
    out = subprocess.run(["gonames", "-addr", f"{server.host}:{server.port}", "-share", server.share, "-user", server.user, "-pass",
                          server.password, "-n", str(FILES), "-pid", str(server.pid)], capture_output=True, text=True, timeout=300)
    found = {name: {"ops_s": float(ops), "cpu_us": float(cpu)} for name, ops, cpu, _ in LINE.findall(out.stdout)}
    if set(found) != set(OPERATIONS):
        sys.exit(f"bench: gonames against {server.name} failed:\n{out.stdout}{out.stderr[-2000:]}\nlog: {server.log}")
    return found


def measure(place, *, runs):
    """Runs all and prints a table; {operation: {medians, runs, ratio, met}}."""
    everything = {}
    with tempfile.TemporaryDirectory(dir=place) as folder:
        servers = [kind(Path(folder) / kind.name, signing="enabled", plain=True).start() for kind in (Smbd, Causeway)]
        try:
            found = {server.name: [] for server in servers}
            for _ in range(runs):
                for server in servers:
                    found[server.name].append(load(server))
        finally:
            for server in servers:
                server.stop()
    print(f"{'':<10}{'server':<10}{'ops/s':>9} {'CPU µs/op':>10}")
    for name in OPERATIONS:
        each = {who: [run[name] for run in list_] for who, list_ in found.items()}
        results = {who: medians(list_) for who, list_ in each.items()}
        ratio = results["causeway"]["cpu_us"] / results["smbd"]["cpu_us"]
        everything[name] = {"medians": results, "runs": each, "ratio": ratio, "met": ratio <= AIM}
        for who, r in results.items():
            print(f"{name:<10}{who:<10}{r['ops_s']:9.0f} {r['cpu_us']:10.1f}")
        print(f"{'':<20}{ratio:.2f} of smbd's CPU ({'met' if ratio <= AIM else 'NOT MET'})")
    return everything


def missed(everything):
    """The bars that were not met, as text."""
    return [f"names {name}: {found['ratio']:.2f} of smbd's CPU (aim {AIM:.2f})" for name, found in everything.items() if not found["met"]]


def table(everything):
    """The results as Markdown."""
    lines = ["| | operations/s, smbd → Causeway | CPU µs/operation, smbd → Causeway | of smbd's | bar | |", "|---|---|---|---|---|---|"]
    what = {"create": "create and close", "stat": "stat", "list": f"list {FILES:,} entries", "rename": "rename", "delete": "delete"}
    for name, found in everything.items():
        ours, theirs = found["medians"]["causeway"], found["medians"]["smbd"]
        lines.append(f"| {what[name]} | {theirs['ops_s']:,.0f} → {ours['ops_s']:,.0f} | {theirs['cpu_us']:,.0f} → {ours['cpu_us']:,.0f} "
                     f"| {found['ratio']:.2f} | {AIM:.2f} | {'met' if found['met'] else '**not met**'} |")
    return "\n".join(lines)
