"""Python's smbprotocol, driven message by message, so that a test sees statuses and bytes and not a library's view.

Replies are returned as bytes from the start of the SMB2 message's body; offsets inside them count from the header, as
the specification does, so `HEADER` is taken off.
"""

import struct
import uuid

from smbprotocol.connection import Connection
from smbprotocol.exceptions import SMBResponseException
from smbprotocol.header import Commands
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

from .programs import Failed

HEADER = 64
ANY = b"\xff" * 16
TIMEOUT_SECONDS = 20

# MS-ERREF 2.3.1
SUCCESS = 0
PENDING = 0x00000103
BUFFER_OVERFLOW = 0x80000005
NO_MORE_FILES = 0x80000006
INVALID_PARAMETER = 0xC000000D
INVALID_INFO_CLASS = 0xC0000003
INFO_LENGTH_MISMATCH = 0xC0000004
INVALID_DEVICE_REQUEST = 0xC0000010
END_OF_FILE = 0xC0000011
ACCESS_DENIED = 0xC0000022
BUFFER_TOO_SMALL = 0xC0000023
OBJECT_NAME_INVALID = 0xC0000033
OBJECT_NAME_NOT_FOUND = 0xC0000034
OBJECT_NAME_COLLISION = 0xC0000035
OBJECT_PATH_NOT_FOUND = 0xC000003A
SHARING_VIOLATION = 0xC0000043
FILE_LOCK_CONFLICT = 0xC0000054
LOCK_NOT_GRANTED = 0xC0000055
DELETE_PENDING = 0xC0000056
RANGE_NOT_LOCKED = 0xC000007E
FILE_IS_A_DIRECTORY = 0xC00000BA
NOT_SUPPORTED = 0xC00000BB
BAD_NETWORK_NAME = 0xC00000CC
NETWORK_NAME_DELETED = 0xC00000C9
REQUEST_NOT_ACCEPTED = 0xC00000D0
DIRECTORY_NOT_EMPTY = 0xC0000101
NOT_A_DIRECTORY = 0xC0000103
CANCELLED = 0xC0000120
CANNOT_DELETE = 0xC0000121
FILE_CLOSED = 0xC0000128
USER_SESSION_DELETED = 0xC0000203

# MS-SMB2 2.2.13.1.1, 2.2.13
READ, WRITE, DELETE, ALL = 0x00120089, 0x00120116, 0x00010000, 0x001F01FF
# What the owner of a share lets its users do with what lies there: all but changing who may do what.
CHANGE = READ | WRITE | DELETE | 0xA0
SHARE_NONE, SHARE_ALL = 0, 7
SUPERSEDE, OPEN, CREATE, OPEN_IF, OVERWRITE, OVERWRITE_IF = range(6)
DIRECTORY, NON_DIRECTORY, DELETE_ON_CLOSE = 0x1, 0x40, 0x1000
FILE, FILE_SYSTEM, SECURITY = 1, 2, 3


class Status(Failed):
    """The server answered with another status than the test asked for."""

    def __init__(self, got, wanted, what):
        super().__init__(f"{what}: status {got:#010x}, expected {wanted:#010x}")
        self.got = got


class Raw:
    """A message body of our own making, as smbprotocol's Connection wants to have one."""

    def __init__(self, command, body, payload=0):
        """`payload` is how many bytes it or its answer carries: MS-SMB2 3.1.5.2 charges a credit per 64 KiB."""
        self.COMMAND, self.body, self.charge = command, body, max(payload - 1, 0) // 65536 + 1

    def __len__(self):
        return len(self.body)

    def pack(self):
        return self.body


class Channel(Connection):
    """smbprotocol's connection, charging raw messages as they say."""

    def _calculate_credit_charge(self, message):
        if isinstance(message, Raw):
            return message.charge if self.supports_multi_credit else 0
        return super()._calculate_credit_charge(message)


