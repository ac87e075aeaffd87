"""What disks, virtual disks and pools did: counters, Prometheus, top, disk show and space show; and disks that return."""

import http.client
import json
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from harness.programs import run, until
from harness.servers import Causeway
from test_pool import DISK, MIB, machine, pytestmark  # noqa: F401  the fixture and the marks
from test_pool_events import events, until_event

DISKS, SPACES, POOLS = "PhysicalDisk", "Storage Spaces Virtual Disk", "Storage Pool"


def fetch(machine, path):
    """A document of the control interface."""
    connection = http.client.HTTPConnection("causeway")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(Path(machine.server.sockets.name) / "control.sock"))
    connection.request("GET", path)
    return connection.getresponse().read().decode()


def counted(machine):
    """Values by set and instance."""
    sets = json.loads(fetch(machine, "/v1/counters"))["sets"]
    return {s["set"]: {i["instance"]: i["values"] | {"latencies": i.get("latencies", {})} for i in s["instances"]} for s in sets}


def loaded(machine):
    """A mirror over two of three disks with ten writes of 64 KiB, five reads of 4 KiB and a flush."""
    machine.pool("abc")
    machine.mirror()
    machine.attach()
    machine.qemu_io(*[f"write -P 7 {n}M 64k" for n in range(10)], "flush", *[f"read -P 7 {n}M 4k" for n in range(5)])


def test_clients_are_counted_exactly_and_disks_at_least(machine):
    loaded(machine)
    now = counted(machine)
    assert set(now[DISKS]) == {"tank/0", "tank/1", "tank/2"} and set(now[SPACES]) == {"tank/vm"} and set(now[POOLS]) == {"tank"}
    vm, tank = now[SPACES]["tank/vm"], now[POOLS]["tank"]
    keys = ["reads", "writes", "read_bytes", "written_bytes", "errors", "queue_length"]
    assert [vm[k] for k in keys] == [5, 10, 5 * 4096, 10 * 65536, 0, 0], vm
    assert [tank[k] for k in keys] == [vm[k] for k in keys] and vm["flushes"] >= 1
    assert sum(vm["latencies"]["write_latency_ns"].values()) == 10 and vm["write_time_ns"] > 0
    assert vm["table_cache_hits"] > 0 and vm["table_cache_misses"] > 0 and tank["table_cache_hits"] == vm["table_cache_hits"]
    disks = now[DISKS].values()
    assert sum(d["written_bytes"] for d in disks) >= 2 * vm["written_bytes"] and all(d["errors"] == 0 for d in disks)
    assert sum(d["flushes"] for d in disks) >= 2
    # A pool of another name has what it had; a virtual disk that is gone is not listed, and the pool keeps what it did.
    machine("space", "detach", "vm")
    machine("pool", "rename", "tank", "lake")
    machine("space", "destroy", "vm", "--yes")
    now = counted(machine)
    assert set(now[DISKS]) == {"lake/0", "lake/1", "lake/2"} and not now[SPACES]
    machine("pool", "export", "lake")
    now = counted(machine)
    assert not now[DISKS] and not now[POOLS]


def test_an_io_that_fails_is_an_error(machine):
    machine.pool("ab")
    machine("space", "create", "vm", "--pool", "tank", "--resiliency", "simple", "--columns", "2", "--size", 32 * MIB)
    machine.attach()
    machine.qemu_io("write -P 1 0 16M", "flush")
    machine.server.kill()
    machine.lose("a")
    machine.server.start()
    machine("pool", "import", "tank", "--accept-loss")
    machine.attach()
    machine.qemu_io("read 0 16M", status=None)
    assert counted(machine)[SPACES]["tank/vm"]["errors"] >= 1


