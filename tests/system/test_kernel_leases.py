"""What the Linux kernel's client caches under leases of files and directories is given up when something changes: on the
server's host, or by another client. The mount has the client's default options, so its caches are on."""

import shutil

import pytest

from harness import guest
from harness.guest import QEMU, UML, Network
from harness.programs import run
from test_kernel import PREAMBLE

pytestmark = pytest.mark.skipif(guest.unavailable_reason() is not None, reason=str(guest.unavailable_reason()))

# `seen WHAT COMMAND...`: waits until the command succeeds, and tells how long that took.
SCRIPT = """
seen() {{
  what=$1; shift; began=$(cut -d. -f1 /proc/uptime)
  until eval "$@"; do
    [ $(($(cut -d. -f1 /proc/uptime) - began)) -lt 20 ] || {{ ls -l /mnt/x /mnt/x/folder; cat /proc/fs/cifs/open_files; fail "not seen: $what"; }}
    sleep $PAUSE
  done
  echo SEEN $what after $(($(cut -d. -f1 /proc/uptime) - began)) s
}}
PAUSE=0.2
mnt /mnt/x
cd /mnt/x
echo one > held; echo one > closed; mkdir folder; echo 1 > folder/first; echo 1 > folder/second
exec 9< held
[ "$(cat held)" = one ] && [ "$(cat closed)" = one ] || fail "read"
[ "$(ls folder)" = "$(printf 'first\\nsecond')" ] || fail "listed"
ls folder > /dev/null; ls -l folder > /dev/null
# The client keeps the closed file's handle under its lease for a moment: the link has to ask for it.
ln closed linked || fail "a link to a file that was just closed"
[ "$(cat linked)" = one ] || fail "what is linked"
# 6.12 does not tell.
! grep -q '<lease' /proc/fs/cifs/open_files || grep -E 'held R' /proc/fs/cifs/open_files || {{ cat /proc/fs/cifs/open_files; fail "no lease"; }}
echo READY > /mnt/x/ready
seen "a file made on the host" '[ -e folder/third ]'
seen "a file removed on the host" '[ ! -e folder/first ]'
seen "a file renamed on the host" '[ "$(ls folder)" = "$(printf "renamed\\nthird")" ]'
seen "a closed file written on the host" '[ "$(cat closed)" = two ]'
seen "an open file written on the host" '[ "$(cat held)" = two ]'
echo HOST-DONE
seen "an open file written by another client" '[ "$(cat held)" = three ]'
seen "a file made by another client" '[ -e folder/fourth ]'
exec 9<&-
cd /; umount /mnt/x; clean; echo DONE
"""


@pytest.mark.parametrize("kernel", [UML, QEMU], ids=["um", "qemu"])
def test_changes_are_seen(kind, serve, tmp_path, kernel):
    with Network(mtu=4000) as network:
        server = serve(host=guest.HOST, port=445, iwarp_port=5445, prefix=network.prefix)
        client = guest.Guest(network, PREAMBLE.format(server=server) + SCRIPT.format(), kernel=kernel)
        place = server.path()

        def until(said):
            guest.until(lambda: said() or client.process.poll() is not None, timeout=120, what="the client")

        try:
            until((place / "ready").exists)
            (place / "folder" / "third").write_text("3\n")
            (place / "folder" / "first").unlink()
            (place / "folder" / "second").rename(place / "folder" / "renamed")
            for name in ("closed", "held"):
                (place / name).write_text("two\n")
            until(lambda: "HOST-DONE" in client.output())
            assert client.process.poll() is None, client.output()
            (tmp_path / "three").write_text("three\n")
            for name in ("held", "folder\\fourth"):
                run([*server.prefix, "smbclient", server.unc(), "-p", server.port, "-U", f"{server.user}%{server.password}",
                     "-c", f"put {tmp_path / 'three'} {name}"])
            result = client.wait(120)
        finally:
            client.kill()
            shutil.rmtree(client.work, ignore_errors=True)
        print("\n".join(line for line in result.out.splitlines() if line.startswith("SEEN")))
        assert result.status == 0 and "DONE" in result.out, str(result)
