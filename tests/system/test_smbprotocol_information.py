"""Query and set information, security descriptors, FSCTLs: bytes checked at the offsets that the specification gives."""

import struct
import time

import pytest

from harness import protocol as p
from harness.protocol import Client

EPOCH_OFFSET = 116444736000000000


@pytest.fixture
def client(server):
    with Client(server) as client:
        yield client


@pytest.fixture
def file(client):
    with client.open("information") as f:
        f.set(p.FILE, 20, struct.pack("<Q", 0))
        f.write(b"x" * 5000)
        yield f


def filetime(seconds):
    return int(seconds * 10_000_000) + EPOCH_OFFSET


def test_basic_information(file):
    """MS-FSCC 2.4.7."""
    created, accessed, written, changed, attributes = struct.unpack_from("<QQQQI", file.query(p.FILE, 4))
    now = filetime(time.time())
    for value in (created, accessed, written, changed):
        assert abs(now - value) < 600 * 10_000_000
    assert attributes & 0x10 == 0


def test_standard_information(file):
    """MS-FSCC 2.4.47."""
    allocation, end, links, pending, directory = struct.unpack_from("<QQIBB", file.query(p.FILE, 5))
    assert (end, links, pending, directory) == (5000, 1, 0, 0) and allocation >= 0
    file.set(p.FILE, 13, b"\1")
    assert file.query(p.FILE, 5)[20] == 1, "DeletePending"
    file.set(p.FILE, 13, b"\0")


def test_all_information(file):
    """MS-FSCC 2.4.2: basic, standard, internal, EA, access, position, mode, alignment, name."""
    info = file.query(p.FILE, 18)
    assert info[:36] == file.query(p.FILE, 4)[:36]
    assert struct.unpack_from("<Q", info, 48)[0] == 5000
    assert info[64:72] == file.query(p.FILE, 6)[:8]
    assert struct.unpack_from("<I", info, 76)[0] == p.CHANGE
    length = struct.unpack_from("<I", info, 96)[0]
    assert info[100 : 100 + length].decode("utf-16-le").rpartition("\\")[2] == "information"


@pytest.mark.parametrize("info_class, size", [(4, 40), (5, 24), (6, 8), (7, 4), (8, 4), (14, 8), (16, 4), (17, 4), (34, 56), (35, 8)])
def test_fixed_classes(file, info_class, size):
    """MS-FSCC 2.4: the size of each, and STATUS_INFO_LENGTH_MISMATCH below it (MS-SMB2 3.3.5.20.1)."""
    assert len(file.query(p.FILE, info_class)) == size
    file.query(p.FILE, info_class, length=size - 1, status=p.INFO_LENGTH_MISMATCH)


def test_too_short_for_the_name_overflows(file):
    info = file.query(p.FILE, 18, length=104, status=p.BUFFER_OVERFLOW)
    assert len(info) <= 104


def test_network_open_information(file):
    """MS-FSCC 2.4.31."""
    info = file.query(p.FILE, 34)
    assert info[:32] == file.query(p.FILE, 4)[:32]
    assert struct.unpack_from("<Q", info, 40)[0] == 5000


def test_unknown_class(file):
    file.query(p.FILE, 200, status=p.INVALID_INFO_CLASS)
    file.set(p.FILE, 200, bytes(8), status=p.INVALID_INFO_CLASS)


def test_query_needs_access(client, file):
    """MS-FSCC 2.4.7: FILE_READ_ATTRIBUTES."""
    with client.open("information", access=0x2, disposition=p.OPEN) as f:
        f.query(p.FILE, 4, status=p.ACCESS_DENIED)


@pytest.mark.parametrize("info_class, size", [(3, 24), (4, 8), (7, 32)])
def test_fixed_file_system_classes(file, info_class, size):
    """MS-FSCC 2.5."""
    assert len(file.query(p.FILE_SYSTEM, info_class)) == size


