"""Samba's smbclient: the client that administrators try first."""

import os
import random
import re
import shutil

import pytest

from harness.guest import Namespace
from harness.programs import Failed, run
from harness.servers import SNAPSHOT_SETTINGS
from harness.smbclient import SmbClient

DIALECTS = ["SMB2_02", "SMB2_10", "SMB3_00", "SMB3_02", "SMB3_11"]
UNICODE_NAMES = ["Ünïcödé.txt", "Привет мир.txt", "漢字とかな.txt", "emoji 😀.txt", "e\u0301 decomposed.txt", "a b  c.txt"]


def make_file(path, size, seed=1):
    path.write_bytes(random.Random(seed).randbytes(size))
    return path


def round_trip(client, folder, size, name="round-trip.bin"):
    """Puts a file, gets it back, compares, deletes it."""
    source = make_file(folder / "source.bin", size)
    back = folder / "back.bin"
    client(f'put "{source}" "{name}"', f'get "{name}" "{back}"', f'del "{name}"')
    assert back.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("size", [0, 1, 4096, 65536, 65537, 1_000_000, 33_000_000])
def test_put_and_get(smbclient, tmp_path, size):
    round_trip(smbclient, tmp_path, size)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect(server, tmp_path, dialect):
    """MS-SMB2 3.3.5.4: the server speaks each dialect when it is the only one offered."""
    round_trip(SmbClient(server, dialect=dialect), tmp_path, 3_000_000)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_signed_in_every_dialect(server, tmp_path, dialect):
    """MS-SMB2 3.1.4.1: HMAC-SHA256 for 2.x, AES-CMAC or AES-GMAC for 3.x."""
    round_trip(SmbClient(server, dialect=dialect, protection="sign"), tmp_path, 300_000)


@pytest.mark.parametrize("dialect", ["SMB3_00", "SMB3_02", "SMB3_11"])
def test_encrypted(server, tmp_path, dialect):
    """MS-SMB2 3.1.4.3: AES-CCM for 3.0, the negotiated cipher for 3.1.1."""
    round_trip(SmbClient(server, dialect=dialect, protection="encrypt"), tmp_path, 3_000_000)


@pytest.mark.parametrize("cipher", ["AES-128-CCM", "AES-128-GCM", "AES-256-CCM", "AES-256-GCM"])
def test_every_cipher(server, tmp_path, cipher):
    """MS-SMB2 2.2.3.1.2: the only cipher that the client offers is the one that is used."""
    settings = {"client smb3 encryption algorithms": cipher}
    round_trip(SmbClient(server, dialect="SMB3_11", protection="encrypt", settings=settings), tmp_path, 1_000_000)


@pytest.mark.parametrize("algorithm", ["AES-128-GMAC", "AES-128-CMAC", "HMAC-SHA256"])
def test_every_signing_algorithm(server, tmp_path, algorithm):
    """MS-SMB2 2.2.3.1.7: the only signing algorithm that the client offers is the one that is used."""
    settings = {"client smb3 signing algorithms": algorithm}
    round_trip(SmbClient(server, dialect="SMB3_11", protection="sign", settings=settings), tmp_path, 1_000_000)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_unsigned(serve, tmp_path, dialect):
    """Signing is not required: only then does payload move without passing a MAC, by sendfile and splice."""
    round_trip(SmbClient(serve(signing="enabled"), dialect=dialect), tmp_path, 3_000_000)


def test_encryption_required_by_the_server(serve, tmp_path):
    server = serve(encryption="required")
    round_trip(SmbClient(server), tmp_path, 300_000)
    assert "NT_STATUS_ACCESS_DENIED" in SmbClient(server, dialect="SMB2_10")("ls", status="failure").out


def test_wrong_password_is_refused(server):
    assert "NT_STATUS_LOGON_FAILURE" in SmbClient(server, password="wrong")("ls", status="failure").out


def test_unknown_user_is_refused(server):
    assert "NT_STATUS_LOGON_FAILURE" in SmbClient(server, user="mallory")("ls", status="failure").out


def test_anonymous_is_refused(server):
    out = SmbClient(server, user="", password="")("ls", status="failure").out
    assert "NT_STATUS_ACCESS_DENIED" in out or "NT_STATUS_LOGON_FAILURE" in out


def test_unknown_share_is_refused(server):
    assert "NT_STATUS_BAD_NETWORK_NAME" in SmbClient(server, share="nowhere")("ls", status="failure").out


def test_shares_are_listed(server):
    """MS-SRVS 3.1.4.8 NetrShareEnum over IPC$."""
    shares = SmbClient(server).list_shares()
    assert shares["files"] == "The files share"
    assert "IPC$" in shares


