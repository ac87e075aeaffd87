"""The guides, as a reader follows them: their commands in order, with the paths and ports that they name, in file systems and a network of
their own. In place of systemd a script starts and stops the server."""

import os
import re
import shutil
import subprocess

import pytest

from harness import ROOT
from harness.servers import Causeway

pytestmark = [
    pytest.mark.skipif(not Causeway.binary.exists(), reason="causeway is not built"),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root"),
    pytest.mark.skipif(shutil.which("qemu-io") is None, reason="qemu-io is missing: scripts/setup test"),
]

SYSTEMCTL = """#!/bin/bash
pid=/run/guide.pid
stop() { [ ! -e $pid ] || { kill "$(cat $pid)"; while [ -e "/proc/$(cat $pid)" ]; do sleep 0.05; done; rm $pid; }; }
start() {
  [ ! -e $pid ] || return 0
  mkdir -p /run/causeway /var/lib/causeway
  STATE_DIRECTORY=/var/lib/causeway setsid causeway serve >>/run/guide.log 2>&1 </dev/null &
  echo $! >$pid
  for _ in {1..100}; do causeway status >/dev/null 2>&1 && return 0; sleep 0.1; done
  cat /run/guide.log; return 1
}
case "$*" in
"enable --now causeway" | "start causeway") start ;;
"stop causeway") stop ;;
"restart causeway") stop; start ;;
*) echo "systemctl $*: not in this test" >&2; exit 1 ;;
esac
"""

# /etc, /var/lib and so on are the machine's, and what is written there goes into memory.
PREPARE = """
set -eu
ip link set lo up
mount -t tmpfs tmpfs "$LAYERS"
for place in /etc /var/lib /srv /root; do
  mkdir -p $LAYERS/$place/upper $LAYERS/$place/work
  mount -t overlay overlay -o lowerdir=$place,upperdir=$LAYERS/$place/upper,workdir=$LAYERS/$place/work $place
done
mount -t tmpfs tmpfs /run
rm -rf /etc/causeway /var/lib/causeway
causeway setup --yes --name GUIDE >/dev/null
trap 'systemctl stop causeway' EXIT
"""


def fenced(guide):
    """The blocks of a guide, each with its language."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / "docs" / guide).read_text(), re.MULTILINE | re.DOTALL)


def run_in_order(scratch, name, before, blocks):
    folder = scratch / name
    (folder / "bin").mkdir(parents=True)
    (folder / "layers").mkdir()
    (folder / "bin" / "systemctl").write_text(SYSTEMCTL)
    (folder / "bin" / "systemctl").chmod(0o755)
    (folder / "bin" / "causeway").symlink_to(Causeway.binary)
    script = folder / "script"
    script.write_text(PREPARE + before + "".join(f"echo '--- block {n}'\nset -x\n{block}\n{{ set +x; }} 2>/dev/null\n" for n, block in enumerate(blocks)))
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "LAYERS": str(folder / "layers"), "HOME": "/root"}
    environment.pop("CAUSEWAY_CONTROL", None)
    ran = subprocess.run(["unshare", "--mount", "--net", "bash", "-o", "pipefail", script], env=environment, text=True, timeout=180,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert ran.returncode == 0, ran.stdout[-6000:]
    return ran.stdout


def test_operating(scratch):
    """Every block of `sh`."""
    blocks = [block for language, block in fenced("operating.md") if language == "sh"]
    assert len(blocks) >= 7
    said = run_in_order(scratch, "operating", "", blocks)
    assert "nothing is wrong" in said or "there are no pools" in said
    assert "user alice removed" in said


def test_pools(scratch):
    """Every line after a prompt."""
    lines = [line[2:] for _, block in fenced("pools.md") for line in block.splitlines() if line.startswith("$ ")]
    assert len(lines) >= 7
    before = """
printf '[storage]\\ndevices = ["/var/lib/causeway/disks/*.disk"]\\n' >>/etc/causeway/causeway.toml
mkdir -p /var/lib/causeway/disks
mount -t tmpfs tmpfs /var/lib/causeway/disks
systemctl start causeway
"""
    said = run_in_order(scratch, "pools", before, lines)
    assert "pool tank created from 3 disks" in said
