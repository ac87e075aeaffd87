"""Starting, stopping, and dying: what an administrator does to a server, and what power does."""

import filecmp
import random
import socket
import threading

import pytest

from harness import protocol as p
from harness.programs import Failed, until
from harness.protocol import Client
from harness.smbclient import SmbClient


@pytest.mark.smbd_differs("its status is the signal's")
def test_sigterm_drains_and_exits_0(serve):
    server = serve()
    SmbClient(server)("mkdir d")
    assert server.stop() == 0
    with pytest.raises(OSError):
        server.connect(1)


@pytest.mark.smbd_differs("it ends with its connections")
def test_sigterm_with_clients_connected(serve):
    """Idle connections do not keep a draining server alive, and what was written is there."""
    server = serve()
    client = Client(server)
    f = client.open("written")
    f.write(b"before the drain")
    idle = socket.create_connection((server.host, server.port))
    assert server.stop() == 0
    assert (server.path() / "written").read_bytes() == b"before the drain"
    idle.close()
    client.abort()


@pytest.mark.smbd_differs("it ends with its connections")
def test_sigterm_lets_a_copy_complete(serve, tmp_path):
    """smbclient is in the middle of a file when the server is stopped."""
    server, source = serve(), tmp_path / "source"
    source.write_bytes(random.Random(7).randbytes(1 << 20) * 600)
    copies = threading.Thread(target=lambda: SmbClient(server)(f"put {source} copy"))
    copies.start()
    copy = server.path() / "copy"
    until(lambda: copy.exists() and copy.stat().st_size, timeout=20, what="the copy has begun")
    assert server.stop() == 0
    copies.join()
    assert filecmp.cmp(source, copy, shallow=False)


def test_restart_after_sigterm(serve):
    server = serve()
    SmbClient(server)("mkdir kept")
    server.stop()
    server.start()
    assert "kept" in SmbClient(server).ls()


def test_restart_after_kill_9(serve, tmp_path):
    """What a client was told is flushed is there after kill -9; the server comes back on the same port at once."""
    server = serve()
    data = random.Random(5).randbytes(1 << 20)
    client = Client(server)
    f = client.open("flushed")
    f.write(data)
    f.flush()
    server.kill()
    client.abort()
    server.start()
    with Client(server) as again, again.open("flushed", disposition=p.OPEN) as f:
        again.echo()
        assert f.read(1 << 16) == data[: 1 << 16]
    assert (server.path() / "flushed").read_bytes() == data


def test_kill_9_under_load(serve):
    """Killed in the middle of writes: no file is longer or other than what was sent."""
    server = serve()
    block = bytes(range(256)) * 256
    acknowledged = []
    client = Client(server)
    f = client.open("load")
    enough = threading.Event()

    def write():
        try:
            for number in range(100_000):
                f.write(block, number * len(block))
                acknowledged.append(number)
                if number == 50:
                    enough.set()
        except Exception:  # noqa: BLE001 - the server was killed
            enough.set()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert enough.wait(30)
    server.kill()
    writer.join(30)
    client.abort()
    assert len(acknowledged) > 50
    server.start()
    content = (server.path() / "load").read_bytes()
    assert len(content) >= len(acknowledged) * len(block)
    assert content[: len(acknowledged) * len(block)] == block * len(acknowledged)
    assert "load" in SmbClient(server).ls()


@pytest.mark.smbd_differs("it goes on without the port")
def test_a_second_server_on_the_same_port(kind, serve):
    """A clear message and a failure, and the first one goes on."""
    first = serve()
    second = serve(launch=False, port=first.port)
    second.configure()
    second.launch()
    until(lambda: not second.is_running(), timeout=10, what="the second server gone")
    second.may_end = True
    assert second.process.returncode != 0
    assert str(first.port) in second.output() and "in use" in second.output().lower(), second.output()
    assert SmbClient(first).ls() is not None


@pytest.mark.smbd_differs("its configuration is another one")
@pytest.mark.parametrize(
    "settings, words",
    [({"signing": "sometimes"}, ["signing", "sometimes"]), ({"listen": ["nonsense"]}, ["listen"]), ({"colour": "red"}, ["colour"]), ({"memory": "much"}, ["memory"])],
    ids=["value", "address", "key", "size"])
def test_a_wrong_configuration_is_explained(serve, settings, words):
    """The message names the file's line and the key."""
    server = serve(launch=False, settings=settings)
    server.configure()
    server.launch()
    until(lambda: not server.is_running(), timeout=10, what="the server gone")
    server.may_end = True
    assert server.process.returncode != 0
    said = server.output()
    line = next(n for n, text in enumerate(server.config.read_text().splitlines(), 1) if words[0] in text and text.startswith(words[0]))
    assert all(word in said for word in words) and str(line) in said, said
    assert "panicked" not in said


def test_ready_only_once_it_listens(serve):
    """Started five times, and each time connected to at once."""
    server = serve(launch=False)
    for _ in range(5):
        server.start()
        server.connect(1).close()
        server.stop()


def test_a_server_that_ends_early_is_reported(kind, serve):
    """The harness itself: a server that does not start fails the test with its log, at once."""
    server = serve(launch=False, settings={"interfaces" if kind.name == "smbd" else "listen": "256.256.256.256:0"})
    server.command = lambda: ["false"]
    with pytest.raises(Failed, match="ended with 1"):
        server.start()
    server.may_end = True
