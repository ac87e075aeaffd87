"""Our own client: against our server over TCP and SMB Direct, against smbd, and over SMB Direct against the kernel's ksmbd."""

import json
import os
import random
import signal
import stat
import subprocess

import pytest

from harness import guest
from harness.guest import Network
from harness.programs import Failed, in_terminal, plain, run, until
from harness.schema import validated
from harness.servers import Causeway, Ksmbd, Smbd, free_port

pytestmark = pytest.mark.skipif(not Causeway.binary.exists(), reason="causeway is not built")


class Cli:
    """causeway's client commands with an account; they run where the server is."""

    def __init__(self, server, transport="tcp"):
        self.server, self.transport = server, transport

    def url(self, path="", user=None):
        return f"smb://{user or self.server.user}@{self.server.host}:{self.server.port}/{self.server.share}/{path}"

    def __call__(self, command, *arguments, status=0, password=None, timeout=60):
        rdma = ["--rdma-port", self.server.iwarp_port] if self.transport == "rdma" else []
        environment = {"CAUSEWAY_PASSWORD": password or self.server.password}
        line = [*self.server.prefix, Causeway.binary, command, "--transport", self.transport, *rdma, *arguments]
        for _ in range(self.tries() - 1):
            try:
                return run(line, status=status, env=environment, timeout=4).out
            except Failed as failed:
                if "did not end within" not in str(failed):
                    raise
        return run(line, status=status, env=environment, timeout=timeout).out

    def tries(self):
        """siw loses a first message that arrives within some 100 µs of its MPA reply, and then waits for more; the kernel's own
        client meets it too. A command against ksmbd that hangs is tried again, and nothing else is."""
        return 6 if self.server.name == "ksmbd" and self.transport == "rdma" else 1

    def for_large_reads(self):
        """ksmbd of Linux 6.12 signs the answer to a READ of 4 KiB and more over RDMA wrongly (the kernel's own client says "sign
        fail cmd 0x8"), and we do sign: what was put over SMB Direct there is fetched over TCP."""
        return Cli(self.server) if self.tries() > 1 else self

    def json(self, command, *arguments):
        return validated([command], json.loads(self(command, "--json", *arguments)))


@pytest.fixture(scope="module", params=["causeway tcp", "causeway rdma", "smbd tcp", "ksmbd tcp", "ksmbd rdma"])
def cli(request, scratch):
    """The client in front of each server that it should get along with."""
    server_name, transport = request.param.split()
    folder = scratch / request.param.replace(" ", "-")
    if server_name == "ksmbd":
        if guest.unavailable_reason():
            pytest.skip(guest.unavailable_reason())
        with Network() as network:
            server = Ksmbd(folder, network=network).start()
            yield Cli(server, transport)
            server.stop()
        return
    server = Causeway(folder, iwarp_port=free_port()) if server_name == "causeway" else Smbd(folder)
    server.start()
    yield Cli(server, transport)
    assert server.is_running() and "panicked at" not in server.output(), server.log
    server.stop()


def make(path, size):
    path.write_bytes(random.Random(size).randbytes(size))
    return path


@pytest.mark.parametrize("size", [0, 1, 4095, 65536, 1_000_001, 20_000_000])
def test_put_and_get(cli, tmp_path, size):
    source, back = make(tmp_path / "source", size), tmp_path / "back"
    put = cli.json("put", source, cli.url(f"size-{size}"))
    reader = cli if size < 4096 else cli.for_large_reads()
    get = reader.json("get", cli.url(f"size-{size}"), back)
    assert back.read_bytes() == source.read_bytes()
    for summary, transport in ((put, cli.transport), (get, reader.transport)):
        assert summary["transport"] == transport and summary["bytes"] == size and summary["files"] == 1


