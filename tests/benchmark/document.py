"""Writes the measured tables into docs/performance.md, between their marks; all other lines are written by hand."""

import os
import platform
import re
import shlex
import subprocess
import textwrap
import time

from . import ROOT

DOCUMENT = ROOT / "docs" / "performance.md"


def command_output(*words):
    """The first line that a command prints; nothing where it fails or is not there."""
    try:
        run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return run.stdout.strip().partition("\n")[0]


def origin(words, *, smbd):
    """Place, time and conditions of the measurement, as a paragraph. `words`: of the command line."""
    model = re.search(r"^model name\s*: (.*)$", open("/proc/cpuinfo").read(), re.M)
    release = re.search(r'^PRETTY_NAME="?([^"\n]*)', open("/etc/os-release").read(), re.M)
    kind = "virtual machine" if re.search(r"^flags.*\bhypervisor\b", open("/proc/cpuinfo").read(), re.M) else "machine"
    parts = [
        time.strftime("%Y-%m-%d", time.gmtime()),
        f"a {kind} with {os.cpu_count()} cores ({model.group(1).strip() if model else platform.machine()})",
        release.group(1) if release else "",
        f"Linux {platform.release()}",
        f"file system {command_output('findmnt', '-no', 'FSTYPE', '-T', 'target')}",
        command_output("smbd", "--version").replace("Version", "smbd") if smbd else "",
        f"commit {command_output('git', 'describe', '--always', '--dirty= with local changes', '--exclude=*')}",
        "another binary (CAUSEWAY_BIN)" if "CAUSEWAY_BIN" in os.environ else "",
        f"`{shlex.join(['scripts/bench', *words])}`",
        f"load average {os.getloadavg()[0]:.1f} at the end",
    ]
    return ", ".join(p for p in parts if p) + "."


def wrapped(line):
    """A paragraph in lines of at most 120 characters; a row of a table, and code in it, stay on one line."""
    if line.startswith("|"):
        return line
    whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), line)
    return textwrap.fill(whole, 120, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def write(section, text):
    """Puts `text` between the marks of a section."""
    text = "\n".join(wrapped(line) for line in text.split("\n"))
    begin, end = (f"<!-- {section}: {what} -->" for what in ("measured, by scripts/bench --write", "end"))
    before, found, rest = DOCUMENT.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"bench: {DOCUMENT.relative_to(ROOT)} has no line {begin!r} with {end!r} after it")
    DOCUMENT.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")
