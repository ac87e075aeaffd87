"""Files and directories through Python's smbprotocol: statuses, share modes, large I/O, compounds."""

import random
import struct

import pytest
from smbprotocol.connection import Dialects
from smbprotocol.header import Commands

from harness import protocol as p
from harness.programs import until
from harness.protocol import Client, File, Raw


@pytest.fixture
def client(server):
    with Client(server) as client:
        yield client


def names_of(entries, offset=104):
    """File names of FileIdBothDirectoryInformation entries (MS-FSCC 2.4.22)."""
    return [e[offset : offset + struct.unpack_from("<I", e, 60)[0]].decode("utf-16-le") for e in entries]


def list_all(folder, pattern="*"):
    names = []
    while True:
        try:
            names += names_of(folder.list(pattern))
        except p.Status as end:
            assert end.got == p.NO_MORE_FILES
            return names


def test_write_read_and_compare(server, client):
    data = random.Random(7).randbytes(1 << 20)
    with client.open("plain") as f:
        assert f.action == 2, "FILE_CREATED"
        assert f.write(data) == len(data)
        assert f.read(len(data)) == data
        assert f.read(100, 12345) == data[12345:12445]
    assert (server.path() / "plain").read_bytes() == data


def test_largest_read_and_write(client):
    """A READ and a WRITE of MaxReadSize and MaxWriteSize, with the credits they cost."""
    size = min(client.connection.max_read_size, client.connection.max_write_size, 8 << 20)
    data = random.Random(8).randbytes(size)
    client.session.connection.echo(sid=client.session.session_id, credit_request=512)
    with client.open("large") as f:
        f.write(data)
        assert f.read(size) == data


def test_more_than_the_largest_is_refused(client):
    with client.open("large2") as f:
        client.connection.echo(sid=client.session.session_id, credit_request=512)
        f.read(client.connection.max_read_size + 65536, status=p.INVALID_PARAMETER)


def test_read_at_the_end(client):
    """MS-SMB2 3.3.5.12: nothing left is STATUS_END_OF_FILE, less than MinimumCount too."""
    with client.open("short") as f:
        f.write(b"0123456789")
        assert f.read(100) == b"0123456789"
        assert f.read(100, 9) == b"9"
        f.read(100, 10, status=p.END_OF_FILE)
        f.read(100, 1 << 40, status=p.END_OF_FILE)
        f.read(100, 5, minimum=6, status=p.END_OF_FILE)


@pytest.mark.parametrize(
    "disposition, exists, status, action",
    [
        (p.OPEN, True, p.SUCCESS, 1), (p.OPEN, False, p.OBJECT_NAME_NOT_FOUND, None),
        (p.CREATE, True, p.OBJECT_NAME_COLLISION, None), (p.CREATE, False, p.SUCCESS, 2),
        (p.OPEN_IF, True, p.SUCCESS, 1), (p.OPEN_IF, False, p.SUCCESS, 2),
        (p.OVERWRITE, True, p.SUCCESS, 3), (p.OVERWRITE, False, p.OBJECT_NAME_NOT_FOUND, None),
        (p.OVERWRITE_IF, True, p.SUCCESS, 3), (p.OVERWRITE_IF, False, p.SUCCESS, 2),
        (p.SUPERSEDE, True, p.SUCCESS, 0), (p.SUPERSEDE, False, p.SUCCESS, 2),
    ])
def test_dispositions(server, client, disposition, exists, status, action):
    """MS-SMB2 2.2.13 CreateDisposition, 2.2.14 CreateAction."""
    path = server.path() / "disposition"
    path.unlink(missing_ok=True)
    if exists:
        path.write_bytes(b"old")
    f = client.open("disposition", disposition=disposition, status=status)
    if f:
        assert f.action == action
        f.close()
        assert path.read_bytes() == (b"old" if action == 1 else b"")


def test_missing_names(client):
    client.open("nothing\\here", disposition=p.OPEN, status=p.OBJECT_PATH_NOT_FOUND)
    client.open("nothing", disposition=p.OPEN, status=p.OBJECT_NAME_NOT_FOUND)
    client.open("nothing", disposition=p.OPEN, options=p.DIRECTORY, status=p.OBJECT_NAME_NOT_FOUND)


def test_file_or_directory(client):
    client.folder("kind-d").close()
    client.open("kind-f").close()
    client.open("kind-d", disposition=p.OPEN, options=p.NON_DIRECTORY, status=p.FILE_IS_A_DIRECTORY)
    client.open("kind-f", disposition=p.OPEN, options=p.DIRECTORY, status=p.NOT_A_DIRECTORY)


