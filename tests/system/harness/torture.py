"""Samba's conformance suite: which tests there are, running one, and what it said.

Each test is a process of its own with a folder of its own, so that one that hangs or leaves files behind cannot spoil
the next.
"""

import contextlib
import fnmatch
import functools
import re
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from . import ROOT
from .programs import Failed, run

# Suites that are no test of a server's answers: load, listings of what a server knows, and what only Samba has.
EXCLUDED = {f"smb2.{name}" for name in (
    "aio_delay", "async_dosmode", "bench", "bench-echo", "bench-oplock", "bench-path-contention-shared", "bench-session-setup",
    "change_notify_disabled", "check-sharemode", "durable-v2-delay", "hold-oplock", "hold-sharemode", "kernel-oplocks", "mangle",
    "notify-inotify", "openattr", "samba3misc", "scan", "scan-find", "scan-getinfo", "scan-setinfo", "timestamp_resolution")}
DEADLINE_SECONDS = 60
# These do much, by design.
DEADLINES = {"smb2.maxfid": 300, "smb2.dir.large-files": 180, "smb2.create.gentest": 180, "smb2.notify.mask": 180}
# They wait more than they compute. The longest go first.
AT_ONCE = 3
LONGEST = ["smb2.lease", "smb2.replay", "smb2.oplock"]
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
    config = Path(server.folder) / "smbtorture.conf"
    if not config.exists():
        config.write_text("[global]\nname resolve order = host\nclient min protocol = SMB2_02\n"
                          f"lock directory = {server.folder}\ncache directory = {server.folder}\n")
    deadline = DEADLINES.get(test, DEADLINE_SECONDS)
    command = [*server.prefix, "smbtorture", server.unc(share), "-s", config, "-p", server.port, "--format=subunit",
               "--option=torture:progress=no", "-U", f"{server.user}%{server.password}", "--seed=1", test]
    try:
        out = run(command, status=None, timeout=deadline, cwd=server.folder).out
    except Failed as late:
        return Outcome("lost", f"it did not end within {deadline} s", str(late))
    found = OUTCOME.findall(out)
    if not found:
        return Outcome("lost", "it ended without a result", out)
    state, _, reason = found[-1]
    return Outcome(state, reason.strip(), out)


def suite_of(test):
    return ".".join(test.split(".")[:2])


def shares():
    """A share for each suite, so that suites can run side by side."""
    return [suite.removeprefix("smb2.") for suite in suites()]


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
