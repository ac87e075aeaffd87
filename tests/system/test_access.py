"""Who may do what: existing files, share permissions, groups, access-based enumeration (docs/access.md)."""

import json
from pathlib import Path

import pytest

from harness.programs import run
from harness.servers import Causeway
from harness.smbclient import SmbClient

pytestmark = pytest.mark.skipif(not Causeway.binary.exists(), reason="causeway is not built")


class World:
    """A server with the users alice and bob, neither of them a user of this machine, and its command line."""

    def __init__(self, folder):
        self.server = Causeway(folder).start()
        self.control = str(Path(self.server.sockets.name) / "control.sock")
        self("user", "add", "bob", "--password-stdin", stdin=(self.server.password + "\n").encode())

    def __call__(self, *words, status=0, stdin=None):
        return run([Causeway.binary, *words, "--control", self.control], status=status, timeout=60, stdin=stdin)

    def acl(self):
        rows = json.loads(self("share", "get-acl", "files", "--json").out)
        return {row["account"]: row["access"] for row in rows}

    def smb(self, user, *commands, status=0):
        return SmbClient(self.server, user=user)(*commands, status=status)

    def file(self, name, mode, text="text"):
        path = self.server.path() / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path


@pytest.fixture
def world(scratch, request):
    world = World(scratch / request.node.name)
    yield world
    assert world.server.stop() == 0


def test_existing_files_keep_their_protection(world, tmp_path):
    world.file("private", 0o600)
    world.file("public", 0o644)
    world.file("shut/public", 0o644)
    (world.server.path() / "shut").chmod(0o700)
    here = tmp_path / "got"
    world.smb("alice", f"get public {here}")
    assert here.read_text() == "text"
    for refused in ["get private", "get shut\\public", "ls shut\\*", "allinfo shut\\public"]:
        out = world.smb("alice", f"{refused} {here}" if refused.startswith("get") else refused, status=None)
        assert "NT_STATUS_ACCESS_DENIED" in out.out, refused
    source = tmp_path / "new"
    source.write_text("changed")
    assert "ACCESS_DENIED" in world.smb("alice", f"put {source} public", status=None).out
    assert (world.server.path() / "public").read_text() == "text"


def test_what_one_user_makes_another_may_change(world, tmp_path):
    """In a directory of mode 0777, as in the README."""
    source = tmp_path / "new"
    source.write_text("of alice")
    world.smb("alice", f"put {source} common", "mkdir d", f"put {source} d\\f")
    source.write_text("of bob")
    world.smb("bob", f"put {source} common", f"put {source} d\\f", "rename d\\f d\\g", "del d\\g", "rmdir d")
    assert (world.server.path() / "common").read_text() == "of bob"


def test_share_permissions(world, tmp_path):
    source = tmp_path / "new"
    source.write_text("text")
    assert world.acl() == {"Everyone": "full"}
    world("share", "set-acl", "files", "--grant", "alice=read", "--grant", "staff=change")
    assert world.acl() == {"alice": "read", "staff": "change"}
    assert "NT_STATUS_ACCESS_DENIED" in world.smb("bob", "ls", status=None).out
    world.smb("alice", "ls")
    assert "ACCESS_DENIED" in world.smb("alice", f"put {source} f", status=None).out
    # A group that is made later counts then; and so do its members, from their next log-on.
    world("group", "add", "staff")
    world("group", "add-member", "staff", "bob")
    world.smb("bob", f"put {source} f", "del f")
    world.server.stop()
    world.server.restart()
    assert world.acl() == {"alice": "read", "staff": "change"}, "kept in the configuration"
    world("share", "set-acl", "files", "--grant", "Everyone=full", "--deny", "bob")
    assert "NT_STATUS_ACCESS_DENIED" in world.smb("bob", "ls", status=None).out
    assert world("share", "set-acl", "files", status=None).status != 0, "nothing to set"


def test_to_path(world, tmp_path):
    """S1-14: the directory's descriptor is the share's, whatever its mode is."""
    world.server.path().chmod(0o755)
    source = tmp_path / "new"
    source.write_text("text")
    assert "ACCESS_DENIED" in world.smb("alice", f"put {source} f", status=None).out
    world("share", "set-acl", "files", "--grant", "alice=full", "--grant", "Everyone=read", "--to-path")
    world.smb("alice", f"put {source} f")
    world.smb("bob", f"get f {tmp_path / 'got'}")
    assert "ACCESS_DENIED" in world.smb("bob", f"put {source} g", status=None).out


def test_access_based_enumeration(world):
    world.file("private", 0o600)
    world.file("public", 0o644)
    names = lambda user: set(SmbClient(world.server, user=user).ls())
    assert names("alice") >= {"private", "public"}
    config = world.server.config
    config.write_text(config.read_text() + "access_based = true\n")
    world("reload")
    assert names("alice") >= {"public"} and "private" not in names("alice")
    world("group", "add-member", "Administrators", "alice")
    assert names("alice") >= {"private", "public"}, "administrators are as root"