def test_times_and_holes_are_kept(cli, tmp_path):
    """There and back a file has its time of last change, and where the server has sparse files its holes."""
    source, back, plain = tmp_path / "source", tmp_path / "back", tmp_path / "plain"
    with open(source, "wb") as file:
        file.truncate(20_000_000)
        for at in (0, 9_000_000):
            file.seek(at)
            file.write(random.Random(at).randbytes(3000))
    os.utime(source, ns=(0, 1_234_567_890_123_456_700))
    put = cli.json("put", source, cli.url("holes"))
    assert put["bytes"] + put["hole_bytes"] == 20_000_000
    if source.stat().st_blocks < 1000 and cli.server.name != "ksmbd":
        assert put["bytes"] < 1_000_000, put
    reader = cli.for_large_reads()
    reader("get", cli.url("holes"), back)
    reader("get", "--no-times", cli.url("holes"), plain)
    assert back.read_bytes() == source.read_bytes() == plain.read_bytes()
    assert back.stat().st_mtime_ns == source.stat().st_mtime_ns != plain.stat().st_mtime_ns
    if put["hole_bytes"]:
        assert back.stat().st_blocks < 1000


def test_ls_takes_patterns(cli, tmp_path):
    for name in ("p1.txt", "p2.txt", "p3.dat"):
        cli("put", make(tmp_path / name, 1), cli.url())
    listed = lambda pattern: [entry["name"] for entry in cli.json("ls", cli.url(pattern))]
    assert listed("p?.TXT") == ["p1.txt", "p2.txt"] and listed("p3*") == ["p3.dat"] and listed("nothing*") == []


def test_cat_stat_mv_rm(cli, tmp_path):
    source = make(tmp_path / "f", 1234)
    cli("put", source, cli.url("one"))
    assert cli.json("stat", cli.url("one"))["size"] == 1234
    cli("mv", cli.url("one"), cli.url("two"))
    assert "two" in cli("ls", cli.url()) and "one" not in cli("ls", cli.url()).split()
    cli("rm", cli.url("two"))
    assert "two" not in cli("ls", cli.url()).split()
    assert "causeway" in cli("get", cli.url("two"), tmp_path / "x", status="failure").lower()


def test_directories(cli, tmp_path):
    cli("mkdir", cli.url("dir"))
    for name in ("a", "b c", "ünï 漢字"):
        cli("put", make(tmp_path / name, 10), cli.url("dir/"))
    listed = cli("ls", cli.url("dir"))
    assert all(name in listed for name in ("a", "b c", "ünï 漢字")), listed


def test_get_resumes(cli, tmp_path):
    """A part that is there already is not fetched again, where it is the same."""
    source, back = make(tmp_path / "source", 8_000_000), tmp_path / "back"
    cli("put", source, cli.url("resumed"))
    reader = cli.for_large_reads()
    assert reader.json("get", cli.url("resumed"), back)["bytes"] == 8_000_000
    again = reader.json("get", "--resume", cli.url("resumed"), back)
    assert back.read_bytes() == source.read_bytes() and again["bytes"] <= 8_000_000


def test_wrong_password(cli):
    out = cli("ls", cli.url(), password="wrong", status="failure")
    assert "password" in out.lower() or "logon" in out.lower() or "log on" in out.lower(), out
    assert "panicked" not in out


def test_missing_share(cli):
    out = cli("ls", cli.url().replace(f"/{cli.server.share}/", "/nowhere/"), status="failure")
    assert "nowhere" in out and "panicked" not in out, out


def test_no_server():
    out = run([Causeway.binary, "ls", f"smb://alice@127.0.0.1:{free_port()}/files"], status="failure", env={"CAUSEWAY_PASSWORD": "x"}).out
    assert "refused" in out.lower() and "panicked" not in out, out


def test_shares(cli):
    out = run([*cli.server.prefix, Causeway.binary, "shares", f"smb://{cli.server.user}@{cli.server.host}:{cli.server.port}"],
              env={"CAUSEWAY_PASSWORD": cli.server.password}).out
    assert "files" in out


