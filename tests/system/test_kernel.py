"""The Linux kernel's client, mounting over TCP and over SMB Direct (soft iWARP) in a guest.

Servers have the shipped settings, so signing is required; then Linux moves no payload by RDMA. `offload` is SMB Direct to
a server that requires none, with payload by RDMA. Against smbd only the TCP half runs; against ksmbd (in a second guest)
all do, and `offload` is as `rdma`.
"""

import filecmp
import os
import shutil
import tarfile

import pytest

from harness import PEERS, ROOT, guest
from harness.guest import QEMU, UML, Network, boot

pytestmark = pytest.mark.skipif(guest.unavailable_reason() is not None, reason=str(guest.unavailable_reason()))

TRANSPORTS = ["tcp", "rdma", "offload"]

PREAMBLE = """
set -e
dmesg -c > /dev/null      # what booting said
SERVER={server.host}
fail() {{ echo "FAILED: $*"; dmesg | grep -iE 'cifs|smb|siw|rdma' | tail -40; exit 1; }}
# mnt FOLDER OPTIONS: mounts the share there
mnt() {{
  mkdir -p $1
  mount.cifs //$SERVER/files $1 -o "username={server.user},password={server.password},vers=3.1.1,iocharset=utf8,$2" || fail "mount -o $2"
}}
# What the kernel says about its connections.
direct() {{ grep -qE '^RDMA$|SMBDirect .*protocol version' /proc/fs/cifs/DebugData && grep -A4 -m1 -E 'SMBDirect' /proc/fs/cifs/DebugData; }}
over() {{
  case $1 in
  rdma|offload) direct || {{ cat /proc/fs/cifs/DebugData; fail "not mounted over SMB Direct"; }}; grep -m1 ' cifs ' /proc/mounts | grep -q ',rdma' || fail "no rdma in /proc/mounts" ;;
  tcp) ! direct || fail "mounted over SMB Direct" ;;
  esac
}}
# No operation may leave the kernel complaining.
clean() {{ ! dmesg | grep -E 'BUG:|WARNING:|Oops|Call Trace|signature|stuck for' || fail "the kernel complained"; }}
trap 'rc=$?; [ $rc = 0 ] || dmesg | grep -iE "cifs|smb|siw|rdma|BUG|WARN" | tail -40; exit $rc' EXIT
"""
RDMA = "rdma link add siw0 type siw netdev $ETH\nping -c 1 -W 10 $SERVER > /dev/null || fail 'the network'\n"


class Place:
    """A network and a server in it."""

    def __init__(self, network, server, unsigned=None):
        """`unsigned`: the server that requires no signing, for `offload`."""
        self.network, self.server, self.unsigned = network, server, unsigned

    def __call__(self, script, transport=None, **options):
        """Runs a script in a client guest; for rdma, soft iWARP is set up first."""
        server = self.unsigned if transport == "offload" else self.server
        if is_direct(transport) and server.name == "smbd":
            pytest.skip("smbd has no SMB Direct")
        setup = RDMA if is_direct(transport) else ""
        return boot(self.network, PREAMBLE.format(server=server) + setup + script, **options).out


def is_direct(transport):
    return transport in ("rdma", "offload")


@pytest.fixture(scope="module")
def place(kind, scratch):
    """One server for the module, in a network with large frames: siw sends one FPDU for each segment. Past 4,000 bytes
    user-mode Linux's network loses frames."""
    with Network(mtu=4000) as network:
        yield from placed(kind, scratch / "server", network)


@pytest.fixture
def small_frames(kind, scratch):
    """The same with ordinary Ethernet frames."""
    with Network(mtu=1500) as network:
        yield from placed(kind, scratch / "small", network)


def placed(kind, folder, network):
    if kind.name == "ksmbd":
        server = unsigned = kind(folder, network=network)
    elif kind.name == "smbd":
        server = unsigned = kind(folder, host=guest.HOST, port=445, prefix=network.prefix, settings={"server multi channel support": "yes"})
    else:
        options = {"port": 445, "iwarp_port": 5445, "prefix": network.prefix}
        server = kind(folder, host=guest.HOST, **options)
        unsigned = kind(folder.with_name(f"{folder.name}-unsigned"), host=guest.HOST_TOO, signing="enabled", **options)
    servers = {server.folder: server, unsigned.folder: unsigned}.values()
    for one in servers:
        one.start()
    yield Place(network, server, unsigned)
    for one in servers:
        assert one.is_running(), f"the server ended: {one.output()[-3000:]}"
        assert "panicked at" not in one.output(), one.log
        one.stop()
        shutil.rmtree(one.folder / "shares", ignore_errors=True)