def test_rates_and_percentiles_of_a_load(machine):
    """`counters`, `top` and Prometheus, while a client writes."""
    machine.pool("abc")
    machine.mirror()
    machine.attach()
    script = machine.server.folder / "load"
    script.write_text("".join(f"write -P 3 {n % 300 * 64}k 16k\n" for n in range(300_000)))
    with open(script) as commands:
        load = subprocess.Popen(["qemu-io", "-f", "raw", "-t", "none", machine.url()], stdin=commands, stdout=subprocess.DEVNULL)
    try:
        until(lambda: counted(machine)[SPACES]["tank/vm"]["writes"] > 100, timeout=30, what="it writes")
        sample = machine.json("counters", SPACES, DISKS)["counters"]
        top = machine.json("top")
        text = machine("top", "--once")
    finally:
        load.kill()
        load.wait()
    value = {c["path"]: c["value"] for c in sample}
    vm = rf"\{SPACES}(tank/vm)"
    assert value[rf"{vm}\Disk Writes/sec"] > 0 and value[rf"{vm}\Disk Write Bytes/sec"] > 0
    assert 0 < value[rf"{vm}\Median Disk sec/Write"] <= value[rf"{vm}\99th Percentile Disk sec/Write"] < 10
    assert value[rf"{vm}\Avg. Disk Queue Length"] > 0 and value[rf"{vm}\Disk Errors"] == 0
    row = next(r for r in top["virtual_disks"] if r["name"] == "tank/vm")
    assert row["iops"] > 0 and row["write_mb_per_s"] > 0 and 0 < row["write_median_ms"] <= row["write_p99_ms"]
    assert [r["name"] for r in top["physical_disks"]] == ["Total", "tank/0", "tank/1", "tank/2"] and top["pools"][0]["name"] == "tank"
    assert re.search(r"^5 Pools \(1\) .*IOPS RdMB/s WrMB/s Rd p50 Rd p99 Wr p50 Wr p99", text, re.M) and "7 Disks (3)" in text, text
    families = {f.name: f for f in openmetrics(fetch(machine, "/metrics"))}
    latency = families["causeway_virtual_disk_write_latency_seconds"]
    assert latency.type == "histogram"
    counts = [s.value for s in latency.samples if s.name.endswith("_bucket")]
    total = next(s.value for s in latency.samples if s.name.endswith("_count"))
    assert counts == sorted(counts) and counts[-1] == total > 100
    reads = families["causeway_physical_disk_reads"].samples
    assert {(s.labels["pool"], s.labels["disk"]) for s in reads} == {("tank", str(n)) for n in range(3)}
    assert {s.labels["path"] for s in reads} == {str(machine.path(n)) for n in "abc"}


def test_what_a_disk_holds_and_what_holds_a_virtual_disk(machine):
    loaded(machine)
    machine("space", "create", "archive", "--pool", "tank", "--resiliency", "parity", "--size", 32 * MIB)
    machine("space", "detach", "vm")
    machine.attach("archive")
    machine.qemu_io("write -P 1 0 8M", "flush", name="archive")
    shown = {name: machine.json("space", "show", name) for name in ("vm", "archive")}
    assert (shown["vm"]["copies"], shown["vm"]["columns"]) == (2, 1) and shown["archive"]["copies"] == 1
    for name, space in shown.items():
        parts = space["allocations"]
        assert sum(p["allocated"] for p in parts if p["part"] == "Data") == space["footprint"] > 0, space
        # Each has a log, whatever its resiliency.
        assert any(p["part"] == "Journal" for p in parts)
        # The other way around it is the same.
        for p in parts:
            assert p in machine.json("disk", "show", f"tank/{p['number']}")["allocations"] and p["virtual_disk"] == name
    for disk in machine.status()["physical_disks"]:
        held = machine.json("disk", "show", f"tank/{disk['number']}")
        assert sum(p["allocated"] for p in held["allocations"]) == disk["allocated"] == held["allocated"]
    disk = machine.json("disk", "show", str(machine.path("a")))
    assert disk == machine.json("disk", "show", disk["unique_id"]) | {"counters": disk["counters"]}
    assert disk["counters"]["values"]["writes"] > 0 and disk["smart"] is None
    text = machine("disk", "show", "tank/0")
    assert re.search(r"^Writes +: \d+, .*; median .* [µm]s, 99 % within", text, re.M) and "SmartStatus       : none, because the disk is a file" in text, text
    assert re.search(r"^(vm|archive) +(Data|Journal) +0 +\d+ MiB +/", text, re.M), text
    text = machine("space", "show", "vm")
    assert re.search(r"^VirtualDisk +Part +Number +AllocatedSize +Path$", text, re.M) and "NumberOfDataCopies" in text, text
    assert "there is no disk" in machine.refused("disk", "show", "tank/9")