def test_file_system_names(file):
    volume = file.query(p.FILE_SYSTEM, 1)
    assert len(volume) == 18 + struct.unpack_from("<I", volume, 12)[0]
    attributes, longest, length = struct.unpack_from("<IiI", file.query(p.FILE_SYSTEM, 5))
    assert longest == 255 and attributes & 0x6 == 0x6, "case preserved, Unicode on disk"
    assert length > 0


def test_file_system_size(server, file):
    total, caller, actual, sectors, per_sector = struct.unpack("<QQQII", file.query(p.FILE_SYSTEM, 7))
    assert total >= actual >= caller > 0 and sectors * per_sector >= 512


def test_end_of_file(server, client, file):
    """MS-FSCC 2.4.14: longer and shorter; what is new reads as zero."""
    file.set(p.FILE, 20, struct.pack("<Q", 9000))
    assert file.read(4000, 5000) == bytes(4000)
    file.set(p.FILE, 20, struct.pack("<Q", 3))
    assert file.read(100) == b"xxx"
    assert (server.path() / "information").stat().st_size == 3


def test_allocation_truncates(server, file):
    """MS-FSA 2.1.5.15.1: an allocation below the end of file moves the end of file."""
    file.set(p.FILE, 19, struct.pack("<Q", 4096))
    assert (server.path() / "information").stat().st_size <= 4096
    file.set(p.FILE, 19, struct.pack("<Q", 1 << 20))
    assert (server.path() / "information").stat().st_size <= 4096


def test_times_and_attributes(client, file):
    """MS-FSCC 2.4.7: what is set stays, zero changes nothing, over a reopen too."""
    created, written = filetime(1_500_000_000), filetime(1_600_000_000.25)
    file.set(p.FILE, 4, struct.pack("<QQQQII", created, 0, written, 0, 0x2 | 0x20, 0))
    file.close()
    with client.open("information", disposition=p.OPEN) as f:
        info = struct.unpack_from("<QQQQI", f.query(p.FILE, 4))
        assert (info[0], info[2]) == (created, written)
        assert info[4] & 0x27 == 0x22
        f.set(p.FILE, 4, struct.pack("<QQQQII", 0, 0, 0, 0, 0x80, 0))
        assert f.query(p.FILE, 4)[16:24] == struct.pack("<Q", written)


def test_explicit_times_survive_a_write(client, file):
    """MS-FSCC 2.4.7: -1 in LastWriteTime: later writes through this handle do not change it."""
    written = filetime(1_600_000_000)
    file.set(p.FILE, 4, struct.pack("<QQQQII", 0, 0, written, 0, 0, 0))
    file.write(b"more")
    assert file.query(p.FILE, 4)[16:24] == struct.pack("<Q", written)


def test_read_only_attribute(client):
    with client.open("ro", attributes=1) as f:
        f.write(b"the creator may")
    client.open("ro", access=p.WRITE, disposition=p.OPEN, status=p.ACCESS_DENIED)
    client.open("ro", access=p.DELETE, disposition=p.OPEN, options=p.DELETE_ON_CLOSE, status=p.CANNOT_DELETE)
    with client.open("ro", access=0x00120180, disposition=p.OPEN) as f:
        f.set(p.FILE, 4, struct.pack("<QQQQII", 0, 0, 0, 0, 0x80, 0))
    client.open("ro", access=p.WRITE, disposition=p.OPEN).close()


def test_hidden_and_system_in_create(client):
    client.open("hidden", attributes=0x2 | 0x4).close()
    with client.open("hidden", disposition=p.OPEN) as f:
        assert struct.unpack_from("<I", f.query(p.FILE, 4), 32)[0] & 0x6 == 0x6


def test_position(file):
    file.set(p.FILE, 14, struct.pack("<Q", 77))
    assert file.query(p.FILE, 14) == struct.pack("<Q", 77)


def test_file_ids_are_stable(client, file):
    before = file.query(p.FILE, 6)
    with client.open("information", disposition=p.OPEN) as again:
        assert again.query(p.FILE, 6) == before
    with client.open("information-2") as other:
        assert other.query(p.FILE, 6) != before


