"""Samba's smbtorture. What fails is listed with its reason; an unlisted failure fails, and so does a listed pass."""

import shutil

import pytest

from harness import torture

SUITES = torture.suites() if shutil.which("smbtorture") else []
TESTS = [test for suite in SUITES for test in torture.tests_of(suite)]


@pytest.fixture(scope="module")
def tortured(kind, scratch):
    """A server with a share for each suite."""
    server = kind(scratch / "server", shares=[suite.removeprefix("smb2.") for suite in SUITES]).start()
    yield server
    assert server.is_running(), f"the server ended: {server.said()[-2000:]}"
    assert "panicked at" not in server.said(), server.log
    server.stop()


@pytest.mark.skipif(not TESTS, reason="no smbtorture here")
@pytest.mark.parametrize("test", TESTS)
def test_smbtorture(tortured, test):
    outcome = torture.run_test(tortured, test, test.split(".")[1])
    known = torture.KnownFailures(tortured.name).reason(test)
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
