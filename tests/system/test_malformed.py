"""Hostile and broken bytes. Each ends at most its own connection; a client beside it never notices."""

import contextlib
import os
import random
import struct
import time

import pytest

from harness import protocol as p
from harness import wire
from harness.programs import until
from harness.protocol import Client
from harness.wire import Wire, frame, header, negotiate


@pytest.fixture(scope="module")
def bystander(server):
    """A client that is connected the whole time, with a file open."""
    with Client(server) as client:
        with client.open("bystander") as f:
            f.write(b"still here")
            yield f


@pytest.fixture(autouse=True)
def other_clients_are_served(server, bystander):
    """After each test: the bystander's file is there, and a new client is served."""
    yield
    assert bystander.read(100) == b"still here"
    with Client(server) as other:
        other.echo()
    assert server.is_running() and "panicked at" not in server.output()


PREFIXES = {
    "a type that is not a message": b"\x81\0\0\x44" + bytes(68),
    "only zero length": bytes(4) + b"\xff" * 100,
    "shorter than a header": frame(b"\xfeSMB" + bytes(30)),
    "sixteen mebibytes announced": frame(b"\xfeSMB" + bytes(60), 0xFFFFFF),
    "a header of another size": frame(header(0, size=63) + negotiate()[64:]),
    "garbage": frame(os.urandom(200)),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(64),
    "tls": bytes.fromhex("160301020001000001fc0303") + os.urandom(500),
    "a transform before a session": frame(b"\xfdSMB" + bytes(16) + bytes(16) + struct.pack("<IHHQ", 64, 0, 1, 0x1234) + bytes(64)),
    "compression not negotiated": frame(b"\xfcSMB" + struct.pack("<IHHI", 100, 1, 0, 0) + bytes(100)),
    "a command before negotiate": frame(header(wire.CREATE) + bytes(57)),
    "echo as a reply": frame(header(wire.ECHO, flags=1) + struct.pack("<HH", 4, 0)),
}


@pytest.mark.smbd_differs("it waits for the length that it reads", only=["http", "tls"])
@pytest.mark.parametrize("data", PREFIXES.values(), ids=PREFIXES.keys())
def test_first_bytes(server, data):
    """MS-SMB2 3.3.5.2: a message that is no message ends the connection."""
    with Wire(server) as w:
        w.send(data)
        if b"\xff\xff\xff" in data[:4]:
            w.socket.shutdown(1)
        assert w.is_closed()


def test_cut_anywhere(server):
    """The connection ends after each possible number of bytes of a NEGOTIATE."""
    whole = frame(negotiate())
    for count in range(0, len(whole), 3):
        with Wire(server) as w:
            w.send(whole[:count])


def test_byte_by_byte(server):
    """TCP promises bytes, not messages."""
    with Wire(server) as w:
        w.socket.setsockopt(6, 1, 1)
        for byte in frame(negotiate()):
            w.send(bytes([byte]))
        assert wire.status(w.receive()) == 0


def test_many_messages_in_one_segment(server):
    with Wire(server) as w:
        w.negotiated()
        echo = lambda n: frame(header(wire.ECHO, n, credits=16) + struct.pack("<HH", 4, 0))
        w.send(echo(1))
        granted = struct.unpack_from("<H", w.receive(), 14)[0]
        assert granted >= 2
        w.send(b"".join(echo(2 + n) for n in range(granted)))
        answered = sorted(struct.unpack_from("<Q", w.receive(), 24)[0] for _ in range(granted))
        assert answered == list(range(2, 2 + granted))