class File:
    """An open on the server."""

    def __init__(self, client, file_id, reply):
        self.client, self.id, self.reply = client, file_id, reply

    @property
    def action(self):
        return struct.unpack_from("<I", self.reply, 4)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.id:
            self.close()

    def close(self, status=SUCCESS):
        body = struct.pack("<HHI", 24, 0, 0) + self.id
        self.client.call(Commands.SMB2_CLOSE, body, status)
        self.id = None

    def read(self, length, offset=0, status=SUCCESS, minimum=0):
        body = struct.pack("<HBBIQ", 49, 0x50, 0, length, offset) + self.id + struct.pack("<IIIHH", minimum, 0, 0, 0, 0) + b"\0"
        reply = self.client.call(Commands.SMB2_READ, body, status, payload=length)
        if status not in (SUCCESS, BUFFER_OVERFLOW):
            return None
        start, size = struct.unpack_from("<xxBxI", reply)
        return reply[start - HEADER : start - HEADER + size]

    def write(self, data, offset=0, status=SUCCESS):
        body = struct.pack("<HHIQ", 49, HEADER + 48, len(data), offset) + self.id + struct.pack("<IIHHI", 0, 0, 0, 0, 0) + data
        reply = self.client.call(Commands.SMB2_WRITE, body, status, payload=len(data))
        return struct.unpack_from("<I", reply, 4)[0] if status == SUCCESS else None

    def flush(self):
        self.client.call(Commands.SMB2_FLUSH, struct.pack("<HHI", 24, 0, 0) + self.id)

    def query(self, kind, info_class, status=SUCCESS, length=65536, additional=0, input=b""):
        """QUERY_INFO; returns the information's bytes."""
        body = struct.pack("<HBBIHHIII", 41, kind, info_class, length, HEADER + 40 if input else 0, 0, len(input), additional, 0)
        reply = self.client.call(Commands.SMB2_QUERY_INFO, body + self.id + (input or b"\0"), status, payload=length)
        if status not in (SUCCESS, BUFFER_OVERFLOW):
            return None
        start, size = struct.unpack_from("<HI", reply, 2)
        return reply[start - HEADER : start - HEADER + size]

    def set(self, kind, info_class, data, status=SUCCESS, additional=0):
        body = struct.pack("<HBBIHHI", 33, kind, info_class, len(data), HEADER + 32, 0, additional) + self.id + data
        self.client.call(Commands.SMB2_SET_INFO, body, status, payload=len(data))

    def list(self, pattern="*", info_class=37, flags=0, status=SUCCESS, length=65536):
        """One QUERY_DIRECTORY; returns its entries as bytes, each from its own start."""
        name = pattern.encode("utf-16-le")
        body = struct.pack("<HBBI", 33, info_class, flags, 0) + self.id + struct.pack("<HHI", HEADER + 32, len(name), length) + (name or b"\0")
        reply = self.client.call(Commands.SMB2_QUERY_DIRECTORY, body, status, payload=length)
        if status != SUCCESS:
            return []
        start, size = struct.unpack_from("<HI", reply, 2)
        data, entries = reply[start - HEADER : start - HEADER + size], []
        while data:
            following = struct.unpack_from("<I", data)[0]
            entries.append(data[:following] if following else data)
            data = data[following:] if following else b""
        return entries

    def ioctl(self, code, data=b"", status=SUCCESS, length=65536):
        return self.client.ioctl(self.id, code, data, status, length)

    def lock(self, *elements, status=SUCCESS, wait=True):
        """Each element is (offset, length, flags): 1 shared, 2 exclusive, 4 unlock, 16 fail immediately."""
        body = struct.pack("<HHI", 48, len(elements), 0) + self.id
        body += b"".join(struct.pack("<QQII", offset, length, flags, 0) for offset, length, flags in elements)
        if not wait:
            return self.client.send(Commands.SMB2_LOCK, body)
        return self.client.call(Commands.SMB2_LOCK, body, status)