def security_descriptor(sid_authority, access):
    """A self-relative descriptor with one allow entry for S-1-5-21-1-2-3-authority (MS-DTYP 2.4.6)."""
    sid = struct.pack("<BB6sIIIII", 1, 5, b"\0\0\0\0\0\5", 21, 1, 2, 3, sid_authority)
    everyone = struct.pack("<BB6sI", 1, 1, b"\0\0\0\0\0\1", 0)
    entries = [struct.pack("<BBHI", 0, 0, 8 + len(s), a) + s for s, a in [(sid, access), (everyone, p.ALL)]]
    acl = struct.pack("<BBHHH", 2, 0, 8 + sum(map(len, entries)), len(entries), 0) + b"".join(entries)
    return struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 20) + acl, sid


def test_security_descriptor_round_trip(client, file):
    """MS-SMB2 3.3.5.21.3, 3.3.5.20.3: what is set is what comes back."""
    descriptor, sid = security_descriptor(1234, 0x00120089)
    file.close()
    with client.open("information", access=p.ALL, disposition=p.OPEN) as f:
        f.set(p.SECURITY, 0, descriptor, additional=4)
    with client.open("information", disposition=p.OPEN) as f:
        back = f.query(p.SECURITY, 0, additional=7)
        assert sid in back and struct.pack("<I", 0x00120089) in back
        control, owner, group, sacl, dacl = struct.unpack_from("<HIIII", back, 2)
        assert control & 0x8004 == 0x8004 and owner and group and dacl
        assert f.query(p.SECURITY, 0, additional=4, length=4, status=p.BUFFER_TOO_SMALL) is None


def test_security_descriptor_is_never_believed(file):
    """Lengths and offsets inside that point outside are refused, or ignored, and nothing worse."""
    good, _ = security_descriptor(1, 1)
    for bad in (b"", good[:10], good[:21], good[:16] + b"\xff\xff\xff\x7f" + good[20:], good[:24] + b"\xff\xff" + good[26:]):
        with pytest.raises(p.Status):
            file.set(p.SECURITY, 0, bad, additional=4)
            raise p.Status(0, 1, "a broken security descriptor was taken")
    assert file.query(p.FILE, 5)


FSCTL = {"copychunk": 0x001440F2, "copychunk_write": 0x001480F2, "resume_key": 0x00140078, "interfaces": 0x001401FC,
         "sparse": 0x000900C4, "ranges": 0x000940CF, "zero": 0x000980C8, "trim": 0x00098208, "snapshots": 0x00144064}


def test_copychunk(server, client):
    """MS-SMB2 3.3.5.15.6."""
    data = bytes(range(256)) * 1024
    with client.open("cc-source") as source, client.open("cc-target") as target:
        source.write(data)
        key = source.ioctl(FSCTL["resume_key"], length=32)[:24]
        chunks = [(0, 100_000, 65536), (65536, 0, 100_000)]
        request = key + struct.pack("<II", len(chunks), 0) + b"".join(struct.pack("<QQII", *c, 0) for c in chunks)
        reply = target.ioctl(FSCTL["copychunk_write"], request, length=12)
        assert struct.unpack("<III", reply)[0::2] == (2, 165_536)
        expected = bytearray(165_536)
        expected[100_000:165_536] = data[:65536]
        expected[0:100_000] = data[65536:165_536]
        assert target.read(165_536) == bytes(expected)


