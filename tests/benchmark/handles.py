"""Opening and closing persistent handles beside ordinary ones, on a share with continuous availability.

64 in flight on one connection over TCP on loopback, in turns, medians; our own client (crates/smb-client/examples/handles.rs),
signed as the server requires. A persistent handle is on stable storage before its CREATE is answered.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from harness import ROOT
from harness.servers import Causeway

from . import medians

DEPTH = 64
KINDS = ("ordinary", "persistent")
# How many times as long a persistent one may take.
AIM = 2.0


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(server, kind, seconds):
    """One run; {per_s, cpu_us}."""
    before = cpu_seconds(server.pid)
    out = subprocess.run([ROOT / "target" / "release" / "examples" / "handles", f"{server.host}:{server.port}", server.share, kind,
                          str(DEPTH), str(seconds)], capture_output=True, text=True, timeout=seconds + 60,
                         env={**os.environ, "SMB_USER": server.user, "SMB_PASSWORD": server.password})
    found = re.search(r"^(\d+) opens and closes per second", out.stdout, re.M)
    if not found:
        raise SystemExit(f"bench: handles failed:\n{out.stdout}{out.stderr[-2000:]}\nlog: {server.log}")
    per_s = float(found[1])
    return {"per_s": per_s, "cpu_us": (cpu_seconds(server.pid) - before) / (per_s * seconds) * 1e6}


def measure(place, *, runs, seconds):
    """Runs all and prints a table; {medians, runs, ratio, met}."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        server = Causeway(Path(folder) / "handles", share_settings={"continuous_availability": True}).start()
        try:
            found = {kind: [] for kind in KINDS}
            for _ in range(runs):
                for kind in KINDS:
                    found[kind].append(load(server, kind, seconds))
        finally:
            server.stop()
    results = {kind: medians(list_) for kind, list_ in found.items()}
    ratio = results["ordinary"]["per_s"] / results["persistent"]["per_s"]
    print(f"{'':<12}{'open+close/s':>12} {'CPU µs/op':>10}")
    for kind, r in results.items():
        print(f"{kind:<12}{r['per_s']:12.0f} {r['cpu_us']:10.1f}")
    print(f"a persistent one takes {ratio:.2f} times as long ({'met' if ratio <= AIM else 'NOT MET'})")
    return {"medians": results, "runs": found, "ratio": ratio, "met": ratio <= AIM}


def missed(found):
    """The bars that were not met, as text."""
    return [] if found["met"] else [f"handles: a persistent one takes {found['ratio']:.2f} times as long (aim {AIM:.0f})"]


def table(found):
    """The results as Markdown."""
    lines = ["| | opens and closes per second | CPU µs, server |", "|---|---|---|"]
    lines += [f"| {kind} | {r['per_s']:,.0f} | {r['cpu_us']:,.0f} |" for kind, r in found["medians"].items()]
    return "\n".join(lines) + f"\n\nA persistent handle takes {found['ratio']:.2f} times as long (bar {AIM:.0f}): " \
                              f"{'met' if found['met'] else '**not met**'}."
