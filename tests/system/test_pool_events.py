"""What has happened to pools, as `causeway event list` and `GET /v1/events` tell it, over restarts too."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from harness.programs import run, until
from harness.servers import Causeway
from test_pool import DISK, Machine

pytestmark = pytest.mark.skipif(not Causeway.binary.exists(), reason="causeway is not built")


@pytest.fixture
def machine(serve):
    server = serve(launch=False)
    server.storage = {"devices": [str(server.folder / "disks" / "*.disk")]}
    return Machine(server.start())


def events(machine, *words):
    return machine.json("event", "list", *words)


def kinds(machine, *words):
    return [e["kind"] for e in events(machine, *words)]


def list_events(machine, query):
    """What the control interface answers to a query, as it is."""
    control = Path(machine.server.sockets.name) / "control.sock"
    return json.loads(run(["curl", "--silent", "--unix-socket", control, f"http://localhost/v1/events{query}"]).out)


def until_event(machine, kind):
    def newest():
        found = [e for e in events(machine) if e["kind"] == kind]
        return found and found[-1]

    return until(newest, timeout=30, what=f"{kind}: {machine.server.log}")


def test_a_fault_from_beginning_to_end_over_restarts(machine):
    assert events(machine) == []
    machine.pool("abc")
    machine.mirror()
    assert kinds(machine) == ["PoolCreated", "VirtualDiskCreated"]
    machine("pool", "offline-disk", "tank", "1")
    raised = until_event(machine, "FaultRaised")
    assert (raised["fault_type"], raised["pool"]) == ("PhysicalDisk.MaintenanceMode", "tank") and raised["object"].startswith("disk 1 ")
    assert events(machine)[-2]["kind"] == "DiskLeft"
    # It is there before and after: raised once, and its age counts from then on.
    before = events(machine)
    machine.kill_and_start()
    with open(machine.server.folder / "state" / "events.jsonl", "a") as file:
        file.write('{"number": 99, "kind": "Fault')
    until(lambda: machine.health()[0]["faults"][0].get("SinceUnixS") == raised["time_unix_s"], timeout=30, what="it is dated")
    assert kinds(machine) == [e["kind"] for e in before] + ["PoolOpened"]
    machine("disk", "return", "tank/1")
    cleared = until_event(machine, "FaultCleared")
    assert cleared["fault_id"] == raised["fault_id"] and re.search("the fault ended after 00:0[0-9]:", cleared["message"]), cleared
    assert "DiskReturned" in kinds(machine)
    told = events(machine)
    assert [e["number"] for e in told] == list(range(1, len(told) + 1))
    assert machine.server.stop() == 0
    machine.server.start()
    machine.status()  # waits until the pools are open; events do not
    again = events(machine)
    assert again[:len(told)] == told and [e["kind"] for e in again[len(told):]] == ["PoolClosed", "PoolOpened"]
    shown = machine("event", "list").splitlines()
    assert re.fullmatch(r"Time \(UTC\) +Severity +Pool +Event +Object +Message", shown[0])
    assert re.fullmatch(r"2\d{3}-\d\d-\d\d \d\d:\d\d:\d\d +Information +tank +PoolOpened +pool tank +the server has started", shown[-1])


def test_a_fault_that_is_gone_after_a_restart_is_cleared(machine):
    machine.pool("abc")
    machine.server.kill()
    machine.lose("b")
    machine.server.start()
    assert until_event(machine, "FaultRaised")["fault_type"] == "PhysicalDisk.LostCommunication"
    machine.server.kill()
    machine.path("a").rename(machine.disks / "a.away")
    machine.path("c").rename(machine.disks / "c.away")
    machine.server.start()
    assert "the server started" in until_event(machine, "FaultCleared")["message"]


def test_jobs_and_virtual_disks(machine):
    machine.pool("abc")
    machine.mirror()
    machine("space", "resize", "vm", "--size", "64MiB")
    machine("space", "repair", "vm")
    ended = until_event(machine, "JobEnded")
    assert ended["object"] == "virtual disk vm" and re.match(r"Repair \(job \d+\) is complete", ended["message"]), ended
    machine("space", "destroy", "vm", "--yes")
    machine("disk", "create-file", machine.path("d"), "--size", DISK)
    machine("pool", "add-disk", "tank", "--assume-atomic", "--disk", machine.path("d"))
    machine("pool", "remove-disk", "tank", "0")
    until_event(machine, "DiskRemoved")
    machine("pool", "rename", "tank", "lake")
    machine("pool", "export", "lake")
    machine("pool", "import", "lake")
    machine("pool", "destroy", "lake", "--yes")
    found = [k for k in kinds(machine) if not k.startswith(("Job", "Fault"))]
    assert found == ["PoolCreated", "VirtualDiskCreated", "VirtualDiskResized", "VirtualDiskDestroyed", "DiskAdded", "DiskRemoved",
                     "PoolRenamed", "PoolExported", "PoolImported", "PoolDestroyed"]


def test_which_events_are_wanted(machine):
    machine.pool("ab", name="one")
    machine.pool("cd", name="two")
    machine("space", "create", "vm", "--pool", "two", "--size", "8MiB")
    assert [e["pool"] for e in events(machine, "--pool", "two")] == ["two", "two"]
    assert kinds(machine, "--limit", "1") == ["VirtualDiskCreated"] and kinds(machine, "--since", "1h", "--limit", "2")[0] == "PoolCreated"
    assert "see causeway pool list" in machine.refused("event", "list", "--pool", "three")
    assert "write it like 30s, 5m, 1h or 7d" in machine("event", "list", "--since", "yesterday", status=2)
    assert [e["number"] for e in list_events(machine, "?after=1&limit=1")] == [2]
    assert [e["number"] for e in list_events(machine, "?limit=1&pool=two")] == [3]
    for query in ["?after=first", "?limit=-1", "?form=xml"]:
        refused = list_events(machine, query)
        assert refused["error"].startswith("the query is wrong: ") and "/v1/events?after=" in refused["cure"], refused


def test_new_ones_are_followed(machine):
    machine.pool("ab")
    control = Path(machine.server.sockets.name) / "control.sock"
    following = [subprocess.Popen(["timeout", "60", Causeway.binary, "event", "list", "--follow", "--control", control, *words],
                                  stdout=subprocess.PIPE, text=True) for words in ([], ["--json", "--limit", "1"])]
    table, lines = (f.stdout for f in following)
    assert "PoolCreated" in [table.readline() for _ in range(3)][-1]
    assert json.loads(lines.readline())["kind"] == "PoolCreated"
    machine("space", "create", "vm", "--pool", "tank", "--size", "8MiB")
    assert re.search("VirtualDiskCreated +virtual disk vm +8 MiB", table.readline())
    assert json.loads(lines.readline())["kind"] == "VirtualDiskCreated"
    for process in following:
        process.send_signal(signal.SIGINT)
        process.wait(10)
