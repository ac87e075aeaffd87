"""Ownership and mode from the Linux kernel's client: idsfromsid, modefromsid, cifsacl; and SMB 3.1.1 POSIX extensions.

The client writes a security descriptor with owner S-1-5-88-1-UID, group S-1-5-88-2-GID and mode S-1-5-88-3-MODE.
"""

import pytest

from harness import guest
from harness.guest import QEMU, UML
from test_kernel import place  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(guest.why_not() is not None, reason=str(guest.why_not()))
POSIX = pytest.mark.skip(reason="the server has no POSIX extensions yet")

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


# What a Linux file system does and an SMB server without the extensions does not.
POSIX_BASICS = """
mnt /mnt/x posix,cache=none
grep -m1 ' cifs ' /proc/mounts | tr , '\\n' | grep -qx posix || fail "no POSIX extensions in /proc/mounts"
cd /mnt/x; rm -rf px; mkdir px; cd px
umask 022
: > file; mkdir folder
[ $(stat -c %a file) = 644 ] && [ $(stat -c %a folder) = 755 ] || fail "modes $(stat -c '%n %a' file folder)"
chmod 640 file; [ $(stat -c %a file) = 640 ] || fail "chmod: $(stat -c %a file)"
(umask 077; : > private); [ $(stat -c %a private) = 600 ] || fail "umask: $(stat -c %a private)"
: > Case; : > case; [ "$(ls -d [Cc]ase | wc -l)" = 2 ] || fail "names are not case sensitive"
: > 'a:b'; : > 'a*b?'; : > 'trailing.'; [ "$(ls | grep -c '[:*.]')" = 3 ] || fail "names: $(ls)"
echo linked > one; ln one two; [ $(stat -c %h one) = 2 ] || fail "links: $(stat -c %h one)"
echo kept > gone; exec 3< gone; rm gone; [ ! -e gone ] && [ "$(cat <&3)" = kept ] || fail "unlinked while open"; exec 3<&-
echo new > from; echo old > onto; exec 3< onto; mv from onto; [ "$(cat onto)$(cat <&3)" = newold ] || fail "renamed over an open file"; exec 3<&-
ls -l | sort -k9
cd /; rm -r /mnt/x/px || fail delete
umount /mnt/x; clean; echo DONE
"""


@POSIX
@pytest.mark.parametrize("kernel", [UML, QEMU], ids=["um", "qemu"])
def test_posix_extensions(place, kernel):  # noqa: F811
    out = place(POSIX_BASICS, kernel=kernel, timeout=180)
    assert "DONE" in out, out