NEGOTIATES = {
    "no dialects": negotiate(dialects=()),
    "more dialects than bytes": negotiate(count=5000),
    "65535 dialects": negotiate(count=65535),
    "unknown dialects": negotiate(dialects=(0x9999, 0x0101)),
    "3.1.1 without contexts": negotiate(dialects=(0x0311,)),
    "3.1.1 without preauth": negotiate(dialects=(0x0311,), contexts=(1, wire.context(2, struct.pack("<HH", 1, 2)))),
    "preauth with no algorithm": negotiate(dialects=(0x0311,), contexts=(1, wire.preauth(algorithms=()))),
    "preauth with an unknown algorithm": negotiate(dialects=(0x0311,), contexts=(1, wire.preauth(algorithms=(77,)))),
    "two preauths": negotiate(dialects=(0x0311,), contexts=(2, wire.preauth() + wire.preauth())),
    "a context past the end": negotiate(dialects=(0x0311,), contexts=(2, wire.preauth() + wire.context(2, b"ab", length=9999))),
    "more contexts than there are": negotiate(dialects=(0x0311,), contexts=(900, wire.preauth())),
    "contexts past the end": negotiate(dialects=(0x0311,), contexts=(1, wire.preauth()))[:92] + struct.pack("<I", 0xFFFFFF00) + negotiate(dialects=(0x0311,), contexts=(1, wire.preauth()))[96:],
    "a salt longer than the context": negotiate(dialects=(0x0311,), contexts=(1, wire.context(1, struct.pack("<HHH", 1, 60000, 1)))),
}


@pytest.mark.smbd_differs("it takes the first", only=["two preauths"])
@pytest.mark.parametrize("message", NEGOTIATES.values(), ids=NEGOTIATES.keys())
def test_negotiate(server, message):
    """MS-SMB2 3.3.5.4: refused with a status, or the connection ends; never accepted, never silent."""
    with Wire(server) as w:
        try:
            reply = w.exchange(message)
        except wire.Closed:
            return
        assert wire.status(reply) in (p.INVALID_PARAMETER, p.NOT_SUPPORTED, 0xC05D0000)


def test_unknown_negotiate_contexts_are_ignored(server):
    """MS-SMB2 3.3.5.4: the server MUST ignore a context that it does not know."""
    contexts = wire.context(0x4242, b"whatever") + wire.preauth() + wire.context(0x0100, b"\x93\xad\x25\x50\x9c\xb4\x11\xe7\xb4\x23\x83\xde\x96\x8b\xcd\x7c")
    with Wire(server) as w:
        reply = w.exchange(negotiate(dialects=(0x0311,), contexts=(3, contexts)))
        assert (wire.status(reply), wire.dialect(reply)) == (0, 0x0311)


def test_negotiate_twice(server):
    """MS-SMB2 3.3.5.4: a second NEGOTIATE ends the connection."""
    with Wire(server) as w:
        w.negotiated()
        w.send(frame(negotiate()))
        assert w.is_closed()


def test_smb1_with_smb2_dialects(server):
    """MS-SMB2 3.3.5.3.1: "SMB 2.???" is answered with the wildcard, after which the client negotiates for real."""
    with Wire(server) as w:
        reply = w.exchange(wire.smb1_negotiate("NT LM 0.12", "SMB 2.002", "SMB 2.???"))
        assert reply[:4] == b"\xfeSMB" and wire.dialect(reply) == 0x02FF
        message = bytearray(negotiate())
        message[24:32] = struct.pack("<Q", 1)
        reply = w.exchange(bytes(message))
        assert (wire.status(reply), wire.dialect(reply)) == (0, 0x0302)


def test_smb1_with_2_002_only(server):
    """MS-SMB2 3.3.5.3.2."""
    with Wire(server) as w:
        reply = w.exchange(wire.smb1_negotiate("NT LM 0.12", "SMB 2.002"))
        assert reply[:4] == b"\xfeSMB" and wire.dialect(reply) == 0x0202


def test_smb1_alone_is_refused(server):
    """No SMB1: the connection ends, or no dialect is chosen."""
    with Wire(server) as w:
        try:
            reply = w.exchange(wire.smb1_negotiate("PC NETWORK PROGRAM 1.0", "NT LM 0.12"))
        except wire.Closed:
            return
        assert reply[:4] == b"\xffSMB" and struct.unpack_from("<H", reply, 33)[0] == 0xFFFF


