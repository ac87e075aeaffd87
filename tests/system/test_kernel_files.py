"""Files on a pool: the commands and files of docs/pools-files.md, as they are, in a guest whose kernel has ublk and XFS. The guest has neither
systemd nor udev: stand-ins read the recipe's units and obey BindsTo, After, WantedBy, What, ExecStart and ExecStartPost."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness import ROOT, guest
from harness.programs import run
from test_kernel_ublk import in_guest, libraries

RECIPE = ROOT / "docs" / "pools-files.md"
PROGRAMS = ["mkfs.xfs", "cp"]

# A command of the recipe fails loudly, and the test's own checks with `fail`.
STAND_INS = r"""
set -e
export PATH=/usr/bin:/usr/sbin:/sbin:/bin
[ -e /dev/ublk-control ] && grep -q xfs /proc/filesystems || { echo "NO DRIVER"; exit 0; }
fail() { echo "FAILED: $*"; tail -n 30 /tmp/*.log; dmesg | tail -20; exit 1; }
until_() { n=0; until eval "$1"; do n=$((n+1)); [ $n -lt 300 ] || fail "waited for: $1"; sleep 0.1; done; }
# Programs of the host, with their libraries.
for program in causeway mkfs.xfs cp; do
  rm -f /usr/bin/$program
  printf '#!/bin/sh\nexec /files/LOADER --library-path /files /files/%s "$@"\n' $program > /usr/bin/$program
  chmod 755 /usr/bin/$program
done
rm -f /bin/cp
causeway() {
  case "$1 $2" in
  "user add") echo 'correct horse 7' | /usr/bin/causeway "$@" --password-stdin ;;
  *) /usr/bin/causeway "$@" ;;
  esac
}
mkdir -p /etc/modules-load.d /etc/udev/rules.d /etc/causeway /dev/disk/by-label /var/lib /tmp/enabled
modprobe() { [ "$*" = ublk_drv ]; }

UNITS=/etc/systemd/system
key() { sed -n "s/^$2=//p" $UNITS/$1; }
# with KEY UNIT: the units that have it
with() { (cd $UNITS; grep -lx "$1=$2" * 2> /dev/null || true); }
active() {
  case $1 in
  *.mount) grep -q " $(key $1 Where) " /proc/mounts ;;
  *) [ -e /tmp/$1.pid ] && kill -0 $(cat /tmp/$1.pid) 2> /dev/null ;;
  esac
}
start() {
  for other in $(key $1 BindsTo) $(key $1 After | grep -v network || true); do active $other || fail "$1 starts before $other"; done
  active $1 && return
  case $1 in
  *.mount)
    # A restart does not wait for the device: its job was queued while the old one was there.
    [ -b $(key $1 What) ] || fail "$1 starts before its device"
    mkdir -p $(key $1 Where)
    mount -t $(key $1 Type) -o $(key $1 Options) $(key $1 What) $(key $1 Where) || fail "$1" ;;
  *)
    rm -f /tmp/$1.log; : > /tmp/$1.log
    state=/var/lib/$(key $1 StateDirectory)
    mkdir -p $state /run/$(key $1 RuntimeDirectory)
    STATE_DIRECTORY=$state $(key $1 ExecStart) >> /tmp/$1.log 2>&1 &
    echo $! > /tmp/$1.pid
    until_ "grep -q ready /tmp/$1.log || ! active $1"
    active $1 || fail "$1 ended"
    $(cat $UNITS/$1.d/*.conf 2> /dev/null | sed -n 's,^ExecStartPost=[-+]*/usr/bin/,,p') || fail "$1: ExecStartPost" ;;
  esac
  for other in $(with WantedBy $1); do [ ! -e /tmp/enabled/$other ] || start $other; done
}
stop() {
  for other in $(with BindsTo $1); do stop $other; done
  active $1 || return 0
  case $1 in
  *.mount) umount $(key $1 Where) || fail "umount" ;;
  *) kill $(cat /tmp/$1.pid); wait $(cat /tmp/$1.pid) || fail "$1 ended with $?" ;;
  esac
}
# It dies, and Restart=on-failure.
die() {
  kill -9 $(cat /tmp/$1.pid)
  wait $(cat /tmp/$1.pid) || true
  stop $1
  start $1
}
systemctl() {
  case $1 in
  daemon-reload) ;;
  restart) stop $2; start $2 ;;
  enable) touch /tmp/enabled/$3; [ "$(key $3 WantedBy)" ] || fail "$3 is wanted by nothing"; start $3 ;;
  *) fail "systemctl $*" ;;
  esac
}
# The link that the rule makes.
udevadm() {
  case "$1 $2" in
  'trigger --settle') [ -b $3 ] || fail "udevadm $*"; links ;;
  'wait --timeout=60') until_ "links && [ -b $3 ]" ;;
  *) fail "udevadm $*" ;;
  esac
}
links() {
  grep -q 'KERNEL=="ublkb\*".*SYMLINK+="disk/by-label/' /etc/udev/rules.d/*.rules || fail "no rule makes the link"
  ! findfs LABEL=files > /tmp/device 2> /dev/null || ln -sf $(cat /tmp/device) /dev/disk/by-label/files
}

# What the recipe takes for granted: the packaged unit, its configuration, a pool.
mkdir -p $UNITS /tmp/disks
cat /files/causeway.service > $UNITS/causeway.service
cat > /etc/causeway/causeway.toml <<END
[server]
listen = ["127.0.0.1:4450"]
[storage]
devices = ["/tmp/disks/*.disk"]
END
touch /tmp/enabled/causeway.service
causeway user add admin --users /etc/causeway/users.toml
start causeway.service
causeway disk create-file /tmp/disks/a.disk /tmp/disks/b.disk /tmp/disks/c.disk --size 256MiB
causeway pool create tank --assume-atomic --disk /tmp/disks/a.disk /tmp/disks/b.disk /tmp/disks/c.disk
"""

CHECKS = r"""
url=smb://alice@127.0.0.1/files
export CAUSEWAY_PASSWORD='correct horse 7'
used() { df -Pk /srv/files | awk 'END { print $3 }'; }
head -c 16777216 /dev/urandom > /tmp/a
causeway put /tmp/a $url/a || fail put
cmp /tmp/a /srv/files/a || fail "the share is not the mount"
# What XFS has allocated ahead of the file is not what the copy takes.
systemctl restart srv-files.mount
before=$(used)
COPY
sync; after=$(used)
cmp /tmp/a /srv/files/b || fail "the copy"
echo "the copy took $((after - before)) KiB"
[ $((after - before)) -lt 4096 ] || fail "the copy took $((after - before)) KiB"
printf changed | dd of=/srv/files/b conv=notrunc 2> /dev/null
cmp /tmp/a /srv/files/a || fail "the original of a changed copy"
sync

there() {
  for unit in causeway.service srv-files.mount causeway-files.service; do active $unit || fail "$unit after $1"; done
  causeway get $url/a /tmp/back || fail "get after $1"
  cmp /tmp/a /tmp/back || fail "the file after $1"
  head -c 7 /srv/files/b | grep -q changed || fail "the copy after $1"
  rm /tmp/back
  echo "THERE after $1"
}
systemctl restart causeway.service
there "a restart"
die causeway.service
there "kill -9"
! dmesg | grep -E 'BUG:|WARNING:|Oops|Call Trace|stuck for|hung' || fail "the kernel complained"
stop causeway.service
echo DONE
"""


def blocks():
    """The recipe's blocks in order: ("sh", commands), or (path, contents) for each file."""
    for kind, body in re.findall(r"^```(\w+)\n(.*?)^```$", RECIPE.read_text(), re.M | re.S):
        if kind == "sh":
            yield kind, body
        else:
            parts = re.split(r"^# (/\S+)\n", body, flags=re.M)
            assert parts[0] == "", "a file begins with its name"
            yield from zip(parts[1::2], parts[2::2])


def recipe():
    """The recipe as a script: its files are written, its commands run. And its copy by reflink."""
    script = []
    for name, body in blocks():
        if name == "sh":
            script += [f"echo '+ {line}'\n{line} || fail recipe" for line in body.splitlines()]
        else:
            script.append(f"mkdir -p {Path(name).parent}\ncat > {name} <<'END'\n{body}END")
    return "\n".join(script) + "\n", re.search(r"`(cp --reflink=always [^`]+)`", RECIPE.read_text())[1]


@pytest.fixture(scope="module")
def programs(kind, scratch):
    if kind.name != "causeway":
        pytest.skip("only causeway has pools")
    missing = [p for p in PROGRAMS if shutil.which(p) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} missing: scripts/setup test")
    binary = scratch / "causeway"
    run(["strip", "-o", binary, kind.binary])
    whole = [binary, *(Path(shutil.which(p)) for p in PROGRAMS)]
    return [*whole, *libraries(whole), ROOT / "packaging" / "causeway.service"]


@in_guest
def test_the_recipe_for_files_on_a_pool(programs):
    kernel = "vmlinuz-7*"
    if guest.unpacked(kernel) is None:
        pytest.skip(f"{guest.folder()} has no {kernel}")
    loader = next(p.name for p in programs if p.name.startswith("ld-linux"))
    commands, copy = recipe()
    script = STAND_INS.replace("LOADER", loader) + commands + CHECKS.replace("COPY", copy)
    with guest.Network() as network:
        out = guest.boot(network, script, kernel=kernel, files=programs, memory_mib=2048, timeout=300).out
    if "NO DRIVER" in out:
        pytest.skip("the guest's kernel has no ublk driver or no XFS: build it anew, make guest")
    assert "DONE" in out, out


def test_the_units_are_what_systemd_takes(tmp_path):
    """systemd-analyze finds nothing wrong with the recipe's units."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing")
    system = "/etc/systemd/system/"
    units = {name.removeprefix(system): body for name, body in blocks() if name.startswith(system)}
    assert len(units) == 4
    units["causeway.service"] = (ROOT / "packaging" / "causeway.service").read_text()
    for name, body in units.items():
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(body.replace("/usr/bin/causeway", "/bin/true"))
        place.chmod(0o644)
    names = [tmp_path / name for name in ("causeway.service", "srv-files.mount", "causeway-files.service")]
    told = subprocess.run(["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True,
                          env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"})
    ours = [line for line in told.stderr.splitlines() if "causeway" in line or "srv-files" in line]
    assert not ours, told.stderr
