"""Causeway's server and client beside the same loop without SMB: what SMB costs.

On one side `causeway bench` on a share of the `null` backend, which has no storage under it, over SMB Direct and over TCP; on the
other the same `causeway bench` on `causeway bench listen`, which moves the same bytes by the same RDMA operations, or over a bare
socket, with a request of 32 bytes and a reply of 8. One thread, one connection, 32 I/Os outstanding, loopback; no signatures, as
most clients have it. In turns, medians. What counts is how many I/Os a second of processor time does, the client's and the
server's together; and the aim is 60 % of what it does without SMB, and 40 % for 1 KiB over TCP.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from harness.servers import Causeway, free_port

from . import BINARY, medians

AIM = 0.6
AIMS = {("tcp", "read-1k"): 0.4}
DEPTH = 32
# The file on the null device; its size costs nothing.
FILE = "64M"
ROWS = {
    "read-1k": (1 << 10, 0), "read-8k": (8 << 10, 0), "read-64k": (64 << 10, 0), "read-512k": (512 << 10, 0),
    "write-8k": (8 << 10, 100), "write-512k": (512 << 10, 100),
}
# name: (what `causeway bench` says of SMB's, and of the other's)
CARRIERS = {"iwarp": ("SMB over SMB Direct", "RDMA over iWARP, without SMB"), "tcp": ("SMB over TCP", "TCP, without SMB")}


class NullServer(Causeway):
    """Our server with a share of nothing."""

    binary = BINARY

    def configure(self):
        super().configure()
        with open(self.config, "a") as config:
            config.write('[[share]]\nname = "null"\nbackend = "null"\n')


class Listener:
    """`causeway bench listen` on both carriers; its places by carrier."""

    def __init__(self):
        self.process = subprocess.Popen([BINARY, "bench", "listen", "iwarp://127.0.0.1:0", "tcp://127.0.0.1:0"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        ready = self.process.stdout.readline().removeprefix("ready: ").strip()
        self.places = {carrier: f"{carrier}://{at}" for carrier, at in (p.split(" ") for p in ready.split(", "))}

    def stop(self):
        self.process.terminate()
        self.process.wait()


def bench(words, pid, engine, password=""):
    """One run of `causeway bench`; {iops, per_core, per_server_core, client_us, server_us, work_requests}."""
    run = subprocess.run([BINARY, "bench", "--json", "--quiet", "--pid", str(pid), *words], capture_output=True, text=True,
                         env={**os.environ, "CAUSEWAY_PASSWORD": password})
    if run.returncode != 0:
        raise SystemExit(f"bench: {' '.join(words)}:\n{run.stderr[-2000:]}")
    span = json.loads(run.stdout)["timespans"][0]
    if not span["engine"].startswith(engine):
        raise SystemExit(f"bench: {' '.join(words)} went by {span['engine']!r}, not by {engine!r}")
    ios, (client, server) = span["total"]["ios"], (p["cpu_s"] for p in span["processes"])
    found = {"iops": span["total"]["iops"], "per_core": ios / (client + server), "per_server_core": ios / server,
             "client_us": client / ios * 1e6, "server_us": server / ios * 1e6}
    if span["work_requests"]:
        found["work_requests"] = span["work_requests"]["per_io"]
    return found


def measure(place, *, rows, runs, seconds):
    """Runs all and prints a table; {carrier: {row: {medians, runs, ratio, server_ratio, met}}}."""
    everything = {}
    with tempfile.TemporaryDirectory(dir=place) as folder:
        server = NullServer(Path(folder) / "null", iwarp_port=free_port(), signing="enabled").start()
        listener = Listener()
        try:
            print(f"{'':<7}{'':<12}{'':<6}{'IOPS':>9} {'IOPS/core':>10} {'server alone':>12} {'client µs':>9} {'server µs':>9}")
            for carrier, (smb, raw) in CARRIERS.items():
                transport = ["--transport", "rdma" if carrier == "iwarp" else "tcp", "--rdma-port", str(server.iwarp_port)]
                share = f"smb://{server.user}@{server.host}:{server.port}/null/{carrier}"
                bench([*transport, f"-c{FILE}", "-d1", "-W0", share], server.pid, smb, server.password)
                everything[carrier] = {}
                for row in rows:
                    block, writes = ROWS[row]
                    load = [f"-b{block}", "-r", f"-w{writes}", f"-o{DEPTH}", "-n", f"-d{seconds}", "-W1"]
                    found = {"smb": [], "raw": []}
                    for _ in range(runs):
                        found["smb"].append(bench([*transport, "--unsigned", *load, share], server.pid, smb, server.password))
                        found["raw"].append(bench([*load, listener.places[carrier]], listener.process.pid, raw))
                    results = {who: medians(list_) for who, list_ in found.items()}
                    ratio, alone = (results["smb"][k] / results["raw"][k] for k in ("per_core", "per_server_core"))
                    aim = AIMS.get((carrier, row), AIM)
                    everything[carrier][row] = {"medians": results, "runs": found, "ratio": ratio, "server_ratio": alone,
                                                "aim": aim, "met": ratio >= aim}
                    show(carrier, row, everything[carrier][row])
        finally:
            listener.stop()
            server.stop()
    return everything


def show(carrier, row, found):
    for who, r in found["medians"].items():
        print(f"{carrier:<7}{row:<12}{who:<6}{r['iops']:9.0f} {r['per_core']:10.0f} {r['per_server_core']:12.0f} "
              f"{r['client_us']:9.2f} {r['server_us']:9.2f}")
    print(f"{'':<19}{'met' if found['met'] else 'NOT MET':<10}{found['ratio']:.0%} of the limit (aim {found['aim']:.0%}); "
          f"server alone {found['server_ratio']:.0%}")


def missed(everything):
    """The aims that were not met, as text."""
    return [f"{carrier} {row}: {found['ratio']:.0%} of the limit (aim {found['aim']:.0%})"
            for carrier, rows in everything.items() for row, found in rows.items() if not found["met"]]


def table(everything):
    """The results as Markdown."""
    lines = ["| | | IOPS per core, SMB | without SMB | of the limit | bar | | server alone | µs/IO, client + server: SMB | without SMB |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for carrier, rows in everything.items():
        for row, found in rows.items():
            smb, raw = found["medians"]["smb"], found["medians"]["raw"]
            block, writes = ROWS[row]
            name = {"iwarp": "SMB Direct (iWARP)", "tcp": "TCP"}[carrier]
            lines.append(
                f"| {name} | {block >> 10} KiB {'write' if writes else 'read'} | {smb['per_core']:,.0f} | {raw['per_core']:,.0f} "
                f"| {found['ratio']:.0%} | {found['aim']:.0%} | {'met' if found['met'] else '**not met**'} | {found['server_ratio']:.0%} "
                f"| {smb['client_us']:.1f} + {smb['server_us']:.1f} | {raw['client_us']:.1f} + {raw['server_us']:.1f} |")
    return "\n".join(lines)
