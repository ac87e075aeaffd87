"""SMB2 by hand on a socket, for messages that no library would send."""

import os
import struct

NEGOTIATE, SESSION_SETUP, LOGOFF, TREE_CONNECT, CREATE, READ, WRITE, ECHO = 0, 1, 2, 3, 5, 8, 9, 13


def header(command, message_id=0, *, session=0, tree=0, flags=0, charge=1, credits=1, following=0, size=64, magic=b"\xfeSMB"):
    """MS-SMB2 2.2.1.2."""
    return struct.pack("<4sHHIHHIIQIIQ16s", magic, size, charge, 0, command, credits, flags, following, message_id, 0xFEFF, tree,
                       session, bytes(16))


def frame(message, length=None):
    """MS-SMB2 2.1: a zero byte and three of length; `length` may lie."""
    return struct.pack(">I", len(message) if length is None else length) + message


def negotiate(dialects=(0x0202, 0x0210, 0x0300, 0x0302), contexts=b"", count=None, guid=None, security=1):
    """MS-SMB2 2.2.3. `contexts` are (count, bytes) for 3.1.1."""
    body = struct.pack("<HHHHI", 36, len(dialects) if count is None else count, security, 0, 0x7F) + (guid or os.urandom(16))
    names = b"".join(struct.pack("<H", d) for d in dialects)
    if not contexts:
        return header(NEGOTIATE) + body + bytes(8) + names
    at = 64 + 36 + len(names)
    padding = bytes(-at % 8)
    return header(NEGOTIATE) + body + struct.pack("<IHH", at + len(padding), contexts[0], 0) + names + padding + contexts[1]


def context(kind, data, length=None):
    """A negotiate context with its padding (MS-SMB2 2.2.3.1)."""
    return struct.pack("<HHI", kind, len(data) if length is None else length, 0) + data + bytes(-len(data) % 8)


def preauth(algorithms=(1,), salt=32):
    return context(1, struct.pack("<HH", len(algorithms), salt) + b"".join(struct.pack("<H", a) for a in algorithms) + bytes(salt))


def smb1_negotiate(*dialects):
    """The SMB1 NEGOTIATE with which older clients begin (MS-SMB2 3.3.5.3)."""
    names = b"".join(b"\2" + d.encode() + b"\0" for d in dialects)
    return struct.pack("<4sBIBHHQHHHHH", b"\xffSMB", 0x72, 0, 0x18, 0xC853, 0, 0, 0, 0xFFFF, 1, 0, 0) + b"\0" + struct.pack("<H", len(names)) + names


class Closed(Exception):
    """The server ended the connection."""


class Wire:
    """One TCP connection."""

    def __init__(self, server, timeout=10):
        self.socket = server.connect(timeout)
        self.message_id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """Sends bytes as they are; a server that has gone already is no error here."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def receive(self):
        """The next message without its length; Closed when the server ended the connection."""
        size = struct.unpack(">I", self._exactly(4))[0]
        return self._exactly(size & 0xFFFFFF)

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                raise Closed
            data += more
        return data

    def exchange(self, message):
        self.send(frame(message))
        return self.receive()

    def is_closed(self, timeout=10):
        """Whether the server ends the connection, whatever it says before."""
        self.socket.settimeout(timeout)
        try:
            while True:
                self.receive()
        except Closed:
            return True
        except TimeoutError:
            return False

    def negotiated(self):
        """Negotiates 3.0.2; returns self."""
        reply = self.exchange(negotiate())
        assert status(reply) == 0, hex(status(reply))
        self.message_id = 1
        return self


def status(message):
    return struct.unpack_from("<I", message, 8)[0]


def dialect(message):
    return struct.unpack_from("<H", message, 64 + 4)[0]