@pytest.mark.skipif(shutil.which("losetup") is None, reason="no losetup")
def test_health_as_the_drive_reports_it(machine, tmp_path):
    file = tmp_path / "drive"
    file.touch()
    file.open("r+b").truncate(DISK)
    made = subprocess.run(["losetup", "--find", "--show", file], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no loop device: {made.stderr}")
    device = made.stdout.strip()
    control = str(Path(machine.server.sockets.name) / "control.sock")
    tools = tmp_path / "tools"
    tools.mkdir()

    def show():
        environment = {"CAUSEWAY_CONTROL": control, "PATH": str(tools)}
        return run([Causeway.binary, "disk", "show", device], env=environment).out

    try:
        if not Path("/usr/sbin/smartctl").exists():
            assert "SmartStatus       : unknown: smartctl is not installed: install the package smartmontools" in show()
        smartctl = tools / "smartctl"
        said = {"smart_status": {"passed": True}, "temperature": {"current": 34}, "power_on_time": {"hours": 9}}
        smartctl.write_text(f"#!/bin/sh\necho '{json.dumps(said)}'\nexit 4\n")
        smartctl.chmod(0o755)
        assert "SmartStatus       : Passed, 34 °C, 9 hours" in show()
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def test_a_disk_that_went_away_by_itself_returns_by_itself(machine):
    loaded(machine)
    holds = [p["number"] for p in machine.json("space", "show", "vm")["allocations"]]
    name = "abc"[holds[0]]
    kept = machine.disks / "kept"
    run(["cp", machine.path(name), kept])
    machine.path(name).unlink()
    until(lambda: machine.status()["disks_missing"] == 1, timeout=30, what="it is missed")
    machine.qemu_io("write -P 9 0 1M", "flush")
    fault = until_event(machine, "FaultRaised")
    assert fault["fault_type"] == "PhysicalDisk.LostCommunication" and "returns to the pool by itself" in fault["message"], fault
    told = machine.refused("pool", "import", "tank")
    assert f"causeway disk return tank/{holds[0]}" in told and "is open" in told, told
    assert "connect it" in machine.refused("disk", "return", f"tank/{holds[0]}")
    kept.rename(machine.path(name))
    back = until_event(machine, "DiskReturned")
    assert back["message"] == f"it was found again, and returned by itself, at {machine.path(name)}", back
    machine.until_healthy()
    assert machine.status()["can_lose"] == 1
    machine.qemu_io("read -P 9 0 1M", "read -P 7 2M 64k")
    assert f"disk {holds[0]} of the pool tank is in service" in machine("disk", "return", f"tank/{holds[0]}")
    assert "pool tank is open" in machine("pool", "import", "tank")


def test_a_disk_that_was_taken_offline_waits_for_the_command(machine):
    loaded(machine)
    machine("pool", "offline-disk", "tank", "1")
    time.sleep(6)
    assert machine.status()["disks_missing"] == 1 and "DiskReturned" not in [e["kind"] for e in events(machine)]
    [fault] = [f for f in machine.health()[0]["faults"] if f["FaultType"] == "PhysicalDisk.MaintenanceMode"]
    assert "causeway disk return tank/1" in fault["RecommendedActions"]
    assert "has no label of a pool" in machine.refused("disk", "return", "/etc/hostname")
    assert "disk 1 returned to the pool tank" in machine("disk", "return", "tank/1")
    assert until_event(machine, "DiskReturned")["message"] == f"returned by command, at {machine.path('b')}"
    machine.until_healthy()
    # From a place that the configuration does not name, by its path.
    machine("pool", "offline-disk", "tank", "1")
    elsewhere = machine.server.folder / "elsewhere"
    machine.path("b").rename(elsewhere)
    assert "is absent" in machine.refused("disk", "return", "tank/1")
    assert "returned to the pool" in machine("disk", "return", elsewhere)
    machine.until_healthy()


def test_a_disk_with_writes_of_its_own_is_not_taken_by_itself(machine):
    """A pool of two went on with each of its disks alone; what the one has is lost only by a word."""
    machine.pool("ab")
    machine.mirror()
    for lost, bring in [("b", None), ("a", "b")]:
        machine.server.kill()
        machine.lose(lost)
        if bring:
            machine.reconnect(bring)
        machine.server.start()
        machine("pool", "import", "tank", "--accept-loss")
        machine.attach()
        machine.qemu_io("write -P 3 0 8M", "flush")
    machine.reconnect("a")
    refused = until_event(machine, "DiskRefused")
    assert "--accept-loss" in refused["message"] and refused["perceived_severity"] == 5, refused
    time.sleep(5)
    assert machine.status()["disks_missing"] == 1
    assert [e["kind"] for e in events(machine)].count("DiskRefused") == 1, "the refusal is reported once"
    assert "--accept-loss" in machine.refused("disk", "return", "tank/0")
    assert "returned to the pool" in machine("disk", "return", "tank/0", "--accept-loss")
    machine.until_healthy()