def options(transport, more=""):
    return ("rdma," if is_direct(transport) else "") + "cache=none,actimeo=1" + (f",{more}" if more else "")


BASICS = """
mnt /mnt/x {options}
over {transport}
cd /mnt/x
echo tiny > tiny; [ "$(cat tiny)" = tiny ] || fail "a small file"
head -c 3000001 /dev/urandom > /tmp/a; cp /tmp/a a; cmp /tmp/a a || fail "three megabytes"
mkdir -p d/e; mv a d/e/b; cmp /tmp/a d/e/b || fail "moved"
: > 'Ünï 漢字 😀'; [ "$(echo *漢*)" = 'Ünï 漢字 😀' ] || fail "unicode: $(echo *)"
truncate -s 5G sparse; [ $(stat -c %s sparse) = 5368709120 ] || fail "five gibibytes"
printf end | dd of=sparse bs=1 seek=5368709117 conv=notrunc 2>/dev/null
[ "$(tail -c 3 sparse)" = end ] || fail "the end of five gibibytes"
[ "$(dd if=sparse bs=4096 skip=1000000 count=1 2>/dev/null | tr -d '\\0' | wc -c)" = 0 ] || fail "the hole"
rm -r d tiny sparse 'Ünï 漢字 😀'
[ -z "$(ls -A)" ] || fail "left: $(ls -A)"
df /mnt/x; cd /; umount /mnt/x; clean; echo DONE
"""