def test_the_password_is_not_in_the_process_list(cli, tmp_path):
    """Neither in the arguments nor shown on failure."""
    out = cli("ls", cli.url("absent"), status="failure")
    assert cli.server.password not in out


def test_auto_says_why_not_rdma(scratch, tmp_path):
    """Without an iWARP listener `auto` goes over TCP and says why."""
    server = Causeway(scratch / "auto").start()
    summary = Cli(server, "auto").json("put", make(tmp_path / "f", 100_000), Cli(server).url("f"))
    assert summary["transport"] == "tcp" and summary["why_not_rdma"]
    assert server.stop() == 0


def test_rdma_where_there_is_none(scratch, tmp_path):
    """`--transport rdma` never falls back silently."""
    server = Causeway(scratch / "none").start()
    server.iwarp_port = free_port()
    out = Cli(server, "rdma")("put", make(tmp_path / "f", 100), Cli(server).url("f"), status="failure")
    assert "panicked" not in out and not (server.path() / "f").exists()
    assert server.stop() == 0


def test_put_and_get_replace(cli, tmp_path):
    """A file that is there is replaced as a whole, and nothing else stays."""
    cli("mkdir", cli.url("replace"))
    for version in ["the first", "two", "", "the third and longest"]:
        (tmp_path / "f").write_text(version)
        cli("put", tmp_path / "f", cli.url("replace/f"))
        assert [e["name"] for e in cli.json("ls", "-a", cli.url("replace/"))] == ["f"]
        cli.for_large_reads()("get", cli.url("replace/f"), tmp_path / "back")
        assert (tmp_path / "back").read_text() == version
    assert sorted(p.name for p in tmp_path.iterdir()) == ["back", "f"]
    cli("rm", "-r", cli.url("replace"))


class Interrupted:
    """A copy of a large file that a signal ends in the middle. A slow reader or writer would need a slow network: the process is
    stopped as soon as it has begun to write."""

    def __init__(self, server, folder, send, *arguments):
        line = [Causeway.binary, *arguments]
        environment = {**os.environ, "CAUSEWAY_PASSWORD": server.password}
        process = subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not any(p.stat().st_size > 1_000_000 for p in folder.iterdir() if p.suffix == ".part"):
            pass
        process.send_signal(send)
        self.output = process.communicate(timeout=30)[1]
        self.status = process.returncode


@pytest.fixture(scope="module", params=[Causeway, Smbd], ids=["causeway", "smbd"])
def large(request, scratch):
    """A server, and a file that takes half a second to copy."""
    server = request.param(scratch / f"interrupted-{request.param.__name__}").start()
    path = scratch / "large"
    path.write_bytes(random.Random(1).randbytes(1_000_000) * 500)
    yield server, path
    server.stop()


