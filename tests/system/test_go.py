"""Go's go-smb2, as a Go program uses it (tests/goload/files), and the load generator of `make bench`."""

import re
import subprocess
import time

import pytest

from harness.programs import run

STEPS = ["read-write", "random-access", "append-truncate", "rename-remove", "exclusive-create", "ten-thousand", "unicode", "sparse",
         "times", "read-only", "connections", "wrong-password", "wrong-share", "share-names", "free-space"]


def gofiles(server, *options):
    return run(["gofiles", "-addr", f"{server.host}:{server.port}", "-share", server.share, "-user", server.user,
                "-pass", server.password, *options], status=None, timeout=180).out


@pytest.fixture(scope="module")
def outcomes(server):
    """gofiles runs once; each of its steps is a test."""
    return gofiles(server)


@pytest.mark.parametrize("step", STEPS)
def test_go(outcomes, step):
    assert f"ok {step}\n" in outcomes, outcomes


def test_go_unsigned(serve):
    """Signing is not required: only then does payload move without passing a MAC."""
    out = gofiles(serve(signing="enabled"), "-skip", "ten-thousand")
    assert re.findall("^ok (.*)$", out, re.M) == [step for step in STEPS if step != "ten-thousand"], out


@pytest.mark.parametrize("mode, size", [("randread", 8192), ("randwrite", 8192), ("seqread", 524288), ("seqwrite", 524288), ("randread", 1024)])
def test_load(server, mode, size):
    """Two seconds of the benchmark's load: that it runs and moves something, not how fast."""
    out = run(["goload", "-addr", f"{server.host}:{server.port}", "-share", server.share, "-user", server.user, "-pass", server.password,
               "-mode", mode, "-bs", size, "-size", 16 << 20, "-secs", 2, "-pid", server.pid], timeout=60).out
    assert float(re.search(r"iops=(\d+)", out)[1]) > 0, out


CROWD = 1000


@pytest.mark.smbd_differs("it resets some of a thousand connections that come at once")
def test_a_crowd_within_one_memory_budget(kind, serve):
    """A thousand clients with sixteen requests in flight each, on 64 MiB for payload: all of them right, however slow, and the
    server's memory stays near its budget."""
    server = serve(settings={"memory": "64MiB"} if kind.name == "causeway" else {})
    peak = 0
    with subprocess.Popen(["gofiles", "-addr", f"{server.host}:{server.port}", "-share", server.share, "-user", server.user,
                           "-pass", server.password, "-crowd", str(CROWD)], stdout=subprocess.PIPE, text=True) as crowd:
        deadline = time.monotonic() + 150
        while crowd.poll() is None:
            peak = max(peak, resident_kib(server.pid))
            if time.monotonic() > deadline:
                crowd.kill()
            time.sleep(0.1)
        out = crowd.stdout.read()
    assert crowd.returncode == 0 and f"{CROWD} clients, 0 failed" in out, out
    if kind.name == "causeway":
        assert peak < 256 << 10, f"{peak >> 10} MiB resident with a budget of 64 MiB"


def resident_kib(pid):
    """A process's resident memory, 0 when it has gone."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("VmRSS")), 0)
    except OSError:
        return 0
