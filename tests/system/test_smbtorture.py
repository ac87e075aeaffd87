"""Samba's smbtorture. What fails is listed with its reason; an unlisted failure fails, and so does a listed pass."""

import shutil

import pytest

from harness import torture

TESTS = [test for suite in torture.suites() for test in torture.tests_of(suite)] if shutil.which("smbtorture") else []


@pytest.fixture(scope="module")
def outcomes(kind, scratch, request):
    """(the server's name, what comes of each test that was chosen)"""
    items = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    with torture.environment(kind, scratch / "server") as server:
        with torture.running(server, [item.callspec.params["test"] for item in items]) as outcomes:
            yield server.name, outcomes
        assert server.is_running(), f"the server ended: {server.output()[-2000:]}"
        assert "panicked at" not in server.output(), server.log
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


def test_known_failures_say_what_windows_does():
    known = torture.KnownFailures("causeway")
    assert [name for name, reason in (known.reasons | known.newer).items() if "Windows" not in reason] == []
