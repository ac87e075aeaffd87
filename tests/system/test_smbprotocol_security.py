"""Signing, encryption, sessions and channels through smbprotocol; logons through impacket."""

import random
import struct
import uuid

import pytest
import spnego
from impacket.smbconnection import SessionError, SMBConnection
from smbprotocol.connection import Ciphers, Dialects, SigningAlgorithms
from smbprotocol.exceptions import MoreProcessingRequired, SMBException, SMBResponseException
from smbprotocol.header import Commands
from smbprotocol.session import Session

from harness import protocol as p
from harness.protocol import Channel, Client, Raw

DATA = random.Random(3).randbytes(200_000)


def write_and_read(client, name):
    client.connection.echo(sid=client.session.session_id, credit_request=16)
    with client.open(name) as f:
        f.write(DATA)
        assert f.read(len(DATA)) == DATA


@pytest.mark.parametrize("signer", ["AES_GMAC", "AES_CMAC", "HMAC_SHA256"])
def test_signing_algorithms(server, signer):
    """MS-SMB2 2.2.3.1.7, 3.1.4.1; the library checks each answer's signature."""
    with Client(server, sign=True, signers=[getattr(SigningAlgorithms, signer)]) as client:
        assert client.connection.signing_algorithm_id == getattr(SigningAlgorithms, signer)
        write_and_read(client, f"signed-{signer}")


@pytest.mark.parametrize("dialect", [Dialects.SMB_2_0_2, Dialects.SMB_2_1_0, Dialects.SMB_3_0_0, Dialects.SMB_3_0_2, Dialects.SMB_3_1_1])
def test_signing_in_every_dialect(server, dialect):
    with Client(server, sign=True, dialect=dialect) as client:
        with client.open("signed") as f:
            f.write(DATA[:60_000])
            assert f.read(60_000) == DATA[:60_000]


@pytest.mark.parametrize("cipher", ["AES_128_CCM", "AES_128_GCM", "AES_256_CCM", "AES_256_GCM"])
def test_ciphers(server, cipher):
    """MS-SMB2 2.2.3.1.2, 3.1.4.3."""
    with Client(server, encrypt=True, ciphers=[getattr(Ciphers, cipher)]) as client:
        assert client.connection.cipher_id == getattr(Ciphers, cipher)
        write_and_read(client, f"encrypted-{cipher}")


@pytest.mark.parametrize("dialect", [Dialects.SMB_3_0_0, Dialects.SMB_3_0_2])
def test_encryption_in_older_dialects(server, dialect):
    # Against a server that requires signing, smbprotocol validates a negotiation that it did not have, unless it asked to
    # sign itself.
    with Client(server, sign=True, encrypt=True, dialect=dialect) as client:
        write_and_read(client, "encrypted-old")


def test_a_wrong_signature_is_refused(server):
    """MS-SMB2 3.3.5.2.4: STATUS_ACCESS_DENIED."""
    with Client(server, sign=True) as client:
        right = client.session.signing_key
        client.session.signing_key = bytes(16)
        client.connection.verify_signature = lambda *_, **__: None
        with pytest.raises((SMBException, p.Status)):
            client.open("forged")
        client.session.signing_key = right
    assert not (server.path() / "forged").exists()


def test_unsigned_is_refused_where_signing_is_required(serve):
    """MS-SMB2 3.3.5.2.4: SigningRequired and not signed."""
    server = serve(signing="required")
    with Client(server, sign=True) as client:
        client.session.signing_required = False
        client.connection.verify_signature = lambda *_, **__: None
        with pytest.raises((SMBException, p.Status)):
            client.open("unsigned")
    assert not (server.path() / "unsigned").exists()


def test_signed_answers_where_signing_is_required(serve):
    server = serve(signing="required")
    with Client(server) as client:
        assert client.connection.require_signing, "the server says that it requires signing"
        write_and_read(client, "signed")


def test_unencrypted_is_refused_where_encryption_is_required(serve):
    """MS-SMB2 3.3.5.2.9: EncryptData and not encrypted: STATUS_ACCESS_DENIED."""
    server = serve(encryption="required")
    with Client(server, encrypt=True) as client:
        client.session.encrypt_data, client.session.signing_required = False, True
        client.tree.encrypt_data = False
        with pytest.raises((SMBException, p.Status)):
            client.open("clear")
    assert not (server.path() / "clear").exists()


def test_validate_negotiate(server):
    """MS-SMB2 3.3.5.15.12; the library does it itself when it connects to a share below 3.1.1, and checks the answer."""
    with Client(server, sign=True, dialect=Dialects.SMB_3_0_2) as client:
        lie = struct.pack("<I16sHHH", 0, uuid.uuid4().bytes_le, 1, 1, 0x0302)
        with pytest.raises((SMBException, p.Status)):
            client.ioctl(p.ANY, 0x00140204, lie, length=24)
            client.echo()


def test_reauthentication(server):
    """MS-SMB2 3.3.5.5.3: a second SESSION_SETUP for the same session keeps its files and its keys."""
    with Client(server, sign=True) as client:
        with client.open("reauth") as f:
            f.write(b"before")
            context = spnego.client(server.user, server.password, service="cifs", hostname=server.host,
                                    options=spnego.NegotiateOptions.session_key, protocol="ntlm")
            token = None
            while not context.complete:
                token = context.step(token)
                reply, status = session_setup(client.connection, client.session.session_id, token)
                token = security_buffer(reply)
            assert status == 0
            assert f.read(100) == b"before"


