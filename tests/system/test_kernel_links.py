"""Symbolic links, pipes and devices of the Linux kernel's client, in each of the forms in which it keeps them: reparse
points (MS-FSCC 2.1.2)."""

import shutil

import pytest

from harness import guest
from harness.guest import QEMU, UML
from test_kernel import place  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(guest.unavailable_reason() is not None, reason=str(guest.unavailable_reason()))

# form OPTIONS STEP...: makes links and more with these options; looks at them, also after a new mount; changes them.
FORMS = """
echo out > /tmp/absolute
is() { [ "$1" = "$2" ] || fail "$options: $3: '$1', not '$2'"; }
form() {
  options=$1; shift; steps=" $* "
  mnt /mnt/x cache=none,actimeo=0,closetimeo=0,$options; cd /mnt/x; rm -rf lx; mkdir lx; cd lx
  echo data > file; mkdir dir; echo in > dir/inside
  ln -s file link; ln -s nowhere dangling; ln -s ../../else/file far; ln -s dir on-the-way; ln -s ../file dir/up
  all="link dangling far on-the-way"
  case "$steps" in *" absolute "*) ln -s /tmp/absolute absolute; all="$all absolute" ;; esac
  case "$steps" in *" special "*) mkfifo pipe; mknod chr c 1 3; mknod blk b 7 11; all="$all pipe chr blk" ;; esac
  look; cd /; umount /mnt/x; mnt /mnt/x cache=none,actimeo=0,closetimeo=0,$options; cd /mnt/x/lx; look
  for name in $all; do
    mv $name moved || fail "$options: mv $name"
    [ -L moved -o -p moved -o -c moved -o -b moved ] || fail "$options: $name moved: $(ls -l)"
    rm moved || fail "$options: rm $name"
  done
  rm dir/up; is "$(cat file dir/inside)" "$(printf 'data\\nin')" "what the links led to"
  is "$(ls)" "$(printf 'dir\\nfile')" "what is left"
  cd /; rm -r /mnt/x/lx; umount /mnt/x; clean
}
look() {
  is "$(readlink link)" file link; is "$(cat link)" data "through a link"
  is "$(readlink dangling)" nowhere dangling; ! cat dangling 2> /dev/null || fail "$options: read through a dangling link"
  is "$(readlink far)" ../../else/file "a link that leads out"
  is "$(readlink on-the-way | tr -d /)" dir on-the-way; is "$(cat on-the-way/inside)" in "a link on the way"
  is "$(cat dir/up)" data "a link that leads up"; is "$(cat on-the-way/up)" data "two links"
  is "$(ls -l dir | grep -c '^l')" 1 "links in a listing"
  case "$steps" in *" absolute "*) is "$(readlink absolute)" /tmp/absolute absolute; is "$(cat absolute)" out "through it" ;; esac
  case "$steps" in *" special "*)
    is "$(stat -c '%F %t:%T' pipe chr blk)" "$(printf 'fifo 0:0\\ncharacter special file 1:3\\nblock special file 7:b')" special
    is "$(ls -l | grep -c '^[pcb]')" 3 "special files in a listing" ;;
  esac
}
"""
# Linux 6.12 drops the slash of an absolute link, and shows special files with POSIX extensions as something else; 7.2 keeps
# absolute links in Windows' form as drives only.
OPTIONS = {
    QEMU: ["posix", "reparse=nfs special", "reparse=wsl special"],
    UML: [
        "posix absolute special",
        "symlink=native special",
        "symlink=nfs,reparse=nfs absolute special",
        "symlink=wsl,reparse=wsl absolute special",
    ],
}


@pytest.mark.parametrize("kernel", [UML, QEMU], ids=["um", "qemu"])
def test_links_and_devices(place, kernel):  # noqa: F811
    forms = "".join(f"form {options}\n" for options in OPTIONS[kernel])
    out = place(FORMS + forms + "echo DONE\n", kernel=kernel, timeout=240)
    assert "DONE" in out, out


# A link that the host made: with POSIX extensions it is a link, whose target is the client's matter; without, the server
# follows it inside the share, and shows no other.
HOST = """
echo out > /tmp/absolute
mnt /mnt/x cache=none,actimeo=0,closetimeo=0,posix; cd /mnt/x/host
is() { [ "$1" = "$2" ] || fail "$3: '$1', not '$2'"; }
is "$(ls -l | grep -c '^lrwxrwxrwx')" 6 "links in a listing: $(ls -l)"
is "$(readlink link)" file link; is "$(cat link)" data "through a link"
is "$(readlink dangling)" no/where dangling; ! cat dangling 2> /dev/null || fail "read through a dangling link"
is "$(readlink on-the-way)" dir on-the-way; is "$(cat on-the-way/inside)" in "a link on the way"
is "$(readlink far)" ../../../etc/passwd far
is "$(readlink absolute)" /tmp/absolute absolute
mv link dir/moved; is "$(readlink dir/moved)" file moved; rm dir/moved dangling far absolute on-the-way
is "$(cat file dir/inside)" "$(printf 'data\\nin')" "what the links led to"
cd /; umount /mnt/x; mnt /mnt/x cache=none,actimeo=0; cd /mnt/x/host
is "$(cat followed/inside)" in "followed by the server"; is "$(ls)" "$(printf 'dir\\nfile\\nfollowed')" "without POSIX"
cd /; umount /mnt/x; clean; echo DONE
"""


@pytest.mark.parametrize("kernel", [UML, QEMU], ids=["um", "qemu"])
def test_links_of_the_host(place, kernel):  # noqa: F811
    folder = place.server.path() / "host"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "dir").mkdir(parents=True)
    for name, text in (("file", "data\n"), ("dir/inside", "in\n")):
        (folder / name).write_text(text)
    links = {"link": "file", "dangling": "no/where", "on-the-way": "dir", "followed": "dir", "absolute": "/tmp/absolute"}
    links["far"] = "../../../etc/passwd"
    for name, target in links.items():
        (folder / name).symlink_to(target)
    out = place(HOST, kernel=kernel, timeout=120)
    assert "DONE" in out, out