def test_rename_delete_mkdir(server, smbclient, tmp_path):
    source = make_file(tmp_path / "f", 1234)
    smbclient("mkdir dir", "mkdir dir\\sub", f"put {source} dir\\f", "rename dir\\f dir\\sub\\g")
    assert smbclient.ls("dir\\sub\\*")["g"][1] == 1234
    assert (server.path() / "dir" / "sub" / "g").read_bytes() == source.read_bytes()
    assert "NT_STATUS_DIRECTORY_NOT_EMPTY" in smbclient("rmdir dir\\sub", status=None).out
    assert "NT_STATUS_OBJECT_NAME_COLLISION" in smbclient("mkdir dir\\sub", status=None).out
    smbclient("rename dir\\sub dir\\moved", "del dir\\moved\\g", "rmdir dir\\moved", "rmdir dir")
    assert not (server.path() / "dir").exists()
    assert "NT_STATUS_NO_SUCH_FILE" in smbclient("ls dir", status=None).out


def test_rename_does_not_replace(server, smbclient, tmp_path):
    a, b = make_file(tmp_path / "a", 10, 1), make_file(tmp_path / "b", 20, 2)
    smbclient(f"put {a} keep-a", f"put {b} keep-b")
    assert "NT_STATUS_OBJECT_NAME_COLLISION" in smbclient("rename keep-a keep-b", status=None).out
    assert (server.path() / "keep-b").read_bytes() == b.read_bytes()
    smbclient("rename keep-a keep-b -f")
    assert (server.path() / "keep-b").read_bytes() == a.read_bytes()


@pytest.mark.parametrize("name", UNICODE_NAMES)
def test_unicode_names(server, smbclient, tmp_path, name):
    source = make_file(tmp_path / "f", 100)
    smbclient(f'put "{source}" "{name}"')
    assert (server.path() / name).read_bytes() == source.read_bytes()
    assert name in smbclient.ls()
    smbclient(f'del "{name}"')
    assert not (server.path() / name).exists()


def test_names_are_case_insensitive_and_preserved(server, smbclient, tmp_path):
    source = make_file(tmp_path / "f", 100)
    back = tmp_path / "back"
    smbclient(f"put {source} MixedCase.Txt", f"get mixedcase.tXT {back}")
    assert back.read_bytes() == source.read_bytes()
    assert "MixedCase.Txt" in smbclient.ls()
    smbclient("del MIXEDCASE.TXT")
    assert not (server.path() / "MixedCase.Txt").exists()


def test_patterns(smbclient, tmp_path):
    source = make_file(tmp_path / "f", 1)
    names = ["aa.txt", "ab.txt", "b.dat", "noext"]
    smbclient("mkdir pat", *[f"put {source} pat\\{name}" for name in names])
    listed = {pattern: sorted(set(smbclient.ls(f"pat\\{pattern}")) - {".", ".."}) for pattern in ["a*.txt", "?b.*", "*.dat", "*"]}
    assert listed == {"a*.txt": ["aa.txt", "ab.txt"], "?b.*": ["ab.txt"], "*.dat": ["b.dat"], "*": sorted(names)}
    smbclient("deltree pat")


def test_ten_thousand_entries(server, smbclient):
    folder = server.path() / "many"
    folder.mkdir()
    for number in range(10_000):
        (folder / f"entry-{number:05}-with-a-name-of-ordinary-length").touch()
    listed = set(smbclient.ls("many\\*")) - {".", ".."}
    assert listed == {entry.name for entry in folder.iterdir()}
    smbclient("deltree many", timeout=180)
    assert not folder.exists()


def test_four_gibibyte_sparse_file(server, smbclient, tmp_path):
    """Past 4 GiB every offset and length needs its upper half."""
    size = (4 << 30) + 12345
    with open(server.path() / "sparse", "wb") as f:
        f.truncate(size)
        f.seek(4 << 30)
        f.write(b"past four gibibytes")
    assert smbclient.ls("sparse")["sparse"][1] == size
    tail = tmp_path / "tail"
    with open(tail, "wb") as f:
        f.truncate(4 << 30)
    smbclient(f"reget sparse {tail}")
    assert tail.stat().st_size == size
    with open(tail, "rb") as f:
        f.seek(4 << 30)
        assert f.read(19) == b"past four gibibytes"
    smbclient("del sparse")


def test_free_space(server, smbclient):
    out = smbclient("du").out + smbclient("volume", status=None).out
    assert "blocks of size" in out
    stat = os.statvfs(server.path())
    words = next(line for line in out.splitlines() if "blocks of size" in line).split()
    reported = int(words[0]) * int(words[4].rstrip("."))
    assert abs(reported - stat.f_blocks * stat.f_frsize) <= 0.01 * reported


def test_attributes_and_times(server, smbclient, tmp_path):
    source = make_file(tmp_path / "f", 77)
    smbclient(f"put {source} attrs", "setmode attrs +rh")
    attributes, size = smbclient.ls("attrs")["attrs"]
    assert size == 77 and "R" in attributes and "H" in attributes
    smbclient("del attrs", status=None)
    assert (server.path() / "attrs").exists(), "a read-only file was deleted"
    smbclient("setmode attrs -rh", 'utimes attrs -1 "2020:01:02-03:04:05" "2021:02:03-04:05:06" -1')
    assert "Wed Feb  3 04:05:06 2021" in smbclient("ls attrs").out
    smbclient("del attrs")


