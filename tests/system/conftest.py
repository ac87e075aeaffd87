"""Fixtures: `server` is one running server for a test module; `serve` starts others with chosen settings."""

import fcntl
import os
import re
import shutil

import pytest

from harness import PEERS, ROOT
from harness.servers import SERVERS
from harness.smbclient import SmbClient

# What tests put into a share's folder is the users' too; the servers run with the usual mask.
os.umask(0)
os.environ["PATH"] = f"{PEERS / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin"


def pytest_addoption(parser):
    parser.addoption("--server", choices=sorted(SERVERS), default="causeway", help="what to test (smbd: the tests)")


def pytest_configure(config):
    config.addinivalue_line("markers", "smbd_differs(reason, only): Samba answers otherwise; `only` names the ids it is so for")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--server") != "smbd":
        return
    for item in items:
        for mark in item.iter_markers("smbd_differs"):
            only = mark.kwargs.get("only")
            if only is None or item.callspec.id in only:
                item.add_marker(pytest.mark.skip(reason=f"smbd differs: {mark.args[0]}"))


@pytest.fixture(scope="session")
def kind(request):
    """The class of server under test."""
    kind = SERVERS[request.config.getoption("--server")]
    if kind.name == "causeway" and not kind.binary.exists():
        pytest.exit(f"{kind.binary} is missing: cargo build -p causeway", 2)
    return kind


@pytest.fixture(scope="module")
def scratch(request, kind):
    """A folder for a test module; it is emptied first and its logs stay after. A second run of the module waits for it."""
    folder = ROOT / "target" / "test" / kind.name / request.module.__name__
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(folder)
        folder.mkdir()
        yield folder


def folder_for(name):
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:60]


@pytest.fixture(scope="module")
def server(kind, scratch):
    """One server for the whole module, with signing and encryption as shipped."""
    running = kind(scratch / "server").start()
    yield running
    finish([running])


@pytest.fixture
def serve(request, kind, scratch):
    """Starts a server of the test's own: serve(encryption="required")."""
    started = []

    def start(launch=True, **settings):
        new = kind(scratch / f"{folder_for(request.node.name)}-{len(started)}", **settings)
        started.append(new)
        return new.start() if launch else new

    yield start
    finish(started)


def finish(servers):
    """Stops servers; one that died on the way, or that says it panicked, fails the test."""
    problems = []
    for server in servers:
        if server.process is None:
            continue
        if server.is_running():
            status = server.stop()
            if status != 0 and server.name == "causeway":
                problems.append(f"{server.name} exited with {status} on SIGTERM: {server.log}")
        elif not server.may_end:
            problems.append(f"{server.name} ended by itself with {server.process.returncode}: {server.log}")
        if "panicked at" in server.output():
            problems.append(f"{server.name} panicked: {server.log}")
        shutil.rmtree(server.folder / "shares", ignore_errors=True)
    assert not problems, "\n".join(problems)


@pytest.fixture
def smbclient(server):
    """smbclient pointed at the module's server."""
    return SmbClient(server)
