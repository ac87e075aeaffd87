"""Virtual disks as block devices of the Linux kernel (`space attach --ublk`), in a guest whose kernel has the ublk driver: geometry, payload, a file
system, discard, detach, and kill -9 under load. The server runs inside of the guest, on disk files in its memory."""

import re
import subprocess
from pathlib import Path

import pytest

from harness import guest
from harness.guest import QEMU, Network, boot
from harness.programs import run
from harness.servers import Causeway

in_guest = pytest.mark.skipif(guest.unavailable_reason() is not None, reason=str(guest.unavailable_reason()))
# Two versions of the driver. User-mode Linux has no clock in its vDSO, which our programs want.
kernels = pytest.mark.parametrize("kernel", [QEMU, "vmlinuz-7*"], ids=["6", "7"])

PREAMBLE = """
set -e
export PATH=/usr/sbin:/sbin:$PATH
[ -e /dev/ublk-control ] || {{ echo "NO UBLK"; exit 0; }}
fail() {{ echo "FAILED: $*"; tail -40 /tmp/server.log; dmesg | tail -20; exit 1; }}
program() {{ /files/{loader} --library-path /files /files/causeway "$@"; }}
causeway() {{ CAUSEWAY_CONTROL=/tmp/control.sock program "$@"; }}
refused() {{ if causeway "$@" > /tmp/refused 2>&1; then cat /tmp/refused; fail "not refused: $*"; fi; cat /tmp/refused; }}
until_() {{ n=0; until eval "$1"; do n=$((n+1)); [ $n -lt 300 ] || fail "waited for: $1"; sleep 0.1; done; }}
start() {{
  # What the last server said is not to be taken for this one's.
  rm -f /tmp/server.log
  : > /tmp/server.log
  /files/{loader} --library-path /files /files/causeway serve --config /tmp/causeway.toml >> /tmp/server.log 2>&1 &
  SERVER=$!
  until_ 'grep -q ready /tmp/server.log || ! kill -0 $SERVER 2> /dev/null'
  kill -0 $SERVER 2> /dev/null || fail "the server ended"
}}
# attach WORDS: the device
attach() {{ causeway space attach vm --ublk "$@" | tee /tmp/attached; DEVICE=$(grep -o '/dev/ublkb[0-9]*' /tmp/attached); BLOCK=/sys/block/${{DEVICE#/dev/}}; [ -b "$DEVICE" ] || fail "no $DEVICE"; }}
# grow WORDS: whether the virtual disk has another size now
grow() {{ causeway space resize vm "$@" > /tmp/grown 2>&1; }}
# statistic N: the N-th field of the device's stat (Documentation/block/stat.rst)
statistic() {{ awk "{{ print \\$$1 }}" $BLOCK/stat; }}
footprint() {{ causeway --json space show vm | tr ',{{' '\\n\\n' | sed -n 's/.*"footprint": *\\([0-9]*\\).*/\\1/p'; }}
clean() {{ ! dmesg | grep -E 'BUG:|WARNING:|Oops|Call Trace|stuck for|hung' || fail "the kernel complained"; }}
dmesg -c > /dev/null
mkdir /tmp/disks
cat > /tmp/causeway.toml <<END
[server]
name = "GUEST"
listen = ["127.0.0.1:4450"]
control = "/tmp/control.sock"
users = "/tmp/users.toml"
memory = "128MiB"
[storage]
devices = ["/tmp/disks/a.disk", "/tmp/disks/b.disk", "/tmp/disks/c.disk"]
END
echo 'correct horse 7' | program user add alice --password-stdin --users /tmp/users.toml
start
causeway disk create-file /tmp/disks/a.disk /tmp/disks/b.disk /tmp/disks/c.disk --size 160MiB
causeway pool create tank --assume-atomic --disk /tmp/disks/a.disk /tmp/disks/b.disk /tmp/disks/c.disk
causeway space create vm --pool tank --resiliency mirror --size 96MiB
"""


@pytest.fixture(scope="module")
def files(scratch):
    """Our binary without its symbols, and the libraries it runs with."""
    binary = scratch / "causeway"
    run(["strip", "-o", binary, Causeway.binary])
    return [binary, *libraries([binary])]


def libraries(programs):
    """The libraries that programs of this machine run with, and the loader, for /files of a guest."""
    return sorted({Path(p) for program in programs for p in re.findall(r"(?:=> )?(/\S+) \(0x", run(["ldd", program]).out)})