def test_copychunk_limits(client):
    """MS-SMB2 3.3.5.15.6.2: too much is refused with the limits; a foreign key with OBJECT_NAME_NOT_FOUND."""
    with client.open("cc-source") as source, client.open("cc-target") as target:
        key = source.ioctl(FSCTL["resume_key"], length=32)[:24]
        request = key + struct.pack("<II", 1, 0) + struct.pack("<QQII", 0, 0, 0x7FFFFFFF, 0)
        reply = target.client.call(11, ioctl_body(target, FSCTL["copychunk_write"], request, 12), p.INVALID_PARAMETER)
        start, size = struct.unpack_from("<II", reply, 32)
        chunks, chunk_bytes, total = struct.unpack("<III", reply[start - 64 : start - 64 + size])
        assert chunks >= 16 and chunk_bytes >= 1 << 20 and total >= 1 << 20
        small = struct.pack("<II", 1, 0) + struct.pack("<QQII", 0, 0, 1, 0)
        target.ioctl(FSCTL["copychunk_write"], bytes(24) + small, length=12, status=p.OBJECT_NAME_NOT_FOUND)


def ioctl_body(file, code, data, length):
    body = struct.pack("<HHI", 57, 0, code) + file.id
    return body + struct.pack("<IIIIIIII", 64 + 56, len(data), 0, 0, 0, length, 1, 0) + data


def test_sparse_zero_and_ranges(server, client):
    """MS-FSCC 2.3.68, 2.3.71, 2.3.52: a hole is a hole, and says so."""
    with client.open("sparse") as f:
        f.ioctl(FSCTL["sparse"], b"\1")
        assert struct.unpack_from("<I", f.query(p.FILE, 4), 32)[0] & 0x200, "FILE_ATTRIBUTE_SPARSE_FILE"
        f.set(p.FILE, 20, struct.pack("<Q", 8 << 20))
        f.write(b"d" * 1048576, 4 << 20)
        ranges = f.ioctl(FSCTL["ranges"], struct.pack("<QQ", 0, 8 << 20))
        assert [struct.unpack_from("<QQ", ranges, at) for at in range(0, len(ranges), 16)] == [(4 << 20, 1 << 20)]
        f.ioctl(FSCTL["zero"], struct.pack("<QQ", 4 << 20, (4 << 20) + 524288))
        assert f.read(524288, 4 << 20) == bytes(524288)
        assert f.read(524288, (4 << 20) + 524288) == b"d" * 524288
        ranges = f.ioctl(FSCTL["ranges"], struct.pack("<QQ", 0, 8 << 20))
        assert [struct.unpack_from("<QQ", ranges, at) for at in range(0, len(ranges), 16)] == [((4 << 20) + 524288, 524288)]
    assert (server.path() / "sparse").stat().st_blocks * 512 <= 600_000


def test_four_gibibyte_offsets(server, client):
    with client.open("far") as f:
        f.ioctl(FSCTL["sparse"], b"\1")
        f.write(b"far away", (1 << 42) + 5)
        assert f.read(8, (1 << 42) + 5) == b"far away"
        assert f.read(8, (1 << 42) - 8) == bytes(8)
    assert (server.path() / "far").stat().st_size == (1 << 42) + 13


def test_network_interfaces(server, client):
    """MS-SMB2 3.3.5.15.11, 2.2.32.5: an entry for the address that we are connected to, with a speed."""
    data = client.ioctl(p.ANY, FSCTL["interfaces"])
    entries = []
    while data:
        following, index, capability, _, speed, family = struct.unpack_from("<IIIIQH", data)
        entries.append((index, capability, speed, family, data[28:32]))
        data = data[following:] if following else b""
    assert entries
    for _, _, speed, family, _ in entries:
        assert speed > 0 and family in (2, 0x17)
    assert bytes(map(int, server.host.split("."))) in [e[4] for e in entries if e[3] == 2]


def test_unknown_fsctl(client, file):
    file.ioctl(0x00098FFC, status=p.INVALID_DEVICE_REQUEST)


def test_dfs_referrals_are_not_offered(client):
    """MS-SMB2 3.3.5.15.2: not a DFS server."""
    with pytest.raises(p.Status) as refused:
        client.ioctl(p.ANY, 0x00060194, struct.pack("<H", 4) + r"\a\b".encode("utf-16-le") + b"\0\0")
    assert refused.value.got in (0xC000019C, 0xC0000225, p.NOT_SUPPORTED, p.INVALID_DEVICE_REQUEST, p.BAD_NETWORK_NAME)