@pytest.mark.parametrize("names", [[], ["x" * 60000], ["SMB 2.???"] * 2000, ["\x7f"]], ids=["none", "long", "many", "odd"])
def test_smb1_oddities(server, names):
    with Wire(server) as w:
        w.send(frame(wire.smb1_negotiate(*names)))
        with contextlib.suppress(OSError):  # it may have ended the connection already
            w.socket.shutdown(1)
        assert w.is_closed()


def session_setup(token, message_id=1, session=0, flags=0, offset=88, length=None):
    body = struct.pack("<HBBIIHHQ", 25, flags, 1, 0, 0, offset, len(token) if length is None else length, 0)
    return header(wire.SESSION_SETUP, message_id, session=session, credits=8) + body + token


# A negTokenInit with NTLM's NEGOTIATE_MESSAGE inside (RFC 4178 4.2.1, MS-NLMP 2.2.1.1).
NTLM1 = b"NTLMSSP\0" + struct.pack("<II", 1, 0xE2088297) + bytes(16) + b"\x06\x01\xb1\x1d\0\0\0\x0f"


def der(tag, value):
    size = len(value)
    length = bytes([size]) if size < 128 else bytes([0x82]) + struct.pack(">H", size)
    return bytes([tag]) + length + value


def neg_token_init(token):
    mechanisms = der(0xA0, der(0x30, der(6, bytes.fromhex("2b06010401823702020a"))))
    return der(0x60, der(6, bytes.fromhex("2b0601050502")) + der(0xA0, der(0x30, mechanisms + der(0xA2, der(4, token)))))


def neg_token_response(token):
    return der(0xA1, der(0x30, der(0xA2, der(4, token))))


GOOD = neg_token_init(NTLM1)
TOKENS = {
    "empty": b"",
    "garbage": os.urandom(300),
    "zeros": bytes(4000),
    "cut": GOOD[: len(GOOD) // 2],
    "a length of four gibibytes": b"\x60\x84\xff\xff\xff\xff" + GOOD[2:],
    "an indefinite length": b"\x60\x80" + GOOD[2:],
    "nested a thousand deep": b"\x30\x84\0\0\xff\xff" * 1000,
    "no mechanism we know": GOOD.replace(bytes.fromhex("2b06010401823702020a"), bytes.fromhex("2b06010401823702ffff")),
    "ntlm of a wrong type": neg_token_init(NTLM1.replace(b"\0\x01\0\0\0", b"\0\x09\0\0\0", 1)),
    "authenticate first": neg_token_init(b"NTLMSSP\0" + struct.pack("<I", 3) + bytes(60)),
    "raw ntlm, cut": NTLM1[:12],
}


@pytest.mark.smbd_differs("it finds the NTLM message all the same", only=["cut"])
@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS.keys())
def test_session_setup(server, token):
    """Garbage in SPNEGO and NTLM is a refused logon, or the end of the connection."""
    with Wire(server) as w:
        w.negotiated()
        try:
            reply = w.exchange(session_setup(token))
        except wire.Closed:
            return
        assert wire.status(reply) & 0xC0000000 == 0xC0000000, hex(wire.status(reply))
        assert wire.status(reply) != 0xC0000016


def ntlm_authenticate(changes):
    """An AUTHENTICATE_MESSAGE whose six fields may point anywhere (MS-NLMP 2.2.1.3)."""
    payload, fields, at = b"", b"", 88
    contents = [bytes(24), bytes(16) + os.urandom(60), b"", "alice".encode("utf-16-le"), b"", bytes(16)]
    for number, content in enumerate(contents):
        length, offset = changes.get(number, (len(content), at + len(payload)))
        fields += struct.pack("<HHI", length, length, offset)
        payload += content
    return b"NTLMSSP\0" + struct.pack("<I", 3) + fields + struct.pack("<I", 0xE2888215) + bytes(8) + bytes(16) + payload