@pytest.fixture(scope="module")
def run_in_guest(kind, files):
    if kind.name != "causeway":
        pytest.skip("only causeway has block devices")
    loader = next(f.name for f in files if f.name.startswith("ld-linux"))
    with Network() as network:

        def run_script(script, kernel, timeout=400):
            if guest.unpacked(kernel) is None:
                pytest.skip(f"{guest.folder()} has no {kernel}")
            whole = PREAMBLE.format(loader=loader) + script + "\nclean\necho DONE\n"
            out = boot(network, whole, kernel=kernel, files=files, memory_mib=1536, timeout=timeout).out
            if "NO UBLK" in out:
                pytest.skip("the guest's kernel has no ublk driver (CONFIG_BLK_DEV_UBLK): build it anew, make guest")
            assert "DONE" in out, out
            return out

        yield run_script


@in_guest
@kernels
def test_a_block_device(run_in_guest, kernel):
    """The kernel's view of the device, and its data; a file system; detach, attach again, read-only; a stop of the server."""
    run_in_guest("""
attach
[ "$(cat $BLOCK/queue/logical_block_size)" = 4096 ] || fail "logical block"
[ "$(cat $BLOCK/queue/write_cache)" = "write back" ] || fail "the kernel would send no FLUSH"
[ "$(cat $BLOCK/queue/fua)" = 1 ] || fail "no FUA"
[ "$(cat $BLOCK/queue/rotational)" = 0 ] || fail "rotational"
[ "$(cat $BLOCK/queue/optimal_io_size)" = 262144 ] || fail "io_opt $(cat $BLOCK/queue/optimal_io_size)"
[ "$(cat $BLOCK/queue/max_hw_sectors_kb)" = 1024 ] || fail "transfer $(cat $BLOCK/queue/max_hw_sectors_kb)"
[ "$(cat $BLOCK/queue/discard_granularity)" = 4096 ] || fail "discard"
[ "$(cat $BLOCK/size)" = $((96 * 2048)) ] || fail "size"
causeway space show vm | grep -q "AttachedTo.*$DEVICE" || fail "show"
causeway --json space list | grep -q "\\"$DEVICE\\"" || fail "list"
causeway space attach vm --ublk | grep -q "is attached: $DEVICE" || fail "twice"
refused space attach vm --ublk --read-only | grep -q "is attached to $DEVICE" || fail "twice, otherwise"

# Every block with a checksum, read back; shallow and deep, small and larger than a transfer.
for job in "4k 32 4m" "64k 8 16m" "4M 2 24m" "4k-256k 16 12m"; do
  set -- $job
  case $1 in *-*) size=--bsrange=$1 ;; *) size=--bs=$1 ;; esac
  fio --name=v --filename=$DEVICE --direct=1 --ioengine=libaio --rw=randrw $size --iodepth=$2 --size=$3 --verify=crc32c \\
    --verify_fatal=1 --do_verify=1 --eta=never --minimal --output=/tmp/o || { cat /tmp/o; fail "fio $job"; }
  echo "fio $job verified"
done
head -c 16777216 /dev/urandom > /tmp/a
before=$(statistic 16)
dd if=/tmp/a of=$DEVICE bs=1M conv=fsync 2> /dev/null
[ $(statistic 16) -gt $before ] || fail "no FLUSH came"
head -c 16777216 $DEVICE | cmp - /tmp/a || fail "payload"

# Discarded and zeroed ranges read as zeros, and only they; the room goes back to the pool.
had=$(footprint); [ $had -gt 0 ] || fail "footprint"
blkdiscard -o 4096 -l 8192 $DEVICE || fail "blkdiscard of two blocks"
{ head -c 4096 /tmp/a; head -c 8192 /dev/zero; tail -c +12289 /tmp/a; } > /tmp/b
echo 3 > /proc/sys/vm/drop_caches
head -c 16777216 $DEVICE | cmp - /tmp/b || fail "discard"
blkdiscard $DEVICE || fail "blkdiscard of all"
# The next checkpoint frees it.
for i in 1 2 3 4 5 6 7 8 9 10; do now=$(footprint); [ $now -lt $had ] && break; sleep 1; done
[ $now -lt $had ] || fail "footprint $had, then $now"
head -c 16777216 /dev/zero > /tmp/b; head -c 16777216 $DEVICE | cmp - /tmp/b || fail "discard of all"

# A file system; one that is mounted keeps its device.
mke2fs -q -t ext4 $DEVICE || fail mke2fs
mkdir -p /mnt/x; mount -t ext4 -o discard $DEVICE /mnt/x || fail mount
mkdir /mnt/x/d; cp /tmp/a /mnt/x/d/a; sync
refused space detach vm | grep -q "in use" || fail "detached under a file system"
cmp /tmp/a /mnt/x/d/a || fail "after the refusal"

# It grows under the file system, where the driver can resize.
if grow --size 120MiB; then
  [ "$(cat $BLOCK/size)" = $((120 * 2048)) ] || fail "size after the growth: $(cat $BLOCK/size)"
  refused space resize vm --size 96MiB | grep -q "detach it first" || fail "shrunk under a file system"
else
  uname -r | grep -q '^6[.]12' || fail "growth: $(cat /tmp/grown)"
  grep -q "6.16 or newer" /tmp/grown && [ "$(cat $BLOCK/size)" = $((96 * 2048)) ] || fail "growth: $(cat /tmp/grown)"
fi
echo 3 > /proc/sys/vm/drop_caches; cmp /tmp/a /mnt/x/d/a || fail "after the growth"
umount /mnt/x
if [ $(cat $BLOCK/size) = $((120 * 2048)) ]; then
  dd if=/tmp/a of=$DEVICE bs=1M seek=104 conv=fsync 2> /dev/null || fail "beyond the former end"
  echo 3 > /proc/sys/vm/drop_caches; tail -c 16777216 $DEVICE | cmp - /tmp/a || fail "beyond the former end"
fi
causeway space detach vm
[ ! -e $DEVICE ] && [ ! -e /dev/ublkc${DEVICE#/dev/ublkb} ] || fail "left: $(ls /dev/ublk*)"
refused space detach vm | grep -q "not attached" || fail "detached twice"

attach --read-only
[ "$(cat $BLOCK/ro)" = 1 ] || fail "may be written"
! dd if=/tmp/a of=$DEVICE bs=4k count=1 oflag=direct 2> /dev/null || fail "written"
mount -t ext4 -o ro $DEVICE /mnt/x; cmp /tmp/a /mnt/x/d/a || fail "after attaching again"; umount /mnt/x
causeway space detach vm

# A server that stops removes the device, after the page cache has been written back.
attach
mount -t ext4 $DEVICE /mnt/x; cp /tmp/a /mnt/x/late
kill $SERVER; status=0; wait $SERVER || status=$?; [ $status = 0 ] || fail "the server ended with $status"
[ ! -e $DEVICE ] || fail "left after a stop"
umount /mnt/x
start
attach; mount -t ext4 $DEVICE /mnt/x; cmp /tmp/a /mnt/x/late || fail "what was written before the stop"; umount /mnt/x
causeway space detach vm
""", kernel)


