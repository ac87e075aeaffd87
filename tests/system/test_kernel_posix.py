"""Ownership and mode from the Linux kernel's client: idsfromsid, modefromsid, cifsacl; and SMB 3.1.1 POSIX extensions.

The client writes a security descriptor with owner S-1-5-88-1-UID, group S-1-5-88-2-GID and mode S-1-5-88-3-MODE.
"""

import pytest

from harness import guest
from harness.guest import QEMU, UML
from test_kernel import place  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(guest.unavailable_reason() is not None, reason=str(guest.unavailable_reason()))

# Files and folders are created with the option alone, then changed; a new mount sees the same.
CREATE = """
mnt /mnt/x {options}
cd /mnt/x; rm -rf ids; mkdir ids; cd ids
umask 022
echo one > plain; [ "$(cat plain)" = one ] || fail "a file"
mkdir folder; echo two > folder/inside; : > empty
head -c 3000000 /dev/urandom > /tmp/a; cp /tmp/a big; cmp /tmp/a big || fail "three megabytes"
mv plain moved; rm empty
[ "$(ls)" = "$(printf 'big\\nfolder\\nmoved')" ] || fail "listed: $(ls)"
{more}
cd /; umount /mnt/x; mnt /mnt/x {options}; cd /mnt/x/ids
cmp /tmp/a big || fail "after a new mount"
{check}
cd /; rm -r /mnt/x/ids || fail delete
umount /mnt/x; clean; echo DONE
"""
MODES = """
for mode in 600 640 644 700 755 1777; do echo m > m$mode; chmod $mode m$mode || fail "chmod $mode"; done
"""
MODES_CHECK = """
for mode in 600 640 644 700 755 1777; do [ $(stat -c %a m$mode) = $mode ] || fail "$mode is $(stat -c %a m$mode)"; done
"""
OWNERS = """
echo o > owned; chown 1234:2345 owned || fail chown
"""
OWNERS_CHECK = """
[ "$(stat -c %u:%g owned)" = 1234:2345 ] || fail "owned by $(stat -c %u:%g owned)"
"""
CASES = {
    "idsfromsid": ("idsfromsid,cifsacl", OWNERS, OWNERS_CHECK),
    "modefromsid": ("modefromsid", MODES, MODES_CHECK),
    "modefromsid,idsfromsid": ("modefromsid,idsfromsid,cifsacl", MODES + OWNERS, MODES_CHECK + OWNERS_CHECK),
    "cifsacl": ("cifsacl", "", ""),
}


@pytest.mark.parametrize("kernel", [UML, QEMU], ids=["um", "qemu"])
@pytest.mark.parametrize("case", CASES)
def test_unix_sids(place, case, kernel):  # noqa: F811
    options, more, check = CASES[case]
    out = place(CREATE.format(options=f"{options},cache=none", more=more, check=check), kernel=kernel, timeout=180)
    assert "DONE" in out, out


# What a Linux file system does and an SMB server without the extensions does not. Linux 7.2 shows a file that it keeps open
# after its close with the mount's mode instead of the file's, so handles and attributes are not kept here. Linux looks a name
# up by the handle that it has open under that name, if there is one, whatever became of the name: a second connection shows
# what names mean.
POSIX_BASICS = """
mnt /mnt/x posix,cache=none,actimeo=0,closetimeo=0
grep -m1 ' cifs ' /proc/mounts | tr , '\\n' | grep -qx posix || fail "no POSIX extensions in /proc/mounts"
cd /mnt/x; rm -rf px; mkdir px; cd px
umask 022
: > file; mkdir folder
[ $(stat -c %a file) = 644 ] && [ $(stat -c %a folder) = 755 ] || fail "modes $(stat -c '%n %a' file folder)"
for mode in 640 400 755 1644 4755; do
  chmod $mode file; [ $(stat -c %a file) = $mode ] || fail "chmod $mode: $(stat -c %a file)"
done
chmod 700 folder; [ $(stat -c %a folder) = 700 ] || fail "chmod of a directory: $(stat -c %a folder)"
(umask 077; : > private; mkdir closed); [ "$(stat -c %a private closed)" = "$(printf '600\\n700')" ] || fail "umask: $(stat -c %a private closed)"
: > Case; : > case; [ "$(ls -d [Cc]ase | wc -l)" = 2 ] || fail "names are not case sensitive"
[ ! -e CASE ] || fail "a name in another case"
echo upper > Case; echo lower > case; mv case CASE; [ "$(cat Case CASE)" = "$(printf 'upper\\nlower')" ] || fail "renamed over another case"
mkdir Dir dir; : > Dir/x; [ ! -e dir/x ] || fail "directories in two cases"
for name in 'a:b' 'a*b?' '<"|>' 'trailing.' 'trailing '; do
  echo "$name" > "$name"; [ "$(cat "$name")" = "$name" ] || fail "name: $name"
done
[ "$(ls | grep -c '[:*.|]')" = 4 ] || fail "names: $(ls)"
mv 'a:b' 'c:d'; [ "$(cat 'c:d')" = 'a:b' ] || fail "renamed to a name with a colon"
echo linked > one; ln one two; [ $(stat -c %h one) = 2 ] || fail "links: $(stat -c %h one)"
mnt /mnt/y posix,cache=none,actimeo=0,closetimeo=0,nosharesock; y=/mnt/y/px
echo kept > gone; exec 3< gone; rm gone; [ ! -e $y/gone ] || fail "still there after unlink"
[ "$(cat <&3)" = kept ] || fail "unlinked while open"
echo again > $y/gone; exec 3<&-; [ "$(cat $y/gone)" = again ] || fail "closing an unlinked file removed another"
echo new > from; echo old > onto; exec 3< onto; mv from onto || fail "renaming over an open file"
[ "$(cat $y/onto)$(cat <&3)" = newold ] || fail "renamed over an open file"
exec 3<&-; [ "$(cat $y/onto)" = new ] || fail "closing a replaced file"
umount /mnt/y
ls -l | sort -k9
[ "$(stat -f -c %s /mnt/x)" -gt 0 ] && [ "$(stat -f -c %b /mnt/x)" -gt 0 ] || fail "statfs: $(stat -f /mnt/x)"
cd /; umount /mnt/x; mnt /mnt/x posix,cache=none; cd /mnt/x/px
[ $(stat -c %a file) = 4755 ] && [ $(stat -c %a private) = 600 ] || fail "modes after a new mount: $(ls -l)"
[ "$(ls -l | grep -c '^-rw-------.* private$')" = 1 ] || fail "modes in a listing: $(ls -l)"
cd /; rm -r /mnt/x/px || fail delete
umount /mnt/x; clean; echo DONE
"""


@pytest.mark.parametrize("kernel", [UML, QEMU], ids=["um", "qemu"])
def test_posix_extensions(place, kernel):  # noqa: F811
    out = place(POSIX_BASICS, kernel=kernel, timeout=180)
    assert "DONE" in out, out