AUTHENTICATES = {
    "a proof that is wrong": {},
    "a response past the end": {1: (60000, 88)},
    "an offset past the end": {1: (76, 0xFFFFFFF0)},
    "a user past the end": {3: (10, 60000)},
    "an odd user": {3: (9, 188)},
    "a response of 15 bytes": {1: (15, 112)},
    "a response of 16 bytes": {1: (16, 112)},
    "a response of 24 bytes (NTLMv1)": {1: (24, 112)},
    "a key of 3 bytes": {5: (3, 100)},
    "all of it empty": {n: (0, 0) for n in range(6)},
}


@pytest.mark.parametrize("changes", AUTHENTICATES.values(), ids=AUTHENTICATES.keys())
def test_ntlm_authenticate(server, changes):
    with Wire(server) as w:
        w.negotiated()
        challenge = w.exchange(session_setup(GOOD))
        assert wire.status(challenge) == 0xC0000016, "STATUS_MORE_PROCESSING_REQUIRED"
        session = struct.unpack_from("<Q", challenge, 40)[0]
        try:
            reply = w.exchange(session_setup(neg_token_response(ntlm_authenticate(changes)), 2, session))
        except wire.Closed:
            return
        assert wire.status(reply) & 0xC0000000 == 0xC0000000 and wire.status(reply) != 0xC0000016


@pytest.mark.parametrize("offset, length", [(88, 60000), (0, 40), (60000, 40), (87, 40), (88, 65535)])
def test_session_setup_buffer(server, offset, length):
    """The security buffer lies outside of the message."""
    with Wire(server) as w:
        w.negotiated()
        w.send(frame(session_setup(GOOD[:40], offset=offset, length=length)))
        try:
            assert wire.status(w.receive()) & 0xC0000000 == 0xC0000000
        except wire.Closed:
            pass


@pytest.mark.smbd_differs("it has no such bound")
def test_session_setups_without_end(server):
    """A client that begins logons and never ends one: refused or cut off, not collected for ever."""
    with Wire(server) as w:
        w.negotiated()
        for number in range(2000):
            try:
                reply = w.exchange(session_setup(GOOD, 1 + number))
            except wire.Closed:
                return
            if wire.status(reply) not in (0xC0000016,):
                return
        pytest.fail("2,000 unfinished logons on one connection were taken")


def test_message_ids_outside_of_the_window(server):
    """MS-SMB2 3.3.5.2.3: the connection ends."""
    with Wire(server) as w:
        w.negotiated()
        w.send(frame(header(wire.ECHO, 1 << 40) + struct.pack("<HH", 4, 0)))
        assert w.is_closed()


def test_a_message_id_twice(server):
    with Wire(server) as w:
        w.negotiated()
        echo = frame(header(wire.ECHO, 1) + struct.pack("<HH", 4, 0))
        w.send(echo)
        w.receive()
        w.send(echo)
        assert w.is_closed()


@pytest.mark.parametrize("following", [1, 63, 65, 4, 72, 1 << 30, 0xFFFFFFF8, 8])
def test_next_command(server, following):
    """MS-SMB2 3.3.5.2.7: NextCommand that is not aligned, or points outside, or into itself."""
    with Wire(server) as w:
        w.negotiated()
        w.send(frame(header(wire.ECHO, 1, following=following) + struct.pack("<HH", 4, 0)))
        w.socket.settimeout(10)
        try:
            while True:
                assert wire.status(w.receive()) != 0
        except wire.Closed:
            pass
        except TimeoutError:
            pytest.fail("neither an answer nor an end")