def session_setup(connection, session_id, token, flags=0):
    body = struct.pack("<HBBIIHHQ", 25, flags, 1, 0, 0, 64 + 24, len(token), 0) + token
    request = connection.send(Raw(Commands.SMB2_SESSION_SETUP, body), sid=session_id, credit_request=16)
    try:
        reply = connection.receive(request, timeout=p.TIMEOUT_SECONDS)
    except MoreProcessingRequired as more:
        reply = more.header
    except SMBResponseException as refused:
        reply = refused.header
    connection.preauth_integrity_session_hash_value.setdefault(request.message["message_id"].get_value(), [])
    return reply["data"].get_value(), reply["status"].get_value()


def security_buffer(body):
    offset, size = struct.unpack_from("<HH", body, 4)
    return body[offset - 64 : offset - 64 + size]


class Binding(Session):
    """A second channel of an existing session (MS-SMB2 3.2.4.2.3.1, 3.3.5.5.2)."""

    def __init__(self, connection, session, user=None):
        super().__init__(connection, user or session.username, session.password, require_encryption=False, auth_protocol="ntlm")
        self.first, self.session_id = session, session.session_id

    def connect(self):
        """Session.connect with the binding flag and the first channel's signature; returns the last status."""
        self.signing_key, self.signing_required = self.first.signing_key, True
        connection, sent = self.connection, self.connection.send

        def send(message, **options):
            message["flags"] = 1
            connection.session_table[self.session_id] = self
            return sent(message, **options)

        connection.send = send
        try:
            super().connect()
        finally:
            connection.send = sent
        self.tree_connect_table, self.open_table = self.first.tree_connect_table, self.first.open_table


def bind(client, dialect=None, user=None):
    """A second connection to the client's server, bound to its session."""
    connection = Channel(client.connection.client_guid, client.server.host, client.server.port, require_signing=True)
    connection.connect(dialect=dialect, timeout=p.TIMEOUT_SECONDS)
    session = Binding(connection, client.session, user)
    session.connect()
    second = object.__new__(Client)
    second.server, second.connection, second.session, second.tree = client.server, connection, session, client.tree
    return second


@pytest.fixture
def multichannel(kind, serve):
    settings = {"server multi channel support": "yes"} if kind.name == "smbd" else {}
    return serve(settings=settings)


def test_session_binding(multichannel):
    """A file opened on one channel is read and written on the other, and outlives the first one's connection."""
    with Client(multichannel, sign=True) as first:
        second = bind(first)
        f = first.open("bound")
        f.write(b"from the first")
        f.client = second
        assert f.read(100) == b"from the first"
        f.write(b"from the second")
        f.client = first
        assert f.read(100) == b"from the second"
        first.abort()
        f.client = second
        assert f.read(100) == b"from the second"
        f.close()
        second.abort()


def test_session_binding_is_refused(multichannel):
    """MS-SMB2 3.3.5.5.2: another dialect."""
    with Client(multichannel, sign=True) as first:
        with pytest.raises(SMBException):
            bind(first, dialect=Dialects.SMB_3_0_2).echo()
        with first.open("unharmed") as f:
            f.write(b"x")


def test_binding_to_a_session_that_is_not_there(multichannel):
    with Client(multichannel, sign=True) as first:
        first.session.session_id += 0x1234567
        with pytest.raises(SMBException):
            bind(first)
        first.session.session_id -= 0x1234567


def test_sessions_are_separate(server):
    """A session id of another connection is no session here (MS-SMB2 3.3.5.2.9)."""
    with Client(server) as one, Client(server) as other:
        mine = other.session.session_id
        other.session.session_id = one.session.session_id
        other.connection.session_table[one.session.session_id] = other.session
        # The refusal has the request's own signature, as Windows' and Samba's have, which this client takes for forged.
        with pytest.raises(SMBException, match="signature could not be verified"):
            other.call(Commands.SMB2_CREATE, other.create_body("stolen"))
        other.session.session_id = mine
    assert not (server.path() / "stolen").exists()


def impacket(server, user, password):
    connection = SMBConnection(server.host, server.host, sess_port=server.port, timeout=p.TIMEOUT_SECONDS)
    connection.login(user, password)
    return connection


def test_impacket_lists_and_reads(server):
    """impacket: another NTLM, another srvsvc."""
    connection = impacket(server, server.user, server.password)
    assert {s["shi1_netname"][:-1] for s in connection.listShares()} >= {"files", "IPC$"}
    (server.path() / "for-impacket").write_bytes(DATA)
    got = bytearray()
    connection.getFile("files", "for-impacket", got.extend)
    assert bytes(got) == DATA
    connection.createDirectory("files", "impacket-dir")
    assert "impacket-dir" in [e.get_longname() for e in connection.listPath("files", "*")]
    connection.deleteDirectory("files", "impacket-dir")
    connection.logoff()


@pytest.mark.parametrize("user, password", [("alice", "wrong"), ("alice", ""), ("nobody-here", "x"), ("", ""), ("Guest", "")])
def test_logons_that_are_refused(server, user, password):
    """No guest, no anonymous, no empty password. An anonymous session, where one is made at all, reaches no share."""
    with pytest.raises(SessionError):
        connection = impacket(server, user, password)
        connection.connectTree("files")


def test_user_names_are_case_insensitive(server):
    impacket(server, server.user.upper(), server.password).logoff()


def test_a_pass_the_hash_of_another_password_is_refused(server):
    connection = SMBConnection(server.host, server.host, sess_port=server.port, timeout=p.TIMEOUT_SECONDS)
    with pytest.raises(SessionError):
        connection.login(server.user, "", lmhash="", nthash="00112233445566778899aabbccddeeff")