class Client:
    """One connection, one session, one tree connect."""

    def __init__(self, server, *, share=None, sign=False, encrypt=False, dialect=None, user=None, password=None, guid=None,
                 session=True, ciphers=None, signers=None):
        self.server = server
        self.connection = Channel(guid or uuid.uuid4(), server.host, server.port, require_signing=sign)
        self.connection.connect(dialect=dialect, timeout=TIMEOUT_SECONDS, preferred_encryption_algos=ciphers,
                                preferred_signing_algos=signers)
        self.session = self.tree = None
        if session:
            self.session = Session(self.connection, user or server.user, password or server.password,
                                   require_encryption=encrypt, auth_protocol="ntlm")
            self.session.connect()
            self.tree = self.connect_tree(share or server.share)

    def connect_tree(self, share):
        """MS-SMB2 3.2.4.2.5: with 3.1.1 a TREE_CONNECT is signed, whatever else is not."""
        tree = TreeConnect(self.session, rf"\\{self.server.host}\{share}")
        signing, self.session.signing_required = self.session.signing_required, not self.session.encrypt_data
        tree.connect()
        self.session.signing_required = signing
        return tree

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            self.connection.disconnect(close=True, timeout=TIMEOUT_SECONDS)
        except Exception:  # noqa: BLE001 - the test may have broken this connection on purpose
            self.connection.disconnect(close=False)

    def abort(self):
        """Closes the TCP connection without a word."""
        self.connection.disconnect(close=False)

    def send(self, command, body, payload=0, credits=64):
        """Sends one request; `payload` is what it or its answer carries, for the credit charge."""
        message = Raw(command, body, payload)
        tree = self.tree.tree_connect_id if self.tree else None
        return self.connection.send(message, sid=self.session.session_id, tid=tree, credit_request=max(credits, message.charge))

    def receive(self, request, status=SUCCESS, wait=True, what="request"):
        """Returns the answer's body; fails if its status is another one."""
        try:
            reply = self.connection.receive(request, wait=wait, timeout=TIMEOUT_SECONDS, resolve_symlinks=False)
        except SMBResponseException as error:
            reply = error.header
        got = reply["status"].get_value()
        if got != status:
            raise Status(got, status, what)
        return reply["data"].get_value()

    def call(self, command, body, status=SUCCESS, payload=0):
        return self.receive(self.send(command, body, payload), status, what=f"command {command}")

    def create_body(self, name, access=CHANGE, disposition=OPEN_IF, options=0, share=SHARE_ALL, attributes=0, contexts=b"", oplock=0):
        wide = name.encode("utf-16-le")
        body = struct.pack("<HBBIQQIIIIIHH", 57, 0, oplock, 2, 0, 0, access, attributes, share, disposition, options,
                           HEADER + 56, len(wide))
        padding = bytes(-(56 + len(wide)) % 8) if contexts else b""
        start = HEADER + 56 + len(wide) + len(padding) if contexts else 0
        return body + struct.pack("<II", start, len(contexts)) + ((wide + padding + contexts) or b"\0")

    def open(self, name, access=CHANGE, disposition=OPEN_IF, options=0, status=SUCCESS, **more):
        reply = self.call(Commands.SMB2_CREATE, self.create_body(name, access, disposition, options, **more), status)
        return File(self, reply[64:80], reply) if status == SUCCESS else None

    def folder(self, name="", **more):
        return self.open(name, options=DIRECTORY, **more)

    def ioctl(self, file_id, code, data=b"", status=SUCCESS, length=65536):
        body = struct.pack("<HHI", 57, 0, code) + file_id
        body += struct.pack("<IIIIIIII", HEADER + 56, len(data), 0, 0, 0, length, 1, 0) + (data or b"\0")
        reply = self.call(Commands.SMB2_IOCTL, body, status, payload=max(len(data), length))
        if status not in (SUCCESS, BUFFER_OVERFLOW):
            return None
        start, size = struct.unpack_from("<II", reply, 32)
        return reply[start - HEADER : start - HEADER + size] if size else b""

    def echo(self):
        self.call(Commands.SMB2_ECHO, struct.pack("<HH", 4, 0))