@pytest.mark.parametrize("send, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_an_interrupted_put_leaves_the_old_file(large, send, status):
    server, path = large
    folder = server.path() / f"put-{status}"
    folder.mkdir(mode=0o777)
    (path.parent / "old").write_text("the old file")
    Cli(server)("put", path.parent / "old", Cli(server).url(f"put-{status}/f"))
    put = Interrupted(server, folder, send, "put", path, Cli(server).url(f"put-{status}/f"))
    assert put.status == status, put.output
    assert send == signal.SIGKILL or "existing files are unchanged" in put.output
    # The server deletes the unfinished file when it notices that the connection has closed.
    until(lambda: [p.name for p in folder.iterdir()] == ["f"], timeout=10, what="only the old file")
    assert (folder / "f").read_text() == "the old file"


@pytest.mark.parametrize("send, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_get_leaves_the_old_file(large, tmp_path, send, status):
    server, path = large
    if not (server.path() / "get").exists():
        os.link(path, server.path() / "get")
        path.chmod(0o666)
    (tmp_path / "f").write_text("the old file")
    get = Interrupted(server, tmp_path, send, "get", Cli(server).url("get"), tmp_path / "f")
    assert get.status == status and "existing files are unchanged" in get.output
    assert [p.name for p in tmp_path.iterdir()] == ["f"] and (tmp_path / "f").read_text() == "the old file"


def test_an_interrupted_copy_resumes(large, tmp_path):
    server, path = large
    (server.path() / "resume").mkdir(mode=0o777)
    url = Cli(server).url("resume/f")
    put = Interrupted(server, server.path() / "resume", signal.SIGINT, "put", "--resume", path, url)
    assert put.status == 130 and "run the same command again" in put.output
    Cli(server)("put", "--resume", path, url)
    get = Interrupted(server, tmp_path, signal.SIGINT, "get", "--resume", url, tmp_path / "f")
    assert get.status == 130 and "run the same command again" in get.output
    Cli(server)("get", "--resume", url, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == path.read_bytes()
    assert [p.name for p in [*tmp_path.iterdir(), *(server.path() / "resume").iterdir()]] == ["f", "f"]


def test_put_changes_contents_only(scratch, tmp_path):
    """A file with another owner, and what a link leads to, get new contents, and stay what they are."""
    server = Causeway(scratch / "contents").start()
    share = server.path()
    for name in ["theirs", "target"]:
        (share / name).write_text("old")
        (share / name).chmod(0o606)
    (share / "link").symlink_to("target")
    (tmp_path / "new").write_text("new")
    before = (share / "theirs").stat()
    for name in ["theirs", "link", "ours", "ours"]:
        Cli(server)("put", tmp_path / "new", Cli(server).url(name))
        assert (share / name).read_text() == "new"
    after = (share / "theirs").stat()
    assert (before.st_ino, before.st_uid, before.st_mode) == (after.st_ino, after.st_uid, after.st_mode)
    assert (share / "link").is_symlink() and (share / "target").read_text() == "new"
    assert sorted(p.name for p in share.iterdir() if not p.name.startswith(".cause")) == ["link", "ours", "target", "theirs"]
    assert server.stop() == 0


def test_what_get_replaces_stays_what_it_is(scratch, tmp_path):
    """Links lead where they led, permissions stay, what is no file is written to, and what may not be written to is not replaced."""
    server = Causeway(scratch / "stays").start()
    make(server.path() / "f", 1000)
    wanted = (server.path() / "f").read_bytes()
    get = lambda *a, **k: Cli(server)("get", Cli(server).url("f"), *a, **k)
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    get(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == wanted
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    get("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    os.link(tmp_path / "file", tmp_path / "twin")
    (tmp_path / "file").write_text("old")
    get("--in-place", tmp_path / "file")
    assert (tmp_path / "twin").read_bytes() == wanted
    get(tmp_path / "nothing" / "f", status="failure")
    (tmp_path / "away").symlink_to("made")
    get(tmp_path / "away")
    assert (tmp_path / "away").is_symlink() and (tmp_path / "made").read_bytes() == wanted
    os.mkfifo(tmp_path / "pipe")
    get(tmp_path / "pipe", status="failure", timeout=20)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["away", "file", "link", "made", "pipe", "twin"]
    assert server.stop() == 0


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_bar_is_one_line(scratch, tmp_path, columns):
    """On a terminal each drawing fits its width, so that the next one replaces it, and nothing of it stays."""
    server = Causeway(scratch / f"bar-{columns}").start()
    make(server.path() / "a name that is longer than there is room for", 60_000_000)
    url = Cli(server).url("a name that is longer than there is room for".replace(" ", "%20"))
    said, status = in_terminal([Causeway.binary, "get", url, tmp_path / "back"], columns, env={"CAUSEWAY_PASSWORD": server.password})
    assert status == 0, said
    *bars, last = said.rstrip("\n").split("\r")
    drawings = [text for bar in bars if (text := plain(bar)).strip()]
    assert drawings and all(len(line) <= columns and "\n" not in line for line in drawings), drawings
    assert "1 file, 57.2 MiB in" in last
    assert server.stop() == 0