def test_commands_without_a_session(server):
    """MS-SMB2 3.3.5.2.9: STATUS_USER_SESSION_DELETED, for every command that needs one."""
    with Wire(server) as w:
        w.negotiated()
        for number, command in enumerate([2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15, 16, 17]):
            size = {2: 4, 3: 9, 4: 4, 5: 57, 6: 24, 7: 24, 8: 49, 9: 49, 10: 48, 11: 57, 14: 33, 15: 32, 16: 41, 17: 33}[command]
            try:
                reply = w.exchange(header(command, 1 + number, session=0x99, tree=1, credits=4) + struct.pack("<H", size) + bytes(size))
            except wire.Closed:
                pytest.fail(f"command {command} ended the connection")
            assert wire.status(reply) in (p.USER_SESSION_DELETED, p.ACCESS_DENIED), (command, hex(wire.status(reply)))


def test_unknown_commands(server):
    with Wire(server) as w:
        w.negotiated()
        w.send(frame(header(0x4242, 1) + bytes(100)))
        try:
            assert wire.status(w.receive()) & 0xC0000000 == 0xC0000000
        except wire.Closed:
            pass


BODIES = {
    "create, a name past the end": (5, struct.pack("<HBBIQQIIIIIHHII", 57, 0, 0, 2, 0, 0, p.ALL, 0, 7, 3, 0, 120, 60000, 0, 0) + b"a\0"),
    "create, an odd name": (5, struct.pack("<HBBIQQIIIIIHHII", 57, 0, 0, 2, 0, 0, p.ALL, 0, 7, 3, 0, 120, 3, 0, 0) + b"a\0b"),
    "create, a name in the header": (5, struct.pack("<HBBIQQIIIIIHHII", 57, 0, 0, 2, 0, 0, p.ALL, 0, 7, 3, 0, 8, 20, 0, 0) + b"a\0"),
    "create, contexts past the end": (5, struct.pack("<HBBIQQIIIIIHHII", 57, 0, 0, 2, 0, 0, p.ALL, 0, 7, 3, 0, 120, 2, 128, 60000) + b"a\0" + bytes(6)),
    "create, a context that loops": (5, struct.pack("<HBBIQQIIIIIHHII", 57, 0, 0, 2, 0, 0, p.ALL, 0, 7, 3, 0, 120, 2, 128, 32) + b"a\0" + bytes(6) + struct.pack("<IHHHHI", 0xFFFFFFF8, 16, 4, 0, 24, 8) + b"MxAc" + bytes(12)),
    "create, wrong structure size": (5, struct.pack("<H", 58) + bytes(60)),
    "create, cut": (5, struct.pack("<HBBI", 57, 0, 0, 2)),
    "write, data past the end": (9, struct.pack("<HHIQ", 49, 112, 1 << 20, 0) + bytes(16) + bytes(16) + b"x"),
    "write, data in the header": (9, struct.pack("<HHIQ", 49, 4, 16, 0) + bytes(16) + bytes(16) + b"x"),
    "read, four gibibytes": (8, struct.pack("<HBBIQ", 49, 0x50, 0, 0xFFFFFFFF, 0) + bytes(16) + bytes(16) + b"\0"),
    "read, an rdma channel over tcp": (8, struct.pack("<HBBIQ", 49, 0x50, 0, 4096, 0) + bytes(16) + struct.pack("<IIIHH", 0, 1, 0, 112, 16) + bytes(16)),
    "query directory, a pattern past the end": (14, struct.pack("<HBBI", 33, 37, 0, 0) + bytes(16) + struct.pack("<HHI", 96, 60000, 65536) + b"*\0"),
    "query info, input past the end": (16, struct.pack("<HBBIHHIII", 41, 2, 32, 100, 104, 0, 1 << 24, 0, 0) + bytes(16)),
    "set info, past the end": (17, struct.pack("<HBBIHHI", 33, 1, 10, 1 << 24, 96, 0, 0) + bytes(16) + b"x"),
    "ioctl, input past the end": (11, struct.pack("<HHI", 57, 0, 0x00140204) + p.ANY + struct.pack("<IIIIIIII", 120, 1 << 28, 0, 0, 0, 24, 1, 0)),
    "lock, more locks than bytes": (10, struct.pack("<HHI", 48, 60000, 0) + bytes(16) + bytes(24)),
    "lock, none": (10, struct.pack("<HHI", 48, 0, 0) + bytes(16) + bytes(24)),
    "tree connect, a path past the end": (3, struct.pack("<HHHH", 9, 0, 72, 60000) + b"\\\0"),
    "echo, wrong size": (13, struct.pack("<HH", 5, 0)),
    "negotiate again": (0, negotiate()[64:]),
    "oplock break for nothing": (18, struct.pack("<HBBI", 24, 1, 0, 0) + bytes(16)),
    "change notify, no directory": (15, struct.pack("<HHI", 32, 0, 65536) + bytes(16) + struct.pack("<II", 1, 0)),
}


