"""Byte-range locks, waiting, and CANCEL (MS-SMB2 3.3.5.14, 3.3.5.16)."""

import struct

import pytest
from smbprotocol.header import Commands

from harness import protocol as p
from harness.protocol import Client

SHARED, EXCLUSIVE, UNLOCK, AT_ONCE = 1, 2, 4, 16


@pytest.fixture
def two(server):
    """The same file open in two connections."""
    with Client(server) as a, Client(server) as b:
        first, second = a.open("locked"), b.open("locked")
        first.write(b"0123456789" * 100)
        yield first, second


def test_exclusive_excludes(two):
    mine, theirs = two
    mine.lock((0, 10, EXCLUSIVE | AT_ONCE))
    theirs.lock((5, 10, EXCLUSIVE | AT_ONCE), status=p.LOCK_NOT_GRANTED)
    theirs.lock((5, 10, SHARED | AT_ONCE), status=p.LOCK_NOT_GRANTED)
    theirs.lock((10, 10, EXCLUSIVE | AT_ONCE))
    theirs.read(10, status=p.FILE_LOCK_CONFLICT)
    theirs.write(b"x", 9, status=p.FILE_LOCK_CONFLICT)
    assert mine.read(10) == b"0123456789"
    mine.lock((0, 10, UNLOCK))
    assert theirs.read(10) == b"0123456789"


def test_shared_shares(two):
    mine, theirs = two
    mine.lock((0, 10, SHARED | AT_ONCE))
    theirs.lock((0, 10, SHARED | AT_ONCE))
    theirs.lock((0, 10, EXCLUSIVE | AT_ONCE), status=p.LOCK_NOT_GRANTED)
    assert theirs.read(10) == b"0123456789"
    mine.write(b"x", status=p.FILE_LOCK_CONFLICT)


def test_unlock_of_what_is_not_locked(two):
    mine, _ = two
    mine.lock((0, 10, UNLOCK), status=p.RANGE_NOT_LOCKED)
    mine.lock((0, 10, EXCLUSIVE | AT_ONCE))
    mine.lock((0, 9, UNLOCK), status=p.RANGE_NOT_LOCKED)


def test_several_elements_are_all_or_nothing(two):
    mine, theirs = two
    theirs.lock((50, 1, EXCLUSIVE | AT_ONCE))
    mine.lock((0, 10, EXCLUSIVE | AT_ONCE), (50, 1, EXCLUSIVE | AT_ONCE), status=p.LOCK_NOT_GRANTED)
    theirs.lock((0, 10, EXCLUSIVE | AT_ONCE))


def test_close_unlocks(two):
    mine, theirs = two
    mine.lock((0, 10, EXCLUSIVE | AT_ONCE))
    mine.close()
    theirs.lock((0, 10, EXCLUSIVE | AT_ONCE))


def pending(file, *elements):
    """Asks for a lock that has to wait; returns the request once its interim answer is there."""
    request = file.lock(*elements, wait=False)
    file.client.receive(request, p.PENDING, wait=False)
    return request


def test_a_waiting_lock_is_granted(two):
    """MS-SMB2 3.3.4.2: an interim answer first, the final one when the lock comes free."""
    mine, theirs = two
    mine.lock((0, 10, EXCLUSIVE | AT_ONCE))
    request = pending(theirs, (0, 10, EXCLUSIVE))
    request.response_event.clear()
    theirs.client.echo()
    assert not request.response_event.is_set(), "granted while it was held"
    # The library forgets a request at its interim answer; the final one may come before the unlock is answered.
    theirs.client.connection.outstanding_requests[request.message["message_id"].get_value()] = request
    mine.lock((0, 10, UNLOCK))
    theirs.client.receive(request)
    mine.read(10, status=p.FILE_LOCK_CONFLICT)


def test_cancel_of_a_waiting_lock(two):
    """MS-SMB2 3.3.5.16: answered once, with STATUS_CANCELLED, and the lock is not taken."""
    mine, theirs = two
    mine.lock((0, 10, EXCLUSIVE | AT_ONCE))
    request = pending(theirs, (0, 10, EXCLUSIVE))
    request.response_event.clear()
    theirs.client.connection.outstanding_requests[request.message["message_id"].get_value()] = request
    request.cancel()
    theirs.client.receive(request, p.CANCELLED)
    theirs.client.echo()
    mine.lock((0, 10, UNLOCK))
    mine.lock((0, 10, EXCLUSIVE | AT_ONCE))


def test_cancel_of_nothing(two):
    """A CANCEL for an unknown message is ignored: no answer, no harm."""
    _, theirs = two
    client = theirs.client
    request = client.send(Commands.SMB2_ECHO, struct.pack("<HH", 4, 0))
    client.receive(request)
    client.connection.outstanding_requests[request.message["message_id"].get_value()] = request
    request.cancel()
    client.echo()


def test_a_closed_connection_gives_up_waiting(server, two):
    mine, _ = two
    mine.lock((0, 10, EXCLUSIVE | AT_ONCE))
    third = Client(server)
    waiting = third.open("locked")
    pending(waiting, (0, 10, EXCLUSIVE))
    third.abort()
    mine.lock((0, 10, UNLOCK))
    mine.lock((0, 10, EXCLUSIVE | AT_ONCE))
