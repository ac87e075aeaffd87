"""Unbuffered I/O through the server beside fio's io_uring on the same file: what Hyper-V and SQL Server ask of a share.

8 KiB at random offsets, 64 outstanding, FILE_NO_INTERMEDIATE_BUFFERING, one connection over TCP on loopback, no signatures:
`causeway bench -Su` on one side, fio with io_uring and `direct=1` on the other, in turns on the same file, medians. The file is
written before, so that no write has to find space. CPU is the server's process, and fio's with its io_uring workers less what
an fio that does next to nothing takes. The client of the server runs on the same processors as the server, and fio has none.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from harness.servers import Causeway

from . import BINARY, medians
from .limit import bench

BLOCK, DEPTH = 8192, 64
SIZE = 2 << 30
# name: (percent of writes, write-through)
ROWS = {"read-8k": (0, False), "write-8k": (100, False), "through-8k": (100, True)}
# Those without a bar are shown only: a write-through takes what the disk takes.
BARS = ("read-8k", "write-8k")
IOPS_AIM, CPU_AIM = 0.9, 2.0


class DiskServer(Causeway):
    """Our server with a share of a directory."""

    binary = BINARY


def fio(file, writes, through, seconds, extra=()):
    """One run of fio; {iops, ios, cpu_s, p99_us}."""
    words = ["fio", "--name=fio", f"--filename={file}", "--ioengine=io_uring", "--direct=1", "--thread", "--norandommap",
             "--randrepeat=0", "--time_based", f"--runtime={seconds}", f"--bs={BLOCK}", f"--iodepth={DEPTH}", f"--size={SIZE}",
             f"--rw={'randwrite' if writes else 'randread'}", "--output-format=json", *(["--sync=dsync"] if through else []), *extra]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"bench: fio:\n{process.stderr.read()[-2000:]}")
    way = json.loads(out)["jobs"][0]["write" if writes else "read"]
    return {"ios": way["total_ios"], "iops": way["iops"], "cpu_s": usage.ru_utime + usage.ru_stime,
            "p99_us": way["clat_ns"].get("percentile", {}).get("99.000000", 0) / 1000}


def measure(place, *, rows, runs, seconds):
    """Runs all and prints a table; {row: {medians, runs, iops_ratio, cpu_ratio, met}}."""
    everything = {}
    with tempfile.TemporaryDirectory(dir=place) as folder:
        server = DiskServer(Path(folder) / "unbuffered", signing="enabled").start()
        file = server.path() / "data"
        try:
            with open(file, "wb") as f:
                for _ in range(SIZE >> 20):
                    f.write(os.urandom(1 << 20))
                os.fsync(f.fileno())
            file.chmod(0o666)
            idle = fio(file, 0, False, 1, ["--rate_iops=1"])["cpu_s"]
            share = f"smb://{server.user}@{server.host}:{server.port}/{server.share}/data"
            print(f"{'':<12}{'':<10}{'IOPS':>9} {'CPU µs/IO':>9}")
            for row in rows:
                writes, through = ROWS[row]
                load = [f"-b{BLOCK}", "-r", f"-w{writes}", f"-o{DEPTH}", "-t1", "-n", "-Sh" if through else "-Su", f"-d{seconds}", "-W1"]
                found = {"causeway": [], "fio": []}
                for _ in range(runs):
                    ours = bench(["--transport", "tcp", "--unsigned", *load, share], server.pid, "SMB over TCP", server.password)
                    found["causeway"].append({"iops": ours["iops"], "cpu_us": ours["server_us"], "client_us": ours["client_us"]})
                    raw = fio(file, writes, through, seconds)
                    found["fio"].append({"iops": raw["iops"], "cpu_us": (raw["cpu_s"] - idle) / raw["ios"] * 1e6})
                results = {who: medians(list_) for who, list_ in found.items()}
                iops, cpu = (results["causeway"][k] / results["fio"][k] for k in ("iops", "cpu_us"))
                everything[row] = {"medians": results, "runs": found, "iops_ratio": iops, "cpu_ratio": cpu,
                                   "iops_met": iops >= IOPS_AIM, "cpu_met": cpu <= CPU_AIM, "bar": row in BARS}
                show(row, everything[row])
        finally:
            server.stop()
    return everything


def show(row, found):
    for who, r in found["medians"].items():
        print(f"{row:<12}{who:<10}{r['iops']:9.0f} {r['cpu_us']:9.2f}" + (f"   client {r['client_us']:.2f}" if "client_us" in r else ""))
    said = lambda met: "" if not found["bar"] else " (met)" if met else " (NOT MET)"
    print(f"{'':<22}{found['iops_ratio']:.0%} of fio's IOPS{said(found['iops_met'])}; {found['cpu_ratio']:.2f} times its CPU{said(found['cpu_met'])}")


def missed(everything):
    """The bars that were not met, as text."""
    out = []
    for row, found in everything.items():
        if found["bar"] and not found["iops_met"]:
            out.append(f"unbuffered {row}: {found['iops_ratio']:.0%} of fio's IOPS (aim {IOPS_AIM:.0%})")
        if found["bar"] and not found["cpu_met"]:
            out.append(f"unbuffered {row}: {found['cpu_ratio']:.2f} times fio's CPU (aim {CPU_AIM:.0f})")
    return out


def table(everything):
    """The results as Markdown."""
    lines = ["| | IOPS, fio → Causeway | of fio's | bar | | CPU µs/IO, fio → server | times fio's | bar | | client's µs/IO |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    names = {"read-8k": "8 KiB random read", "write-8k": "8 KiB random write", "through-8k": "8 KiB random write, write-through"}
    for row, found in everything.items():
        ours, raw = found["medians"]["causeway"], found["medians"]["fio"]
        said = lambda met: "" if not found["bar"] else "met" if met else "**not met**"
        bars = (f"{IOPS_AIM:.0%}", f"{CPU_AIM:.0f}") if found["bar"] else ("", "")
        lines.append(
            f"| {names[row]} | {raw['iops']:,.0f} → {ours['iops']:,.0f} | {found['iops_ratio']:.0%} | {bars[0]} | {said(found['iops_met'])} "
            f"| {raw['cpu_us']:.1f} → {ours['cpu_us']:.1f} | {found['cpu_ratio']:.2f} | {bars[1]} | {said(found['cpu_met'])} | {ours['client_us']:.1f} |")
    return "\n".join(lines)