@pytest.mark.parametrize("name", ["a:b:c:d", "a*b", "a?b", 'a"b', "a<b", "a>b", "a|b", "\\leading"])
def test_invalid_names(client, name):
    """MS-FSCC 2.1.5: these characters are in no file name."""
    try:
        client.open(name, disposition=p.CREATE).close()
    except p.Status as refused:
        assert refused.got in (p.OBJECT_NAME_INVALID, p.INVALID_PARAMETER, p.OBJECT_NAME_NOT_FOUND)
    else:
        pytest.fail(f"{name!r} was taken")


@pytest.mark.parametrize("name", ["..", "..\\outside", "dir\\..\\..\\outside", "link\\passwd", "absolute"])
def test_nothing_leads_out_of_the_share(server, client, name):
    """Neither `..` nor a symbolic link that someone put on the disk."""
    (server.path() / "dir").mkdir(exist_ok=True)
    outside = server.folder / "outside"
    outside.write_text("secret")
    for link, target in {"link": "/etc", "absolute": outside}.items():
        if not (server.path() / link).is_symlink():
            (server.path() / link).symlink_to(target)
    try:
        with client.open(name, access=p.READ, disposition=p.OPEN) as f:
            pytest.fail(f"opened {name}: {f.read(100)!r}")
    except p.Status as refused:
        assert refused.got != p.SUCCESS


def test_share_modes(client):
    """MS-SMB2 3.3.5.9, MS-FSA 2.1.5.1.2.2: access asked for against what the other open shares, both ways."""
    with client.open("modes", access=p.READ, share=1):
        client.open("modes", access=p.READ, share=1).close()
        client.open("modes", access=p.READ | p.WRITE, share=7, status=p.SHARING_VIOLATION)
        client.open("modes", access=p.READ, share=2, status=p.SHARING_VIOLATION)
        client.open("modes", access=p.DELETE, share=7, status=p.SHARING_VIOLATION)
        client.open("modes", access=0x80, share=0).close()  # attributes only: share modes do not matter
    client.open("modes", access=p.ALL, share=0).close()


def test_delete_on_close(server, client):
    f = client.open("doc", options=p.DELETE_ON_CLOSE)
    other = client.open("doc", access=p.READ, disposition=p.OPEN)
    f.close()
    client.open("doc", disposition=p.OPEN, status=p.DELETE_PENDING)
    other.close()
    assert not (server.path() / "doc").exists()
    client.open("doc", disposition=p.OPEN, status=p.OBJECT_NAME_NOT_FOUND)


def test_delete_by_disposition(server, client):
    f = client.open("disp")
    f.set(p.FILE, 13, b"\1")
    f.set(p.FILE, 13, b"\0")
    f.close()
    assert (server.path() / "disp").exists()
    f = client.open("disp")
    f.set(p.FILE, 13, b"\1")
    f.close()
    assert not (server.path() / "disp").exists()


def test_a_full_directory_is_not_deleted(client):
    client.folder("full").close()
    client.open("full\\f").close()
    with client.folder("full") as d:
        d.set(p.FILE, 13, b"\1", status=p.DIRECTORY_NOT_EMPTY)


def rename(f, target, replace=False, status=p.SUCCESS):
    wide = target.encode("utf-16-le")
    f.set(p.FILE, 10, struct.pack("<B7xQI", replace, 0, len(wide)) + wide, status=status)


def test_rename(server, client):
    """MS-FSCC 2.4.37 FileRenameInformation."""
    client.folder("rd").close()
    with client.open("r1") as f:
        f.write(b"one")
        rename(f, "rd\\r2")
        assert (server.path() / "rd" / "r2").read_bytes() == b"one"
        f.write(b"two")
    assert (server.path() / "rd" / "r2").read_bytes() == b"two"
    client.open("r3").close()
    with client.open("rd\\r2") as f:
        rename(f, "r3", status=p.OBJECT_NAME_COLLISION)
        rename(f, "r3", replace=True)
    assert (server.path() / "r3").read_bytes() == b"two"
    with client.open("r3") as f:
        rename(f, "no\\where", status=p.OBJECT_PATH_NOT_FOUND)
    with client.open("r3", access=p.READ) as f:
        rename(f, "r4", status=p.ACCESS_DENIED)
    with client.open("r3") as f:
        rename(f, "R3")
    assert "R3" in [entry.name for entry in server.path().iterdir()]


