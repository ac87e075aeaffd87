"""Samba's conformance suite: which tests there are, running one, and what it said.

Each test is a process of its own with a folder of its own, so that one that hangs or leaves files behind cannot spoil
the next.

`environment` makes what the tests ask for: a network namespace in which they block connections with iptables, a second
user, and shares that they name. What cannot be made (without root: a file system that shares blocks between files) is left
out, and the tests for it skip.
"""

import contextlib
import fnmatch
import functools
import os
import re
import shutil
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from . import ROOT
from .guest import Namespace
from .programs import Failed, run
from .servers import SNAPSHOT_SETTINGS
from .smbclient import SmbClient

# Suites that are no test of a server's answers: load, listings of what a server knows, and what only Samba has.
EXCLUDED = {f"smb2.{name}" for name in (
    "aio_delay", "async_dosmode", "bench", "bench-echo", "bench-oplock", "bench-path-contention-shared", "bench-session-setup",
    "change_notify_disabled", "check-sharemode", "durable-v2-delay", "hold-oplock", "hold-sharemode", "kernel-oplocks", "mangle",
    "notify-inotify", "openattr", "samba3misc", "scan", "scan-find", "scan-getinfo", "scan-setinfo", "timestamp_resolution")}
DEADLINE_SECONDS = 60
# These do much, by design.
DEADLINES = {"smb2.maxfid": 300, "smb2.dir.large-files": 180, "smb2.create.gentest": 180, "smb2.notify.mask": 180,
             # 32 connections fail one after the other, or none does for 35 s.
             **dict.fromkeys((f"smb2.multichannel.{name}" for name in (
                 "leases.test4", "oplocks.test3_windows", "oplocks.test3_specification")), 180)}
# They wait more than they compute. The longest go first.
AT_ONCE = 3
LONGEST = ["smb2.lease", "smb2.replay", "smb2.oplock"]
SECOND_USER = "user2"
# Shares beside those of the suites: its folder is closed to all users; listings show only what the user may read; handles
# survive a restart of the server; files cannot be compressed.
NO_PERMISSION, ACCESS_BASED, CONTINUOUS, NOT_COMPRESSING = "noperm", "hideunread", "continuous", "plain"
# Tests that are about a property of the share that they are given.
SHARE_OF = {
    "smb2.replay.replay5": CONTINUOUS,
    # The share of the other tests of this suite compresses files.
    **dict.fromkeys(("smb2.ioctl.compress_notsup_get", "smb2.ioctl.compress_notsup_set"), NOT_COMPRESSING),
}
# The share of smb2.twrp has one snapshot.
SNAPSHOT = "@GMT-2015.10.31-19.40.30"
TWRP = ["twrp_file=foo", "twrp_stream=bar", "twrp_stream_size=3", f"twrp_snapshot={SNAPSHOT}"]
OPTIONS = {
    **{f"smb2.twrp.{name}": TWRP for name in ("write", "stream", "openroot", "listdir")},
    "smb2.set-sparse-ioctl": ["filename=sparse"],
    "smb2.zero-data-ioctl": ["filename=zeroed", "offset=4096", "beyond_final_zero=8192"],
}
# The extended attribute in which each server keeps security descriptors: clients must not reach it.
DESCRIPTOR_ATTRIBUTE = {"causeway": "causeway.sd", "smbd": "security.NTACL"}
SETTINGS_OF = {
    "causeway": {ACCESS_BASED: {"access_based": True}, CONTINUOUS: {"continuous_availability": True},
                 "twrp": SNAPSHOT_SETTINGS["causeway"]},
    "smbd": {ACCESS_BASED: {"hide unreadable": "yes", "access based share enum": "yes"},
             "twrp": SNAPSHOT_SETTINGS["smbd"]},
}
NEEDS_BLOCKING = "FSCTL_SMBTORTURE_FORCE_UNACKED_TIMEOUT failed"
OUTCOME = re.compile(r"^(success|failure|error|skip): (\S+)(?: \[\n(.*?)\n\])?", re.M | re.S)


@functools.cache
def listed():
    """Every test that this smbtorture has, by full name without the doubled last part."""
    names = re.findall(r"^(smb2\.\S+)$", run(["smbtorture", "--list"], status=None).out, re.M)
    return [re.sub(r"\.([^.]+)\.\1$", r".\1", name) for name in names]


def suites():
    return sorted({".".join(name.split(".")[:2]) for name in listed()} - EXCLUDED)


def tests_of(suite):
    return [name for name in listed() if name == suite or name.startswith(suite + ".")]


class KnownFailures:
    """Reasons by test; a name may be a pattern. `newer` are the names that an older smbtorture does not have."""

    def __init__(self, server_name):
        suffix = "" if server_name == "causeway" else f"-{server_name}"
        self.reasons = tomllib.loads((ROOT / "tests" / "smbtorture" / f"known-failures{suffix}.toml").read_text())
        self.newer = self.reasons.pop("newer", {})

    def reason(self, test):
        named = self.reasons | self.newer
        return next((named[name] for name in named if fnmatch.fnmatchcase(test, name)), None)

    def unused(self, tests):
        """Names that are no test of these."""
        return [name for name in self.reasons if not fnmatch.filter(tests, name)]


class Outcome:
    """`state` is success, failure, error, skip, or lost (it ended or was ended without saying)."""

    def __init__(self, state, reason, out):
        self.state, self.reason, self.out = state, reason, out