@pytest.mark.parametrize("command, body", BODIES.values(), ids=BODIES.keys())
def test_authenticated_requests(server, command, body):
    """A user who is logged on gets a status too, or loses this connection."""
    client = Client(server)
    try:
        client.call(command, body)
    except p.Status as refused:
        assert refused.got != 0
    except Exception as ended:  # noqa: BLE001 - what the library raises when the connection has gone
        # A refusal that cannot be signed has the request's own signature, which this library takes for forged.
        assert any(word in str(ended).lower() for word in ("closed", "reset", "signature")), ended
    else:
        pytest.fail("it was taken")
    finally:
        client.abort()


def test_random_mutations(server):
    """Hundreds of valid requests with a few bytes changed, each seed its own connection."""
    for seed in range(40):
        rng = random.Random(seed)
        with Wire(server, timeout=2) as w:
            messages = [negotiate(dialects=(0x0311,), contexts=(1, wire.preauth())), session_setup(GOOD), session_setup(neg_token_response(ntlm_authenticate({})), 2)]
            for message in messages:
                changed = bytearray(message)
                if rng.random() < 0.7:
                    for _ in range(rng.randrange(1, 6)):
                        changed[rng.randrange(4, len(changed))] = rng.randrange(256)
                w.send(frame(bytes(changed)))
                try:
                    w.receive()
                except (wire.Closed, TimeoutError):
                    break


def test_idle_connections(server):
    """Two hundred clients that connect and send nothing, or a part of a message, delay no other."""
    idle = [server.connect() for _ in range(200)]
    for number, connection in enumerate(idle):
        connection.sendall(frame(negotiate())[: number % 50])
    began = time.monotonic()
    with Client(server) as client:
        client.echo()
    assert time.monotonic() - began < 10
    for connection in idle:
        connection.close()


def test_a_client_that_does_not_read(server):
    """Responses that a client does not read are bounded, and delay no other client."""
    with Client(server) as big:
        with big.open("unread") as f:
            f.write(bytes(1 << 20))
            file_id = f.id
            client = Client(server)
            client.connection.echo(sid=client.session.session_id, credit_request=512)
            stuck = client.open("unread")
            client.connection.transport._sock.setsockopt(1, 8, 4096)
            body = struct.pack("<HBBIQ", 49, 0x50, 0, 1 << 20, 0) + stuck.id + struct.pack("<IIIHH", 0, 0, 0, 0, 0) + b"\0"
            client.connection.verify_signature = lambda *_, **__: time.sleep(1)
            window = client.connection.sequence_window
            for _ in range(min(24, (window["high"] - window["low"]) // 16)):
                client.send(8, body, 1 << 20)
            assert f.read(1 << 20) == bytes(1 << 20)
            assert f.id == file_id
            client.abort()


def test_memory_is_bounded(server):
    """What all of the above cost: the server's resident memory stays far below a gibibyte."""
    def resident():
        with open(f"/proc/{server.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    until(lambda: resident() < 700_000, timeout=10, what="resident memory below 700 MB")