def test_rename_of_a_directory(server, client):
    client.folder("da").close()
    client.open("da\\f").close()
    with client.folder("da") as d:
        rename(d, "db")
    assert (server.path() / "db" / "f").exists()


@pytest.mark.parametrize("info_class, offset, length_at", [(1, 64, 60), (2, 68, 60), (3, 94, 60), (12, 12, 8), (37, 104, 60), (38, 80, 60)])
def test_directory_information_classes(client, info_class, offset, length_at):
    """MS-FSCC 2.4.10, 2.4.14, 2.4.8, 2.4.33, 2.4.22, 2.4.23: the name where each class has it."""
    client.folder("classes").close()
    for name in ("one", "zwei", "三"):
        client.open(f"classes\\{name}").close()
    with client.folder("classes") as d:
        entries = d.list(info_class=info_class)
        names = {e[offset : offset + struct.unpack_from("<I", e, length_at)[0]].decode("utf-16-le") for e in entries}
        assert names == {".", "..", "one", "zwei", "三"}
        d.list(status=p.NO_MORE_FILES, info_class=info_class)


def test_directory_enumeration_restarts_and_goes_on(client):
    """MS-SMB2 2.2.33: RESTART_SCANS, RETURN_SINGLE_ENTRY; small buffers lose nothing."""
    client.folder("enum").close()
    wanted = {f"file-{number:03}" for number in range(50)}
    for name in wanted:
        client.open(f"enum\\{name}").close()
    with client.folder("enum") as d:
        seen = []
        while True:
            try:
                seen += names_of(d.list(length=600))
            except p.Status as end:
                assert end.got == p.NO_MORE_FILES
                break
        assert sorted(seen) == sorted(wanted | {".", ".."})
        assert len(names_of(d.list(flags=1 | 2))) == 1
        assert set(names_of(d.list(flags=1))) >= wanted
        assert names_of(d.list("file-007", flags=1 | 16)) == ["file-007"]
        d.list("no-such*", flags=1 | 16, status=0xC000000F)


def test_unknown_directory_class(client):
    with client.folder(access=p.READ) as d:
        d.list(info_class=99, status=p.INVALID_INFO_CLASS)


def test_ten_thousand_entries(server, client):
    folder = server.path() / "many"
    folder.mkdir()
    for number in range(10_000):
        (folder / f"entry {number} ünï").touch()
    client.session.connection.echo(sid=client.session.session_id, credit_request=64)
    with client.folder("many") as d:
        names = list_all(d)
    assert len(names) == 10_002 and set(names) - {".", ".."} == {entry.name for entry in folder.iterdir()}


def test_unicode_and_case(server, client):
    for name in ("Straße", "ΑΒΓ", "Ж", "漢字 😀"):
        with client.open(name, disposition=p.CREATE) as f:
            f.write(name.encode())
        assert (server.path() / name).read_bytes() == name.encode()
    with client.open("αβγ", disposition=p.OPEN) as f:
        assert f.read(100).decode() == "ΑΒΓ"


def test_compound_related(server, client):
    """MS-SMB2 3.3.5.2.7.2: create, write, read, close in one, each on the file that the first opened."""
    tree, session = client.tree.tree_connect_id, client.session.session_id
    write = struct.pack("<HHIQ", 49, 112, 5, 0) + p.ANY + struct.pack("<IIHHI", 0, 0, 0, 0, 0) + b"hello"
    read = struct.pack("<HBBIQ", 49, 0x50, 0, 5, 0) + p.ANY + struct.pack("<IIIHH", 0, 0, 0, 0, 0) + b"\0"
    close = struct.pack("<HHI", 24, 0, 0) + p.ANY
    messages = [Raw(Commands.SMB2_CREATE, client.create_body("compound")), Raw(Commands.SMB2_WRITE, write, 5),
                Raw(Commands.SMB2_READ, read, 5), Raw(Commands.SMB2_CLOSE, close)]
    replies = [client.receive(r) for r in client.connection.send_compound(messages, session, tree, related=True)]
    start, size = struct.unpack_from("<xxBxI", replies[2])
    assert replies[2][start - 64 : start - 64 + size] == b"hello"
    assert (server.path() / "compound").read_bytes() == b"hello"


def test_compound_related_after_a_failure(client):
    """MS-SMB2 3.3.5.2.7.2: the rest of the chain fails with the first one's status."""
    close = struct.pack("<HHI", 24, 0, 0) + p.ANY
    messages = [Raw(Commands.SMB2_CREATE, client.create_body("absent", disposition=p.OPEN)), Raw(Commands.SMB2_CLOSE, close)]
    first, second = client.connection.send_compound(messages, client.session.session_id, client.tree.tree_connect_id, related=True)
    client.receive(first, p.OBJECT_NAME_NOT_FOUND)
    client.receive(second, p.OBJECT_NAME_NOT_FOUND)