def test_a_tree_by_tar(server, smbclient, tmp_path):
    """A tree of small files through smbclient's tar, whole and compared."""
    tree = server.path() / "tree"
    for number in range(200):
        folder = tree / f"d{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        make_file(folder / f"f{number}", number * 37, number)
    archive = tmp_path / "tree.tar"
    smbclient(f"tar c {archive} tree", timeout=120)
    run(["tar", "-xf", archive, "-C", tmp_path])
    run(["diff", "-r", tree, tmp_path / "tree"])
    smbclient("deltree tree")
    assert not tree.exists()


def test_previous_versions(kind, serve, tmp_path):
    """MS-SMB2 3.3.5.9.4, 3.3.5.15.1: snapshots are listed for a file, and read."""
    server = serve(share_settings=SNAPSHOT_SETTINGS[kind.name])
    smbclient, folder = SmbClient(server), server.path() / ".snapshots"
    assert "@GMT" not in smbclient("allinfo .").out
    versions = {"@GMT-2020.02.29-00.00.00": 1000, "@GMT-2024.01.01-06.30.00": 2000}
    for number, (name, size) in enumerate(versions.items()):
        source = make_file(tmp_path / name, size, number)
        smbclient(f"put {source} f", "mkdir d", f"put {source} d/f", status=None)
        shutil.copytree(server.path(), folder / name, ignore=shutil.ignore_patterns(".snapshots"))
    smbclient("del f", "del d/f")
    assert set(re.findall("@GMT-[0-9.-]+", smbclient("allinfo d").out)) == set(versions)
    for name, size in versions.items():
        assert size == smbclient.ls(rf"{name}\f")["f"][1] == smbclient.ls(rf"{name}\d\*")["f"][1]
        for path in ("f", r"d\f"):
            smbclient(rf"get {name}\{path} {tmp_path / 'back'}")
            assert (tmp_path / "back").read_bytes() == (tmp_path / name).read_bytes()
    if kind.name == "smbd":
        return  # It writes to a snapshot in this configuration.
    name = min(versions)
    for refused in (rf"put {tmp_path / 'back'} {name}\f", rf"del {name}\f", rf"mkdir {name}\new",
                    rf"rename {name}\f {name}\g"):
        assert "NT_STATUS_" in smbclient(refused, status=None).out, refused
    assert (folder / name / "f").read_bytes() == (tmp_path / name).read_bytes()
    assert sorted(path.name for path in (folder / name).iterdir()) == ["d", "f"]


@pytest.mark.smbd_differs("it has the quotas of the machine's file system, if it has any")
def test_quotas(serve):
    """MS-SMB2 3.3.5.20.4: smbcquotas, which knows the standard port only, finds that there are no quotas."""
    try:
        inside = Namespace()
    except Failed as e:
        pytest.skip(f"no network namespace can be made here: {e}")
    try:
        server = serve(port=445, prefix=inside.prefix)
        SmbClient(server)("ls")
        account = ["-s", server.folder / "smbclient.conf", "-U", f"{server.user}%{server.password}"]

        def quotas(*options, status=0):
            return inside.run("smbcquotas", server.unc(), *account, *options, status=status).out

        assert re.search(r"alice +: +0/ +NO LIMIT/ +NO LIMIT", quotas("-u", "alice"))
        assert quotas("-L") == ""
        assert re.search(r"Quotas Enabled: +Off", quotas("-F"))
        assert "NT_STATUS_ACCESS_DENIED" in quotas("-S", "UQLIM:alice:1000/2000", status="failure")
        server.stop()
    finally:
        inside.close()


def test_a_share_that_is_restored_has_its_streams(kind, serve, tmp_path):
    """docs/operating.md, "Back up": a large stream is a file of its own, which the restored file has to find."""
    if kind.name != "causeway":
        pytest.skip("its streams are extended attributes only")
    server = serve()
    client, back = SmbClient(server), tmp_path / "back"
    small, large = make_file(tmp_path / "small", 100), make_file(tmp_path / "large", 50_000, seed=2)
    streams = {"f:small": small, "f:large": large, "g:large": large}
    client(*[f'put "{small}" "{name}"' for name in "fg"], *[f'put "{source}" "{name}"' for name, source in streams.items()])
    assert server.stop() == 0
    files = server.path()
    run(["tar", "--xattrs", "--xattrs-include=*", "-C", files, "-cf", tmp_path / "backup.tar", "."])
    for entry in files.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    run(["tar", "--xattrs", "--xattrs-include=*", "-C", files, "-xf", tmp_path / "backup.tar"])
    # As rsync does: another file takes the place of the first one.
    run(["cp", "-a", files / "g", files / "g.new"])
    (files / "g.new").rename(files / "g")
    for _ in range(2):
        server.start()
        for name, source in streams.items():
            client(f'get "{name}" "{back}"')
            assert back.read_bytes() == source.read_bytes(), name
        assert server.stop() == 0