@in_guest
@kernels
def test_the_server_is_killed(run_in_guest, kernel):
    """kill -9 under load: users of the device get errors at once and do not hang; the next server removes the remains, and what was
    flushed is there."""
    run_in_guest("""
attach
head -c 8388608 /dev/urandom > /tmp/a
dd if=/tmp/a of=$DEVICE bs=1M conv=fsync 2> /dev/null
fio --name=load --filename=$DEVICE --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --iodepth=32 --offset=16m --size=64m --time_based \\
  --runtime=120 --eta=never --minimal > /tmp/o 2>&1 &
LOAD=$!
begun=$(statistic 5)
until_ '[ $(statistic 5) -gt $((begun + 50)) ]'
kill -9 $SERVER
wait $SERVER || true
until_ '! kill -0 $LOAD 2> /dev/null'
wait $LOAD && fail "the load had no error" || true
until_ '[ ! -e $DEVICE ]'
[ -e /dev/ublkc${DEVICE#/dev/ublkb} ] || fail "nothing is left to delete: this test shows nothing"
start
until_ '[ ! -e /dev/ublkc${DEVICE#/dev/ublkb} ]'
attach
head -c 8388608 $DEVICE | cmp - /tmp/a || fail "what was flushed"
dd if=/tmp/a of=$DEVICE bs=1M seek=16 conv=fsync 2> /dev/null || fail "writing again"
causeway space detach vm
""", kernel)


def test_a_kernel_without_the_driver(kind, serve):
    """An error with its cure, and nothing attached."""
    if kind.name != "causeway":
        pytest.skip("only causeway has block devices")
    if Path("/dev/ublk-control").exists():
        pytest.skip("this machine has the driver")
    server = serve()
    control = {"CAUSEWAY_CONTROL": str(Path(server.sockets.name) / "control.sock")}

    def causeway(*words, status=0):
        return run([Causeway.binary, *words], status=status, env=control)

    disks = [server.folder / f"{name}.disk" for name in "ab"]
    causeway("disk", "create-file", *disks, "--size", "128MiB")
    causeway("pool", "create", "tank", "--assume-atomic", "--disk", *disks)
    causeway("space", "create", "vm", "--pool", "tank", "--size", "48MiB")
    said = causeway("space", "attach", "vm", "--ublk", status=1).out
    assert "no ublk driver" in said and "modprobe ublk_drv" in said, said
    assert "AttachedTo" not in causeway("space", "show", "vm").out
    assert subprocess.run([Causeway.binary, "space", "attach", "vm"], capture_output=True, env=control).returncode == 2
    both = [Causeway.binary, "space", "attach", "vm", "--ublk", "--nbd", "/tmp/x"]
    assert subprocess.run(both, capture_output=True, env=control).returncode == 2
