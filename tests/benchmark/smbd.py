"""Causeway beside Samba's smbd with an independent client, and beside a bare loop without SMB.

Each mode is run in turns: smbd, causeway, smbd, causeway, …, with the load of go-smb2 (tests/goload) over loopback, one
connection, queue depth 32, files in the page cache, signing enabled but not required on both. Medians. CPU is the server's own
(with its children), from /proc, over the I/Os that it did. Then the bare loop (tests/bareloop) at the arrival rate that Causeway
had; for large writes also one that splices the payload from the socket to the file, which no signed or encrypted session could
do.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.servers import Causeway, Smbd

from . import ROOT, medians

FILE_BYTES = 256 << 20
# name: (goload's mode, block bytes, bar: at most this part of smbd's CPU per I/O, bar: at most so many µs over the bare loop)
MODES = {
    "randread-8k": ("randread", 8192, 0.3, 2),
    "randwrite-8k": ("randwrite", 8192, 0.45, 5),
    "randread-1k": ("randread", 1024, 0.45, None),
    "randwrite-1k": ("randwrite", 1024, 0.45, None),
    "seqread-512k": ("seqread", 524288, 0.6, None),
    "seqwrite-512k": ("seqwrite", 524288, 0.6, None),
}
UNITS = {"ns": 1e-3, "µs": 1.0, "ms": 1e3, "s": 1e6}


def duration_us(text):
    """A Go duration in microseconds."""
    return sum(float(n) * UNITS[u] for n, u in re.findall(r"([\d.]+)(ns|µs|ms|s)", text.replace("us", "µs")))


def load(server, mode, block, seconds):
    """One run of goload; {iops, mb_s, cpu_us, p50_us, p99_us}."""
    out = subprocess.run(
        ["goload", "-addr", f"{server.host}:{server.port}", "-share", server.share, "-user", server.user, "-pass", server.password,
         "-mode", mode, "-bs", str(block), "-qd", "32", "-conns", "1", "-size", str(FILE_BYTES), "-secs", str(seconds),
         "-pid", str(server.pid)], capture_output=True, text=True, timeout=seconds + 120)
    found = re.search(r"iops=(\S+) MB/s=(\S+) p50=(\S+) p99=(\S+) server_cpu_us/io=(\S+)", out.stdout)
    if not found:
        sys.exit(f"bench: goload against {server.name} failed:\n{out.stdout}{out.stderr[-2000:]}\nlog: {server.log}")
    iops, mb_s, p50, p99, cpu = found.groups()
    return {"iops": float(iops), "mb_s": float(mb_s), "cpu_us": float(cpu), "p50_us": duration_us(p50), "p99_us": duration_us(p99)}


def bare(file, mode, block, rate, seconds):
    """One run of the bare loop (read, write or splice) at `rate`; {iops, cpu_us}."""
    out = subprocess.run([ROOT / "target/release/bareloop", file, mode, str(block), "32",
                          f"{rate:.0f}", str(seconds)], check=True, capture_output=True, text=True).stdout
    result = json.loads(out)
    return {"iops": result["iops"], "cpu_us": result["server_cpu_us"]}


def judge(name, results):
    """[(bar, value as text, met)] for one mode; empty where one of the servers was left out."""
    if "smbd" not in results or "causeway" not in results:
        return []
    ours, theirs, floor = results["causeway"], results["smbd"], results["bare"]
    block, most, over_most = MODES[name][1:]
    reached = floor["iops"] / ours["iops"]
    ratio = ours["cpu_us"] / theirs["cpu_us"]
    bars = [(f"CPU ≤ {most} of smbd's", f"{ratio:.2f}", ratio <= most)]
    if over_most is not None:
        over = ours["cpu_us"] - floor["cpu_us"]
        bars.append((f"CPU ≤ bare loop + {over_most} µs", f"{over:+.1f} µs (it ran at {reached:.0%} of the rate)", over <= over_most))
    if block <= 8192:
        for key, label in (("p50_us", "median latency"), ("p99_us", "99th percentile")):
            ratio = ours[key] / theirs[key]
            bars.append((f"{label} no worse than smbd's", f"{ratio:.2f}", ratio <= 1.0))
    return bars


def show(name, results):
    for who in ("smbd", "causeway", "bare", "splice"):
        if who in results:
            r = results[who]
            latency = f"{r['p50_us']:9.0f} {r['p99_us']:9.0f}" if "p50_us" in r else f"{'':>9} {'':>9}"
            speed = f"{r['mb_s']:9.0f}" if "mb_s" in r else f"{'':>9}"
            print(f"{name:<15}{who:<10}{r['iops']:9.0f} {speed} {r['cpu_us']:9.1f} {latency}")


def measure(place, *, modes, runs, seconds, only):
    """Runs all and prints a table; {mode: {medians, runs, bars}}. `only`: leaves the other server out, and the bars."""
    kinds = [kind for kind in (Smbd, Causeway) if only in (None, kind.name)]
    everything = {}
    with tempfile.TemporaryDirectory(dir=place) as folder:
        servers = [kind(Path(folder) / kind.name, signing="enabled", plain=True).start() for kind in kinds]
        floor_file = Path(folder) / "bare.dat"
        with open(floor_file, "wb") as f:
            for _ in range(FILE_BYTES >> 20):
                f.write(bytes(1 << 20))
        try:
            for server in servers:
                load(server, "randread", 65536, 1)
            print(f"{'mode':<15}{'server':<10}{'IOPS':>9} {'MB/s':>9} {'CPU µs/IO':>9} {'p50 µs':>9} {'p99 µs':>9}")
            for name in modes:
                mode, block, *_ = MODES[name]
                found = {server.name: [] for server in servers}
                for _ in range(runs):
                    for server in servers:
                        found[server.name].append(load(server, mode, block, seconds))
                results = {who: medians(list_) for who, list_ in found.items()}
                if "causeway" in results:
                    rate = results["causeway"]["iops"]
                    loops = {"bare": "read" if mode.endswith("read") else "write"}
                    if name == "seqwrite-512k":
                        loops["splice"] = "splice"
                    for who, loop in loops.items():
                        found[who] = [bare(floor_file, loop, block, rate, min(seconds, 3)) for _ in range(runs)]
                        results[who] = medians(found[who])
                show(name, results)
                bars = judge(name, results)
                for bar, value, met in bars:
                    print(f"{'':<15}{'met' if met else 'NOT MET':<10}{bar}: {value}")
                everything[name] = {"medians": results, "runs": found,
                                    "bars": [{"bar": b, "value": v, "met": m} for b, v, m in bars]}
        finally:
            for server in servers:
                server.stop()
                shutil.copy(server.log, place / f"{server.name}.log")
    return everything


def missed(everything):
    """The bars that were not met, as text."""
    return [f"{name}: {bar['bar']} ({bar['value']})" for name, r in everything.items() for bar in r["bars"] if not bar["met"]]


def table(everything):
    """The results as Markdown."""
    lines = ["| | IOPS, smbd → Causeway | CPU µs/IO, smbd → Causeway | ratio | bar | | bare loop µs/IO | over the loop | p50 µs | p99 µs |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for name, found in everything.items():
        m = found["medians"]
        smbd, ours, floor = m["smbd"], m["causeway"], m["bare"]
        mode, block, most, over_most = MODES[name]
        pattern = "random" if mode.startswith("rand") else "sequential"
        ratio = ours["cpu_us"] / smbd["cpu_us"]
        over = ours["cpu_us"] - floor["cpu_us"]
        reached = floor["iops"] / ours["iops"]
        loop = f"{floor['cpu_us']:.1f}" + (f" ({reached:.0%} of the rate)" if reached < 0.98 else "")
        loop += f"; splice {m['splice']['cpu_us']:.1f}" if "splice" in m else ""
        said = f"{over:+.1f}"
        if over_most is not None:
            said += f", {verdict(over <= over_most)} ({over_most})"
        tails = []
        for key in ("p50_us", "p99_us"):
            worse = block <= 8192 and ours[key] > smbd[key]
            tails.append(f"{smbd[key]:,.0f} → {ours[key]:,.0f}" + (" **not met**" if worse else ""))
        lines.append(
            f"| {block >> 10} KiB {pattern} {'read' if mode.endswith('read') else 'write'} | {smbd['iops']:,.0f} → {ours['iops']:,.0f} "
            f"| {smbd['cpu_us']:.1f} → {ours['cpu_us']:.1f} | {ratio:.2f} | {most} | {verdict(ratio <= most)} | {loop} | {said} "
            f"| {tails[0]} | {tails[1]} |")
    return "\n".join(lines)


def verdict(met):
    return "met" if met else "**not met**"
