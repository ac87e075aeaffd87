"""A pool's spaces beside fio on the raw disks, the same ones, in the same run, in turns; medians.

`tests/poolload` has the pool in its own process: the data path that the server uses, without a client. fio uses io_uring and O_DIRECT. fio reads
what the pool has written, and writes where the pool has nothing. Its processor time is its process's, with io_uring's workers, less that of an
fio that does next to nothing.

* `ram`: RAM disks, so that only the software takes time. I/Os per second of processor time: a read of the pool at least 70 % of fio's on
  one raw disk, a 4 KiB write to a two-way mirror, which is two writes, at least 55 %, one of 64 KiB at least 45 %. Parity 4 + 1 has no bar.
  The floor is a loop (`tests/poolload/src/floor.rs`) that does the same I/Os and the checksum of each unit, and nothing else. A 4 KiB read
  of the pool takes at most 0.5 µs more.
* `cap`: each of four disks gives so many bytes a second. A simple space, and reads of a mirror, have to reach 95 % of what fio gets from all
  of them (or of the bound, if that is more), writes to a mirror 95 % of half.
* `sums`: what the checksums cost where their blocks are in memory (10 % of a read's processor time at most), and the disks' I/Os for
  each read where a tenth of them is.
* `parity`: sequential writes of whole stripes to parity 4 + 1 on five disks of so many bytes a second, and to a two-way mirror on five such
  disks: new stripes at least 1.5 times as fast as the mirror, overwritten ones at least 0.38. Small random writes take at most 2.0 reads and
  2.7 writes of disks each.
* `files`: a two-way mirror on two files: I/Os, processor time, and disk writes and flushes for each; writes that are durable each (written
  through, or with a flush) beside fio's on such files, on both of them at a time: at least 60 % of what one of them gets.
* `threads`: two spaces of one pool, each used from a thread of its own, and one of them alone; the disks are memory of the process. At least
  1.7 times as many I/Os a second.
* `share`: a mirror through its share over SMB Direct, random reads of 8 KiB, 64 outstanding. The server takes at most as much processor
  time as for the null share and the pool alone together, and one microsecond.
* `instructions`: what one I/O takes in user space, by valgrind's callgrind: the same in each run, whatever else the machine does.
* `repair`: a disk is lost under load: how fast it is rebuilt, as fast as it goes and paced by a target for the load's 99th percentile, and that
  percentile before and meanwhile.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from harness.programs import run
from harness.servers import free_port

from . import BINARY, ROOT, limit, medians
from .devices import Cap, RamDisks

POOLLOAD = Path(os.environ.get("POOLLOAD_BIN", ROOT / "target" / "release" / "poolload"))
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CAP = 100 * 10**6
# Of a disk of the pool: fio writes beyond what the pool has given to its space, and before its second label.
FREE = (60, 35)
# resiliency: (disks, columns)
RAM_SHAPES = {"mirror": (2, 1), "parity": (5, 4)}
# name: (resiliency, write, random, block, depth, the smallest share of fio's, or None)
RAM = {
    "read-4k": ("mirror", False, True, 4 * KIB, 32, 0.70),
    "read-64k": ("mirror", False, True, 64 * KIB, 16, 0.70),
    "mirror-write-4k": ("mirror", True, True, 4 * KIB, 32, 0.55),
    "mirror-write-64k": ("mirror", True, True, 64 * KIB, 16, 0.45),
    "parity-read-4k": ("parity", False, True, 4 * KIB, 32, None),
    "parity-write-4k": ("parity", True, True, 4 * KIB, 32, None),
    "parity-write-1m": ("parity", True, True, MIB, 8, None),
}
# Microseconds that a row may take beyond the floor.
OVER_FLOOR = {"read-4k": 0.5}
# resiliency, and its rows: name: (write, random, block, depth, share of the disks' bytes that are the user's)
CAPPED = {
    "simple": {"read": (False, True, 256 * KIB, 64, 1), "write": (True, True, 256 * KIB, 64, 1),
               "sequential read": (False, False, MIB, 32, 1), "sequential write": (True, False, MIB, 32, 1)},
    "mirror": {"read": (False, True, 256 * KIB, 64, 1), "write": (True, True, 256 * KIB, 64, 0.5),
               "sequential read": (False, False, MIB, 32, 1), "sequential write": (True, False, MIB, 32, 0.5)},
}
CAP_AIM, SUMS_AIM = 0.95, 0.10
# Parity: new and overwritten stripes, as a share of the mirror's rate; reads and writes of disks for a small write.
PARITY_AIM = {"new": 1.5, "over": 0.38, "reads": 2.0, "writes": 2.7}
# Of parity 4 + 1 with its interleave of 256 KiB: whole stripes, so many at a time.
STRIPE = (MIB, 32)
# Of the load's 99th percentile beside a paced repair: what a server's configuration has by default.
TARGET = 0.020
ROWS = ["ram", "cap", "sums", "parity", "files", "repair", "threads", "share", "instructions"]
# name: (write, how each write becomes durable, the same for fio)
FILES = {
    "read-4k": (False, "none", None),
    "write-4k": (True, "none", None),
    "write-4k-through": (True, "through", "--sync=1"),
    "write-4k-flush": (True, "flush", "--fsync=1"),
}
DURABLE_AIM, DURABLE_WRITES = 0.6, 5
THREADS_AIM = 1.7
# Block and depth of part `share`, and the microseconds that the server may take besides its parts.
SHARE, SHARE_AIM_US = (8 * KIB, 64), 1.0
# What is counted by callgrind: some of RAM's.
COUNTED = ["read-4k", "mirror-write-4k"]


class Load:
    """A `poolload`, with its pool."""

    def __init__(self, paths, resiliency, columns, size, *, tables=None, cap=None, fill=True, spaces=1, under=()):
        shape = {"resiliency": resiliency, "columns": columns, "size": size, "tables": tables, "devices": paths, "fill": fill, "spaces": spaces}
        self.process = subprocess.Popen([*under, POOLLOAD, json.dumps(shape)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=cap.enter if cap else None)
        self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise SystemExit("bench: poolload did not end well")

    def do(self, **command):
        self.begin(**command)
        return self.answer()

    def begin(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def load(self, write, random, block, depth, seconds, sync="none"):
        return self.do(do="load", write=write, random=random, block=block, depth=depth, seconds=seconds, sync=sync)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"bench: poolload ended with {self.process.wait()}")
        return json.loads(line)


def fio(paths, write, random, block, depth, seconds, cap=None, extra=()):
    """One run of fio on raw disks at the same time, `depth` I/Os outstanding on each."""
    offset, size = FREE if write else (5, 40)
    words = ["fio", "--ioengine=io_uring", "--direct=1", "--thread", "--norandommap", "--randrepeat=0", "--group_reporting", "--time_based",
             f"--runtime={seconds}", f"--bs={block}", f"--iodepth={depth}", f"--rw={'rand' if random else ''}{'write' if write else 'read'}",
             f"--offset={offset}%", f"--size={size}%", "--output-format=json", *extra]
    words += [word for path in paths for word in (f"--name={Path(path).name}", f"--filename={path}")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=cap.enter if cap else None)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"bench: fio:\n{process.stderr.read()[-2000:]}")
    way = json.loads(out)["jobs"][0]["write" if write else "read"]
    return {"ios": way["total_ios"], "iops": way["iops"], "bytes_per_second": way["bw_bytes"], "cpu_s": usage.ru_utime + usage.ru_stime,
            "p99_us": way["clat_ns"].get("percentile", {}).get("99.000000", 0) / 1000}


def floor(paths, write, _random, block, depth, seconds):
    """The same I/Os with checksums, and with nothing else; writes go to all disks."""
    offset, size = FREE if write else (5, 40)
    bytes_of = lambda percent: GIB // 100 * percent // MIB * MIB
    what = {"write": write, "block": block, "depth": depth, "seconds": seconds, "from": bytes_of(offset), "size": bytes_of(size), "devices": paths}
    return json.loads(subprocess.run([POOLLOAD, "floor", json.dumps(what)], check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(place, *, runs, seconds, rows):
    """Runs all and prints what comes; {section: …}."""
    results = {}
    if "ram" in rows:
        results["ram"] = ram(runs, seconds)
    if "cap" in rows:
        results["cap"] = capped(runs, seconds)
    if "sums" in rows:
        results["sums"] = sums(runs, seconds)
    if "parity" in rows:
        results["parity"] = parity(runs, seconds)
    if "files" in rows:
        results["files"] = files(place, runs, seconds)
    if "repair" in rows:
        results["repair"] = repair(runs, seconds)
    if "threads" in rows:
        results["threads"] = threads(runs, seconds)
    if "share" in rows:
        results["share"] = share(place, runs, seconds)
    if "instructions" in rows:
        results["instructions"] = instructions(place)
    return results


def ram(runs, seconds):
    out = {"rows": {}}
    for resiliency, (number, columns) in RAM_SHAPES.items():
        disks = RamDisks(number, GIB)
        out["disks"] = disks.kind
        try:
            with Load(disks.paths, resiliency, columns, 512 * MIB) as load:
                rows = {name: row[1:] for name, row in RAM.items() if row[0] == resiliency}
                out["rows"] |= ram_rows(disks, load, rows, runs, seconds)
        finally:
            disks.close()
    return out


def ram_rows(disks, load, rows, runs, seconds):
    out, found = {}, {name: {"pool": [], "floor": [], "fio": []} for name in rows}
    idle = fio(disks.paths[:1], False, True, 4 * KIB, 1, 1, extra=["--rate_iops=1"])["cpu_s"]
    for _ in range(runs):
        for name, (write, random, block, depth, aim) in rows.items():
            ours = load.load(write, random, block, depth, seconds)
            found[name]["pool"].append({key: value for key, value in ours.items() if key != "disks"})
            if aim is not None:
                found[name]["floor"].append(floor(disks.paths, write, random, block, depth, seconds))
            raw = fio(disks.paths[:1], write, random, block, depth, seconds)
            cpu = raw["cpu_s"] - idle
            found[name]["fio"].append({**raw, "cpu_us": cpu / raw["ios"] * 1e6, "per_core": raw["ios"] / cpu})
    for name, each in found.items():
        row = out[name] = {who: medians(list_) for who, list_ in each.items() if list_}
        ours, raw, aim = row["pool"], row["fio"], rows[name][-1]
        row |= {"runs": each, "ratio": ours["per_core"] / raw["per_core"], "aim": aim}
        row["met"] = aim is None or row["ratio"] >= aim
        line = f"ram  {name:<20}{ours['cpu_us']:7.2f} µs/IO, fio {raw['cpu_us']:7.2f}; {ours['iops']:9.0f} IOPS, fio {raw['iops']:9.0f}; {row['ratio']:5.0%}"
        if aim is not None:
            line += f" (aim {aim:.0%}) {'met' if row['met'] else 'NOT MET'}; floor {row['floor']['cpu_us']:.2f} µs/IO"
        if name in OVER_FLOOR:
            row["over"] = ours["cpu_us"] - row["floor"]["cpu_us"]
            row["over_met"] = row["over"] <= OVER_FLOOR[name]
            line += f", {row['over']:+.2f} (at most {OVER_FLOOR[name]:+.1f}) {'met' if row['over_met'] else 'NOT MET'}"
        print(line)
    return out


def capped(runs, seconds):
    disks = RamDisks(4, GIB)
    out = {"disks": disks.kind, "bytes_per_second": CAP, "rows": {}}
    try:
        for resiliency, rows in CAPPED.items():
            cap = Cap(disks.paths, CAP)
            out["how"] = cap.how
            try:
                columns = 4 if resiliency == "simple" else 2
                with Load(disks.paths, resiliency, columns, (2 if resiliency == "simple" else 1) * 512 * MIB, cap=cap) as load:
                    for name, (write, random, block, depth, share) in rows.items():
                        both = {"pool": [], "fio": []}
                        for _ in range(runs):
                            ours = load.load(write, random, block, depth, seconds)
                            both["pool"].append({key: value for key, value in ours.items() if key != "disks"})
                            both["fio"].append(fio(disks.paths, write, random, block, depth // len(disks.paths), seconds, cap))
                        ours, raw = medians(both["pool"]), medians(both["fio"])
                        # Where fio was held up by something else, the bound itself is what the disks allow.
                        allowed = max(raw["bytes_per_second"], CAP * len(disks.paths)) * share
                        ratio = ours["bytes_per_second"] / allowed
                        out["rows"][f"{resiliency} {name}"] = {"pool": ours, "fio": raw, "runs": both, "ratio": ratio, "aim": CAP_AIM,
                                                              "allowed": allowed, "met": ratio >= CAP_AIM}
                        print(f"cap  {resiliency} {name:<18}{ours['bytes_per_second'] / 1e6:7.1f} MB/s of {allowed / 1e6:7.1f}, fio on all disks {raw['bytes_per_second'] / 1e6:7.1f}; "
                              f"{ratio:5.1%} (aim {CAP_AIM:.0%}) {'met' if ratio >= CAP_AIM else 'NOT MET'}")
            finally:
                cap.close()
    finally:
        disks.close()
    return out


def sums(runs, seconds):
    """Space of 2 GiB on one column: 1,024 tables of about 2.5 KiB, all in memory or a tenth of them."""
    disks = RamDisks(2, 3 * GIB)
    size = 2 * GIB
    tables = size // (2 * MIB)
    out = {"tables": tables}
    try:
        for name, kept in (("all", 8 * KIB * tables), ("tenth", 256 * tables)):
            with Load(disks.paths, "mirror", 1, size, tables=kept) as load:
                found = [load.load(False, True, 4 * KIB, 32, seconds) for _ in range(runs)]
                out[name] = medians([{k: v for k, v in f.items() if k != "disks"} for f in found])
                if name == "all":
                    out["sum_us"] = sorted(load.do(do="checksums")["us"] for _ in range(runs))[runs // 2]
    finally:
        disks.close()
    out["cost"] = out["sum_us"] / (out["all"]["cpu_us"] - out["sum_us"])
    out["met"] = out["cost"] <= SUMS_AIM
    print(f"sums {out['sum_us']:.3f} µs of {out['all']['cpu_us']:.2f} for a read: {out['cost']:.1%} on top (at most {SUMS_AIM:.0%}); "
          f"disk I/Os for each read: {out['all']['disk_ios_per_io']:.3f} with all tables in memory, {out['tenth']['disk_ios_per_io']:.3f} with a tenth")
    return out


def parity(runs, seconds):
    """Two pools in turns, each on five disks of its own. Written anew, a space is larger than what can be written in the time."""
    disks = RamDisks(10, 2 * GIB)
    block, depth = STRIPE
    shapes = {"parity": (disks.paths[:5], "parity", 4), "mirror": (disks.paths[5:], "mirror", 2)}
    found = {}

    def measure(name, load, random=False, block=block):
        one = load.load(True, random, block, depth, seconds)
        found.setdefault(name, []).append({**one.pop("disks"), **one})

    try:
        cap = Cap(disks.paths, CAP)
        try:
            for _ in range(runs):
                for name, shape in shapes.items():
                    with Load(*shape, min(4, seconds) * GIB, cap=cap, fill=False) as load:
                        measure(f"{name}_new", load)
            with Load(*shapes["parity"], GIB, cap=cap) as striped, Load(*shapes["mirror"], GIB, cap=cap) as mirrored:
                for _ in range(runs):
                    measure("parity_over", striped)
                    measure("mirror_over", mirrored)
                    measure("parity_random", striped, True, 4 * KIB)
                    measure("mirror_random", mirrored, True, 4 * KIB)
        finally:
            cap.close()
    finally:
        disks.close()
    out = {"cap": CAP, "how": cap.how, "runs": found, **{name: medians(each) for name, each in found.items()}}
    m = out["parity_random"]
    out["found"] = {what: out[f"parity_{what}"]["bytes_per_second"] / out[f"mirror_{what}"]["bytes_per_second"] for what in ("new", "over")}
    out["found"] |= {what: m[what] / m["ios"] for what in ("reads", "writes")}
    # A share rounds to two digits, as its bar; a median of few runs is no more exact.
    out["met"] = {what: n >= PARITY_AIM[what] if what in ("new", "over") else n <= PARITY_AIM[what]
                  for what, n in ((what, round(n, 2)) for what, n in out["found"].items())}
    rate = lambda name: out[name]["bytes_per_second"] / 1e6
    bar = lambda what: f"{out['found'][what]:.2f} (aim {PARITY_AIM[what]}) {'met' if out['met'][what] else 'NOT MET'}"
    for what in ("new", "over"):
        print(f"parity 4 + 1, whole stripes, {what}: {rate(f'parity_{what}'):.1f} MB/s, two-way mirror {rate(f'mirror_{what}'):.1f}: {bar(what)}")
    print(f"parity 4 + 1, random 4 KiB writes: {m['iops']:.0f} a second (mirror {out['mirror_random']['iops']:.0f}); disk reads for each {bar('reads')}; writes {bar('writes')}")
    return out


def files(place, runs, seconds):
    """The pool has files of its own, and so has fio."""
    paths = {who: [str(Path(place) / f"pool-{who}-{n}") for n in range(2)] for who in ("pool", "fio")}
    found = {name: {who: [] for who in paths} for name in FILES}
    for path in sum(paths.values(), []):
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, GIB)
    try:
        fio(paths["fio"], True, False, MIB, 4, 1, extra=["--offset=0", "--size=100%", "--time_based=0"])  # no extent is unwritten
        with Load(paths["pool"], "mirror", 1, 512 * MIB) as load:
            for _ in range(runs):
                for name, (write, sync, extra) in FILES.items():
                    one = load.load(write, True, 4 * KIB, 32, seconds, sync)
                    disks = one.pop("disks")
                    found[name]["pool"].append({**one, "disk_writes": disks["writes"] / one["ios"], "disk_flushes": disks["flushes"] / one["ios"]})
                    if extra:
                        found[name]["fio"].append(fio(paths["fio"], write, True, 4 * KIB, 32, seconds, extra=[extra]))
    finally:
        for path in sum(paths.values(), []):
            Path(path).unlink(missing_ok=True)
    out = {"rows": {}}
    for name, each in found.items():
        row = {who: medians(runs_of) for who, runs_of in each.items() if runs_of}
        m = row["pool"]
        line = f"files {name:<18}{m['iops']:8.0f} IOPS, {m['cpu_us']:6.2f} µs, {m['disk_writes']:.2f} writes, {m['disk_flushes']:.3f} flushes; "
        if "fio" in row:
            row["of_fio"] = m["iops"] / (row["fio"]["iops"] / 2)
            row["met"] = row["of_fio"] >= DURABLE_AIM and m["disk_writes"] <= DURABLE_WRITES
            line += f"fio on each of both {row['fio']['iops'] / 2:8.0f}: {row['of_fio']:.0%} (aim {DURABLE_AIM:.0%}) {'met' if row['met'] else 'NOT MET'}"
        out["rows"][name] = row
        print(line)
    return out


def repair(runs, seconds):
    disks = RamDisks(4, GIB)
    found = {"free": [], "paced": []}
    load = {"write": False, "random": True, "block": 8 * KIB, "depth": 4, "seconds": seconds}
    try:
        cap = Cap(disks.paths, CAP)
        try:
            for _ in range(runs):
                for name, target in (("free", None), ("paced", TARGET)):
                    with Load(disks.paths, "mirror", 1, 768 * MIB, cap=cap) as pool:
                        found[name].append(pool.do(do="repair", disk=3, load=load, target=target))
        finally:
            cap.close()
    finally:
        disks.close()
    out = {"cap": CAP, "how": cap.how, "target_s": TARGET, "runs": found}
    for name, each in found.items():
        flat = [{"bytes_per_second": f["bytes_per_second"], "seconds": f["seconds"], "repaired_bytes": f["repaired_bytes"],
                 **{f"{which}_{key}": f[which][key] for which in ("quiet", "beside") for key in ("iops", "p50_us", "p99_us")}} for f in each]
        m = out[name] = medians(flat)
        print(f"repair, {name}: {m['bytes_per_second'] / 1e6:.1f} MB/s of {m['repaired_bytes'] / 1e6:.0f} MB; the load's 99th percentile "
              f"{m['quiet_p99_us']:.0f} → {m['beside_p99_us']:.0f} µs, its rate {m['quiet_iops']:.0f} → {m['beside_iops']:.0f} I/Os a second")
    return out


def threads(runs, seconds):
    found = {name: {"one": [], "two": [], "apart": []} for name in ("read", "write")}
    paths = [f"memory:{GIB}"] * 2
    one, other = (Load(paths, "mirror", 1, 256 * MIB) for _ in range(2))
    with one, other, Load(paths, "mirror", 1, 256 * MIB, spaces=2) as two:
        for _ in range(runs):
            for name, each in found.items():
                words = {"do": "threads", "write": name == "write", "random": True, "block": 4 * KIB, "depth": 32, "seconds": seconds}
                each["one"].append(one.do(**words))
                each["two"].append(two.do(**words))
                # Two processes share nothing but the machine.
                for load in (one, other):
                    load.begin(**words)
                each["apart"].append({"iops": sum(load.answer()["iops"] for load in (one, other))})
    out = {"rows": {}}
    for name, each in found.items():
        one, two, apart = (medians(each[which])["iops"] for which in ("one", "two", "apart"))
        row = out["rows"][name] = {"one": one, "two": two, "apart": apart, "ratio": two / one, "aim": THREADS_AIM, "met": two / one >= THREADS_AIM}
        print(f"threads {name}: {one:.0f} I/Os a second of one space on one thread, {two:.0f} of two on two: {row['ratio']:.2f} times "
              f"(aim {THREADS_AIM}) {'met' if row['met'] else 'NOT MET'}; two processes: {apart / one:.2f} times")
    return out


def share(place, runs, seconds):
    """One server has both shares. All disks are files in memory."""
    block, depth = SHARE
    found = {"null": [], "share": [], "alone": []}
    with tempfile.TemporaryDirectory(dir=place) as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        disks = [str(Path(memory) / f"{n}.disk") for n in range(4)]
        server = limit.NullServer(Path(folder) / "server", iwarp_port=free_port(), signing="enabled").start()
        try:
            causeway = lambda *words: run([BINARY, *words], env={"CAUSEWAY_CONTROL": str(Path(server.sockets.name) / "control.sock")})
            causeway("disk", "create-file", *disks, "--size", "1G")
            causeway("pool", "create", "tank", "--assume-atomic", "--disk", *disks[:2])
            causeway("share", "add", "vms", "--pool", "tank")
            words = ["--transport", "rdma", "--rdma-port", str(server.iwarp_port)]
            place_of = lambda name: f"smb://{server.user}@{server.host}:{server.port}/{name}"
            places = {"null": place_of("null/file"), "share": place_of("vms/file.img")}
            bench = lambda name, *more: limit.bench([*words, *more, places[name]], server.pid, "SMB over SMB Direct", server.password)
            for name in places:
                bench(name, f"-c{GIB // 2}", "-d1", "-W0")
            with Load(disks[2:], "mirror", 1, GIB // 2) as load:
                for _ in range(runs):
                    for name in places:
                        found[name].append(bench(name, "--unsigned", f"-b{block}", "-r", "-w0", f"-o{depth}", "-n", f"-d{seconds}", "-W1"))
                    alone = load.load(False, True, block, depth, seconds)
                    found["alone"].append({key: value for key, value in alone.items() if key != "disks"})
        finally:
            server.stop()
    out = {"runs": found, **{name: medians([{k: v for k, v in one.items() if isinstance(v, (int, float))} for one in each])
                             for name, each in found.items()}}
    parts = [out["null"]["server_us"], out["alone"]["cpu_us"]]
    out["more_us"] = out["share"]["server_us"] - sum(parts)
    out["met"] = out["more_us"] <= SHARE_AIM_US
    print(f"share: {out['share']['server_us']:.2f} µs of the server for a read of {block // KIB} KiB over SMB Direct ({out['share']['iops']:.0f} a second); the null "
          f"share {parts[0]:.2f}, the pool alone {parts[1]:.2f}: {out['more_us']:+.2f} µs (at most {SHARE_AIM_US:+.1f}) {'met' if out['met'] else 'NOT MET'}")
    return out


def instructions(place):
    disks, out = RamDisks(2, GIB // 4), {}
    try:
        for name in COUNTED:
            _, write, random, block, depth, _ = RAM[name]
            profile = Path(place) / f"callgrind-{name}"
            under = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={profile}", "--log-file=/dev/null"]
            with Load(disks.paths, "mirror", 1, 64 * MIB, under=under) as load:
                control = lambda what: subprocess.run(["callgrind_control", "-i", what, str(load.process.pid)], check=True, stdout=subprocess.DEVNULL)
                load.load(write, random, block, depth, 1)
                control("on")
                ios = load.load(write, random, block, depth, 5)["ios"]
                control("off")
            total = next(int(line.split()[1]) for line in profile.read_text().splitlines() if line.startswith("totals:"))
            out[name] = total / ios
            print(f"instructions {name}: {total / ios:.0f} in user space for each ({profile})")
    finally:
        disks.close()
    return out


def missed(results):
    """The aims that were not met, as text."""
    out = [f"pool {part} {name}: {row['ratio']:.1%} (aim {row['aim']:.0%})"
           for part in ("ram", "cap", "threads") for name, row in results.get(part, {}).get("rows", {}).items() if not row["met"]]
    out += [f"pool files {name}: {row['of_fio']:.0%} of fio's (aim {DURABLE_AIM:.0%})"
            for name, row in results.get("files", {}).get("rows", {}).items() if not row.get("met", True)]
    if not results.get("sums", {"met": True})["met"]:
        out.append(f"pool checksums: {results['sums']['cost']:.1%} (at most {SUMS_AIM:.0%})")
    if not results.get("share", {"met": True})["met"]:
        out.append(f"pool share: {results['share']['more_us']:+.2f} µs more than its parts (at most {SHARE_AIM_US:+.1f})")
    out += [f"pool {name}: {row['over']:+.2f} µs over the floor (at most {OVER_FLOOR[name]:+.1f})"
            for name, row in results.get("ram", {}).get("rows", {}).items() if not row.get("over_met", True)]
    if "parity" in results:
        found = results["parity"]["found"]
        out += [f"pool parity {what}: {found[what]:.2f} (aim {PARITY_AIM[what]})" for what, met in results["parity"]["met"].items() if not met]
    return out


def table(results):
    """The results as Markdown."""
    said = lambda met: "met" if met else "**not met**"
    lines = []
    if "ram" in results:
        lines += [f"RAM disks ({results['ram']['disks']}): I/Os per second of processor time. Parity is 4 + 1 on five disks.", "",
                  "| | pool µs/IO | floor µs/IO | fio µs/IO | pool IOPS | fio IOPS | of fio's per core | bar | | CRC passes, copy passes | disk I/Os per I/O |",
                  "|---|---|---|---|---|---|---|---|---|---|---|"]
        for name, row in results["ram"]["rows"].items():
            ours, raw, bare = row["pool"], row["fio"], row.get("floor")
            bars = f"{row['aim']:.0%} | {said(row['met'])}" if row["aim"] else "|"
            lines.append(f"| {name} | {ours['cpu_us']:.2f} | {bare and format(bare['cpu_us'], '.2f') or ''} | {raw['cpu_us']:.2f} | {ours['iops']:,.0f} | {raw['iops']:,.0f} "
                         f"| {row['ratio']:.0%} | {bars} | {ours['crc_passes']:.2f}, {ours['copy_passes']:.2f} | {ours['disk_ios_per_io']:.3f} |")
        for name, bar in OVER_FLOOR.items():
            row = results["ram"]["rows"][name]
            lines += ["", f"{name} takes {row['over']:+.2f} µs over the floor (at most {bar:+.1f}: {said(row['over_met'])})."]
    if "cap" in results:
        cap = results["cap"]
        lines += ["", f"Four disks ({cap['disks']}) of {cap['bytes_per_second'] / 1e6:.0f} MB/s each by {cap['how']}.", "",
                  "| | pool MB/s | limit of the disks, user data | of the limit | bar | | fio, all disks together |",
                  "|---|---|---|---|---|---|---|"]
        for name, row in cap["rows"].items():
            lines.append(f"| {name} | {row['pool']['bytes_per_second'] / 1e6:.1f} | {row['allowed'] / 1e6:.1f} "
                         f"| {row['ratio']:.1%} | {row['aim']:.0%} | {said(row['met'])} | {row['fio']['bytes_per_second'] / 1e6:.1f} |")
    if "sums" in results:
        s = results["sums"]
        lines += ["", f"Checksums with all tables in memory take {s['sum_us']:.3f} µs of the {s['all']['cpu_us']:.2f} µs of a 4 KiB read, {s['cost']:.1%} on top of "
                  f"the rest (at most {SUMS_AIM:.0%}: {said(s['met'])}). With a tenth of the tables in memory, a random read costs {s['tenth']['disk_ios_per_io']:.2f} disk "
                  f"I/Os ({s['all']['disk_ios_per_io']:.2f} with all)."]
    if "parity" in results:
        p = results["parity"]
        r = p["parity_random"]
        bar = lambda what: f"{PARITY_AIM[what]}, {said(p['met'][what])}"
        lines += ["", f"Parity 4 + 1 and a two-way mirror, each on five disks at {p['cap'] / 1e6:.0f} MB/s each; MB/s of user data, whole stripes of 1 MiB, {STRIPE[1]} outstanding.", "",
                  "| | parity | mirror | ratio | bar |", "|---|---|---|---|---|"]
        for what, words in (("new", "new stripes"), ("over", "overwritten stripes")):
            ours, others = (p[f"{name}_{what}"]["bytes_per_second"] / 1e6 for name in ("parity", "mirror"))
            lines.append(f"| {words} | {ours:.1f} | {others:.1f} | {p['found'][what]:.2f} | {bar(what)} |")
        lines += ["", f"Random 4 KiB writes, {STRIPE[1]} outstanding: {r['iops']:,.0f} a second with parity, {p['mirror_random']['iops']:,.0f} with the mirror. With parity each takes {p['found']['reads']:.2f} reads "
                  f"of disks (at most {bar('reads')}), {p['found']['writes']:.2f} writes (at most {bar('writes')}) and {r['flushes'] / r['ios']:.2f} flushes; 99th percentile {r['p99_us']:,.0f} µs."]
    if "files" in results:
        lines += ["", "A two-way mirror on two files; 4 KiB at random offsets, 32 outstanding. fio uses both files at once; its figure is for one of them.", "",
                  "| | pool IOPS | µs of processor time | disk writes for each | flushes | fio | of fio's | bar |", "|---|---|---|---|---|---|---|---|"]
        for name, row in results["files"]["rows"].items():
            a = row["pool"]
            fios = f"{row['fio']['iops'] / 2:,.0f} | {row['of_fio']:.0%} | {DURABLE_AIM:.0%}, {said(row['met'])}" if "fio" in row else "| |"
            lines.append(f"| {name} | {a['iops']:,.0f} | {a['cpu_us']:.2f} | {a['disk_writes']:.2f} | {a['disk_flushes']:.3f} | {fios} |")
    if "repair" in results:
        r = results["repair"]
        lines += ["", f"Repair of a lost disk of four at {r['cap'] / 1e6:.0f} MB/s each, under random 8 KiB reads, 4 outstanding:", "",
                  "| | MB/s | 99th percentile of reads before, µs | during the repair, µs | reads/s before | during the repair |", "|---|---|---|---|---|---|"]
        for name, what in (("free", "not paced"), ("paced", f"paced, target {r['target_s'] * 1000:.0f} ms")):
            m = r[name]
            lines.append(f"| {what} | {m['bytes_per_second'] / 1e6:.1f} | {m['quiet_p99_us']:,.0f} | {m['beside_p99_us']:,.0f} "
                         f"| {m['quiet_iops']:,.0f} | {m['beside_iops']:,.0f} |")
    for name, row in results.get("threads", {}).get("rows", {}).items():
        lines += ["", f"Two spaces on two threads, random 4 KiB {name}s, disks in memory: {row['two']:,.0f} I/Os a second; one space on one thread {row['one']:,.0f}: "
                  f"{row['ratio']:.2f} times (at least {row['aim']}: {said(row['met'])}); two processes, which share nothing but the machine, "
                  f"{row['apart'] / row['one']:.2f} times."]
    if "share" in results:
        r = results["share"]
        lines += ["", f"A mirror through its share over SMB Direct, random reads of {SHARE[0] // KIB} KiB, {SHARE[1]} outstanding: the server takes {r['share']['server_us']:.2f} µs for "
                  f"each; the null share takes {r['null']['server_us']:.2f} and the pool alone {r['alone']['cpu_us']:.2f}: a difference of {r['more_us']:+.2f} µs (at most {SHARE_AIM_US:+.1f}: {said(r['met'])})."]
    if "instructions" in results:
        lines += ["", "Instructions in user space for each I/O (callgrind): " + ", ".join(f"{name} {n:,.0f}" for name, n in results["instructions"].items()) + "."]
    return "\n".join(lines).strip()
