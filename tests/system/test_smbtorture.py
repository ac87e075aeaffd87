"""Samba's smbtorture. What fails is listed with its reason; an unlisted failure fails, and so does a listed pass."""

import shutil
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from harness import torture

SUITES = torture.suites() if shutil.which("smbtorture") else []
TESTS = [test for suite in SUITES for test in torture.tests_of(suite)]
# The long suites wait more than they compute.
AT_ONCE = 3
FIRST = ["smb2.lease", "smb2.replay", "smb2.oplock"]


def run_suite(server, tests):
    for test, outcome in tests.items():
        if outcome.set_running_or_notify_cancel():
            outcome.set_result(torture.run_test(server, test, test.split(".")[1]))


@pytest.fixture(scope="module")
def outcomes(kind, scratch, request):
    """What comes of each test that was chosen. Suites run side by side, each on a share of its own."""
    chosen = {}
    for item in request.session.items:
        if item.path == request.path and hasattr(item, "callspec"):
            test = item.callspec.params["test"]
            chosen.setdefault(".".join(test.split(".")[:2]), {})[test] = Future()
    server = kind(scratch / "server", shares=[suite.removeprefix("smb2.") for suite in SUITES]).start()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for suite in sorted(chosen, key=lambda suite: suite not in FIRST):
            pool.submit(run_suite, server, chosen[suite])
        yield server.name, {test: outcome for tests in chosen.values() for test, outcome in tests.items()}
        for tests in chosen.values():
            for outcome in tests.values():
                outcome.cancel()
    assert server.is_running(), f"the server ended: {server.said()[-2000:]}"
    assert "panicked at" not in server.said(), server.log
    server.stop()


@pytest.mark.skipif(not TESTS, reason="no smbtorture here")
@pytest.mark.parametrize("test", TESTS)
def test_smbtorture(outcomes, test):
    name, chosen = outcomes
    outcome = chosen[test].result()
    known = torture.KnownFailures(name).reason(test)
    if outcome.state == "skip":
        pytest.skip(outcome.reason)
    if outcome.state == "success":
        assert known is None, f"{test} passes now: delete it from the known failures ({known})"
    elif known:
        pytest.xfail(known)
    else:
        pytest.fail(f"{test}: {outcome.state}: {outcome.reason}\n{outcome.out[-3000:]}", pytrace=False)


@pytest.mark.skipif(not TESTS, reason="no smbtorture here")
def test_known_failures_exist(kind):
    """A name in the list that is no test hides nothing and means nothing."""
    assert torture.KnownFailures(kind.name).unused(TESTS) == []