@pytest.mark.parametrize("kernel", [UML, QEMU], ids=["um", "qemu"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_mount(small_frames, transport, kernel):
    """Mounts, works, unmounts; DebugData says what it went over. Two kernels, ordinary frames."""
    out = small_frames(BASICS.format(options=options(transport), transport=transport), transport, kernel=kernel, timeout=180)
    assert "DONE" in out, out


SIZES = """
mnt /mnt/x rdma{options}
over rdma
grep -m1 ' cifs ' /proc/mounts | tr , '\n' | grep -E '^(rsize|wsize|sign|seal)'
cp /mnt/x/given /tmp/a; cp /tmp/a /mnt/x/copied
umount /mnt/x; mnt /mnt/x rdma{options}
dd if=/mnt/x/given bs=8M count=2 iflag=direct of=/tmp/b 2>/dev/null || fail "read past the cache"
head -c 16777216 /tmp/a | cmp - /tmp/b || fail "the two reads differ"
dd if=/tmp/b of=/mnt/x/direct bs=8M oflag=direct 2>/dev/null || fail "written past the cache"
umount /mnt/x; clean; echo DONE
"""


@pytest.mark.parametrize("kernel", [UML, QEMU], ids=["um", "qemu"])
@pytest.mark.parametrize("signing,options", [(None, ""), (None, ",sign"), (None, ",seal"), ("enabled", ""), ("enabled", ",seal")],
                         ids=["default", "sign", "seal", "unsigned", "unsigned-seal"])
def test_default_sizes_over_rdma(kind, serve, signing, options, kernel):
    """100 MiB there and back with the kernel's own rsize and wsize, and 16 MiB past its cache (MS-SMB2 3.3.5.12).

    Signed, the kernel sends and takes payload inside messages as long as either side takes. Sealed without signing, its
    READs and WRITEs are MaxReadSize and MaxWriteSize long, also inside messages. With neither it uses RDMA: that takes a
    server that does not require signing.
    """
    if kind.name != "causeway":
        pytest.skip("smbd has no SMB Direct; ksmbd's shipped settings differ")
    size, direct = 100 << 20, 16 << 20
    with Network(mtu=4000) as network:
        relaxed = {} if signing is None else {"signing": signing}
        server = serve(host=guest.HOST, port=445, iwarp_port=5445, prefix=network.prefix, **relaxed)
        given = server.path() / "given"
        given.write_bytes(os.urandom(size))
        out = Place(network, server)(SIZES.format(options=options), "rdma", kernel=kernel, timeout=400)
        assert "DONE" in out, out
        assert filecmp.cmp(given, server.path() / "copied", shallow=False)
        with open(given, "rb") as whole:
            assert (server.path() / "direct").read_bytes() == whole.read(direct)


@pytest.mark.parametrize("option", ["vers=2.1", "vers=3.0", "vers=3.0.2", "seal", "sec=ntlmsspi", "cache=strict", "cache=loose", "nolease", "mfsymlinks", "rsize=65536\\,wsize=65536", "nobrl", "nosparse"])
def test_mount_options(place, option):
    script = """
mnt /mnt/x {o}
head -c 2000000 /dev/urandom > /tmp/a; cp /tmp/a /mnt/x/opt; cmp /tmp/a /mnt/x/opt || fail data
umount /mnt/x; mnt /mnt/x {o}; cmp /tmp/a /mnt/x/opt || fail "data after a new mount"; rm /mnt/x/opt; umount /mnt/x; clean; echo DONE
""".format(o="cache=none," + option.replace("\\", "") if "cache" not in option else option)
    assert "DONE" in place(script, timeout=120)


def test_wrong_password(place):
    script = """
mkdir -p /mnt/x
! mount.cifs //$SERVER/files /mnt/x -o username=alice,password=wrong,vers=3.1.1 || fail "mounted"
! mount.cifs //$SERVER/nowhere /mnt/x -o "username={s.user},password={s.password},vers=3.1.1" || fail "mounted"
echo DONE
""".format(s=place.server)
    assert "DONE" in place(script, timeout=60)


def test_multichannel(kind, scratch):
    """MS-SMB2 3.3.5.5.2, 3.3.5.15.11: the server announces a second address, and the kernel binds a channel over it to its
    session; both carry data."""
    if kind.name != "causeway":
        pytest.skip("smbd announces no interface of a bridge, ksmbd only such with RDMA")
    script = """
mnt /mnt/x cache=none,multichannel,max_channels=2
head -c 8000000 /dev/urandom > /tmp/a
for n in 1 2 3 4; do cp /tmp/a /mnt/x/mc$n & done; wait
for n in 1 2 3 4; do cmp /tmp/a /mnt/x/mc$n || fail "mc$n"; done; rm /mnt/x/mc*
cat /proc/fs/cifs/DebugData
grep -q 'Channel: 2' /proc/fs/cifs/DebugData || fail "one channel only"
umount /mnt/x; clean; echo DONE
"""
    with Network() as network:
        listen = {"listen": [f"{guest.HOST}:445", f"{guest.HOST_TOO}:445"]}
        server = kind(scratch / "channels", host=guest.HOST, port=445, prefix=network.prefix, settings=listen).start()
        out = Place(network, server)(script, timeout=120)
        assert "DONE" in out, out
        assert server.stop() == 0


# Random and sequential, 4k to 4M, deep and shallow, through the page cache and around it.
FIO = [("randrw", "4k", 1, 1), ("randrw", "4k", 16, 1), ("randwrite", "8k", 32, 1), ("randrw", "64k", 8, 1), ("write", "128k", 4, 1),
       ("rw", "1M", 4, 1), ("write", "4M", 2, 1), ("randrw", "512-64k", 4, 0), ("write", "1M", 1, 0)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_fio_verifies(place, transport):
    """fio writes blocks with checksums and reads every one back."""
    jobs = ""
    for number, (rw, size, depth, direct) in enumerate(FIO):
        blocks = f"--bsrange={size}" if "-" in size else f"--bs={size}"
        jobs += (f"fio --name=j{number} --filename=/mnt/x/fio --size=12m --io_size=12m --rw={rw} {blocks} --iodepth={depth} --direct={direct} "
                 f"--ioengine=libaio --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed={number} --minimal --output=/tmp/o "
                 f"|| {{ cat /tmp/o; fail 'fio {rw} {size}'; }}; echo fio {rw} {size} {depth} {direct} verified; rm -f /mnt/x/fio\n")
    script = f"mnt /mnt/x {options(transport)}\nover {transport}\n{jobs}\numount /mnt/x; clean; echo DONE\n"
    out = place(script, transport, timeout=600)
    assert out.count("verified") == len(FIO) and "DONE" in out, out


@pytest.fixture(scope="module")
def tree(scratch):
    """Our own source as a tar."""
    archive = scratch / "tree.tar"
    with tarfile.open(archive, "w") as tar:
        for part in ("crates", "scripts", "tests"):
            tar.add(ROOT / part, part, filter=lambda i: None if "__pycache__" in i.name or "/target" in i.name else i)
    return archive


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_source_tree(place, tree, transport):
    """Unpacked onto the share, compared with one unpacked locally, changed, deleted."""
    script = f"""
mnt /mnt/x {options(transport, "noperm")}
over {transport}
mkdir /mnt/x/t /tmp/t
tar -xf /files/tree.tar -C /tmp/t
tar -xf /files/tree.tar -C /mnt/x/t || fail unpack
sums() {{ (cd $1; find . -type f | sort | tr '\\n' '\\0' | xargs -0 sha256sum; find . -type d | sort); }}
sums /tmp/t > /tmp/want; sums /mnt/x/t > /tmp/got
cmp /tmp/want /tmp/got || {{ diff /tmp/want /tmp/got | head -20; fail "the trees differ"; }}
wc -l < /tmp/want
for at in /tmp/t /mnt/x/t; do find $at -name '*.toml' | xargs sed -i 's/e/E/g'; done
sums /tmp/t > /tmp/want; sums /mnt/x/t > /tmp/got; cmp /tmp/want /tmp/got || fail "after the change"
rm -r /mnt/x/t || fail delete
[ -z "$(ls -A /mnt/x)" ] || fail "left: $(ls -A /mnt/x)"
umount /mnt/x; clean; echo DONE
"""
    assert "DONE" in place(script, transport, files=[tree], timeout=400)


@pytest.mark.parametrize("mode", ["", "direct"], ids=["cached", "direct"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_random_operations(place, transport, mode):
    """tests/fsx: random operations against a model in memory."""
    cache = "cache=strict" if not mode else "cache=none"
    script = f"""
mnt /mnt/x {"rdma," if is_direct(transport) else ""}{cache}
over {transport}
mkdir /mnt/x/fsx-$$
for seed in 1 2 3; do /files/fsx /mnt/x/fsx-$$ $seed 700 {mode} || fail "fsx seed $seed"; done
# The client may close a handle that it kept under a lease after the unlink: until then the file is delete-pending.
rmdir /mnt/x/fsx-$$ || {{ sleep 2; rmdir /mnt/x/fsx-$$; }}; umount /mnt/x; clean; echo DONE
"""
    assert "DONE" in place(script, transport, files=[PEERS / "bin" / "fsx"], timeout=300)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_server_comes_back(kind, scratch, transport):
    """kill -9 under a mount: the kernel reconnects to the new server, the same way, and its data is there."""
    if kind.name == "ksmbd" or kind.name == "smbd" and is_direct(transport):
        pytest.skip("a server that is killed and started again with SMB Direct")
    with Network(mtu=4000) as network:
        relaxed = {"signing": "enabled"} if transport == "offload" else {}
        server = kind(scratch / f"back-{transport}", host=guest.HOST, port=445, prefix=network.prefix,
                      **({} if kind.name == "smbd" else {"iwarp_port": 5445}), **relaxed).start()
        script = PREAMBLE.format(server=server) + (RDMA if is_direct(transport) else "") + f"""
mnt /mnt/x {options(transport, "echo_interval=1")}
head -c 500000 /dev/urandom > /tmp/a; cp /tmp/a /mnt/x/a; sync
echo MOUNTED
n=0; until [ -e /mnt/x/restarted ] && cmp /tmp/a /mnt/x/a; do n=$((n+1)); [ $n -lt 200 ] || fail "never came back"; sleep 0.2; done
over {transport}
cp /tmp/a /mnt/x/b; cmp /tmp/a /mnt/x/b || fail "after the restart"
umount /mnt/x; echo DONE
"""
        client = guest.Guest(network, script)
        try:
            guest.until(lambda: "MOUNTED" in client.output() or client.process.poll() is not None, timeout=60, what="the mount")
            server.kill()
            (server.path() / "restarted").touch()
            server.start()
            result = client.wait(120)
        finally:
            client.kill()
            shutil.rmtree(client.work, ignore_errors=True)
        assert result.status == 0 and "DONE" in result.out, str(result)
        assert server.stop() is not None