def test_compound_unrelated(client):
    messages = [Raw(Commands.SMB2_CREATE, client.create_body(name, disposition=d)) for name, d in [("u1", p.OPEN_IF), ("gone", p.OPEN), ("u2", p.OPEN_IF)]]
    requests = client.connection.send_compound(messages, client.session.session_id, client.tree.tree_connect_id)
    statuses = [p.SUCCESS, p.OBJECT_NAME_NOT_FOUND, p.SUCCESS]
    for request, status in zip(requests, statuses):
        reply = client.receive(request, status)
        if status == p.SUCCESS:
            File(client, reply[64:80], reply).close()


def test_many_requests_at_once(client):
    """Hundreds of reads in flight, answered whole and each with its own bytes."""
    data = random.Random(9).randbytes(4 << 20)
    with client.open("pipelined") as f:
        for offset in range(0, len(data), 1 << 20):
            f.write(data[offset : offset + (1 << 20)], offset)
        granted = client.connection.echo(sid=client.session.session_id, credit_request=400)
        assert granted >= 1
        window = client.connection.sequence_window
        count = min(300, window["high"] - window["low"] - 8)
        assert count >= 64, f"only {count} credits"
        offsets = [random.Random(n).randrange(0, len(data) - 8192) for n in range(count)]
        body = lambda o: struct.pack("<HBBIQ", 49, 0x50, 0, 8192, o) + f.id + struct.pack("<IIIHH", 0, 0, 0, 0, 0) + b"\0"
        requests = [client.send(Commands.SMB2_READ, body(o), 8192, credits=1) for o in offsets]
        for request, offset in zip(requests, offsets):
            reply = client.receive(request)
            start, size = struct.unpack_from("<xxBxI", reply)
            assert reply[start - 64 : start - 64 + size] == data[offset : offset + 8192]


def test_credits_never_fall_to_nothing(client):
    """MS-SMB2 3.3.1.2: a client that asks for one credit at a time is never left with none, and one that asks gets many."""
    for _ in range(100):
        assert client.connection.echo(sid=client.session.session_id, credit_request=1) >= 1
    window = client.connection.sequence_window
    client.connection.echo(sid=client.session.session_id, credit_request=256)
    assert window["high"] - window["low"] >= 128


def test_closed_handles_are_dead(client):
    f = client.open("dead")
    dead = f.id
    f.close()
    f.id = dead
    f.read(1, status=p.FILE_CLOSED)
    f.close(status=p.FILE_CLOSED)
    f.id = None


def test_file_ids_do_not_collide(client):
    files = [client.open(f"id-{n}") for n in range(300)]
    assert len({f.id for f in files}) == 300
    for f in files:
        f.close()


def test_tree_disconnect_closes_files(server, client):
    f = client.open("treed", options=p.DELETE_ON_CLOSE)
    client.call(Commands.SMB2_TREE_DISCONNECT, struct.pack("<HH", 4, 0))
    f.read(1, status=p.NETWORK_NAME_DELETED)
    assert not (server.path() / "treed").exists()
    client.session.tree_connect_table.clear()


def test_logoff_closes_files(server):
    client = Client(server)
    client.open("logoff", options=p.DELETE_ON_CLOSE)
    client.call(Commands.SMB2_LOGOFF, struct.pack("<HH", 4, 0))
    assert not (server.path() / "logoff").exists()
    client.abort()


def test_a_lost_connection_closes_files(server, client):
    lost = Client(server)
    lost.open("lost", options=p.DELETE_ON_CLOSE, share=p.SHARE_NONE)
    lost.abort()

    def free():
        try:
            client.open("lost", disposition=p.OPEN)
        except p.Status as status:
            return status.got == p.OBJECT_NAME_NOT_FOUND

    until(free, timeout=10, what="the lost connection's file closed and deleted")


@pytest.mark.parametrize("dialect", [Dialects.SMB_2_0_2, Dialects.SMB_2_1_0, Dialects.SMB_3_0_0, Dialects.SMB_3_0_2, Dialects.SMB_3_1_1])
def test_every_dialect(server, dialect):
    with Client(server, dialect=dialect, sign=True) as client:
        data = random.Random(dialect).randbytes(60_000)
        with client.open(f"dialect-{dialect}") as f:
            f.write(data)
            assert f.read(len(data)) == data