def run_test(server, test, share):
    """Runs one test; never raises for what the test says."""
    if missing := server.missing.get(test):
        return Outcome("skip", missing, "")
    share = SHARE_OF.get(test, share)
    blocking = bool(server.prefix)
    options = ["progress=no", f"use_iptables={'yes' if blocking else 'no'}", f"user2name={SECOND_USER}",
               f"user2password={server.password}", f"acl_xattr_name={DESCRIPTOR_ATTRIBUTE[server.name]}", *OPTIONS.get(test, [])]
    config = Path(server.folder) / "smbtorture.conf"
    if not config.exists():
        config.write_text("[global]\nname resolve order = host\nclient min protocol = SMB2_02\n"
                          f"lock directory = {server.folder}\ncache directory = {server.folder}\n")
    deadline = DEADLINES.get(test, DEADLINE_SECONDS)
    command = [*server.prefix, "smbtorture", server.unc(share), "-s", config, "-p", server.port, "--format=subunit",
               *(f"--option=torture:{option}" for option in options), "-U", f"{server.user}%{server.password}", "--seed=1", test]
    try:
        out = run(command, status=None, timeout=deadline, cwd=server.folder).out
    except Failed as late:
        return Outcome("lost", f"it did not end within {deadline} s", str(late))
    found = OUTCOME.findall(out)
    if not found:
        return Outcome("lost", "it ended without a result", out)
    state, _, reason = found[-1]
    if state != "success" and not server.prefix and NEEDS_BLOCKING in out:
        return Outcome("skip", "no network namespace with iptables can be made here", out)
    return Outcome(state, reason.strip(), out)


def suite_of(test):
    return ".".join(test.split(".")[:2])


def shares():
    """A share for each suite, so that suites can run side by side, and those that tests ask for by name."""
    return [suite.removeprefix("smb2.") for suite in suites()] + [NO_PERMISSION, ACCESS_BASED, CONTINUOUS, NOT_COMPRESSING]


def namespace(folder):
    """A namespace in which tests can block connections and the server can have the standard port; `None` where it cannot be
    made."""
    if not shutil.which("iptables"):
        return None
    try:
        made = Namespace(mounts=True)
    except Failed:
        return None
    # Entering a mount namespace changes the working directory.
    made.prefix.insert(1, f"--wd={folder}")
    try:
        made.run("iptables", "-L", "OUTPUT")
        # A test that blocks a connection counts on everything before being acknowledged.
        made.ip(*(f"route replace table local local {to} dev lo proto kernel scope host src 127.0.0.1 quickack 1"
                  for to in ("127.0.0.0/8", "127.0.0.1")))
    except Failed:
        made.close()
        return None
    return made


def mount_reflinks(inside, image, folder):
    """Mounts a file system that shares blocks between files and compresses them (Btrfs), inside the namespace only; nothing
    where that fails."""
    with open(image, "wb") as file:
        file.truncate(512 << 20)
    with contextlib.suppress(Failed, FileNotFoundError):
        run(["mkfs.btrfs", "-q", image])
        inside.run("mount", "-o", "loop", image, folder)
        inside.run("chmod", "0777", folder)


def mount_without_streams(inside, folder):
    """Mounts a file system without extended attributes (ramfs), and so without named streams. Whether that succeeded."""
    try:
        inside.run("mount", "-t", "ramfs", "-o", "mode=0777", "none", folder)
    except Failed:
        return False
    return True


def take_snapshot(share):
    """Copies a share's files into a snapshot, but for one that the snapshot shares with it: a hard link, as rsync makes."""
    snapshot, linked = share / ".snapshots" / SNAPSHOT, Path("subdir") / "hardlink"
    shutil.copytree(share, snapshot, ignore=shutil.ignore_patterns(".snapshots", linked.name))
    os.link(share / linked, snapshot / linked)


@contextlib.contextmanager
def environment(kind, folder):
    """A started server of this kind with all that the suites ask for. The caller stops it."""
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    inside = namespace(folder)
    place = {"prefix": inside.prefix, "port": 445} if inside else {}
    try:
        server = kind(folder, shares=shares(), more_users=[SECOND_USER], settings_of=SETTINGS_OF[kind.name], **place)
        server.path(NO_PERMISSION).chmod(0)
        server.missing = {}
        if inside:
            mount_reflinks(inside, folder / "reflinks.btrfs", server.path("ioctl"))
        else:
            server.missing["smb2.multichannel.bugs.bug_15346"] = "connects to port 445, and no network namespace can be made here"
        if not inside or not mount_without_streams(inside, server.path("create_no_streams")):
            server.missing["smb2.create_no_streams.no_stream"] = "no file system without named streams can be mounted here"
        server.start()
        smbclient = SmbClient(server, share="zero-data-ioctl")
        # zero-data-ioctl wants a file that its user owns.
        smbclient(f"put {__file__} zeroed")
        smbclient.share = "twrp"
        (stream := folder / "stream").write_bytes(b"baz")
        smbclient(f"put {__file__} foo", f"put {stream} foo:bar", "mkdir subdir", f"put {__file__} subdir/hardlink")
        take_snapshot(server.path("twrp"))
        yield server
    finally:
        if inside:
            inside.close()


@contextlib.contextmanager
def running(server, tests):
    """{test: future of its Outcome}; the tests of a suite run one after the other. What has not begun at the end does not."""
    outcomes = {test: Future() for test in tests}

    def run_suite(suite):
        for test, outcome in outcomes.items():
            if suite_of(test) == suite and outcome.set_running_or_notify_cancel():
                outcome.set_result(run_test(server, test, suite.removeprefix("smb2.")))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for suite in sorted(dict.fromkeys(map(suite_of, tests)), key=lambda suite: suite not in LONGEST):
            pool.submit(run_suite, suite)
        try:
            yield outcomes
        finally:
            for outcome in outcomes.values():
                outcome.cancel()
