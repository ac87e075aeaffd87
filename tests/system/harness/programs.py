"""Running other people's programs: with a deadline, and with everything they said in the failure."""

import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import termios
import time


class Failed(AssertionError):
    """A program ended with another status than the test asked for, or did not end in time."""


class Result:
    """What a finished program said. `out` holds standard output and standard error as one text."""

    def __init__(self, command, status, out, seconds):
        self.command, self.status, self.out, self.seconds = command, status, out, seconds

    def __str__(self):
        return f"$ {shlex.join(map(str, self.command))}\n{self.out}[status {self.status}, {self.seconds:.1f} s]"


def run(command, *, status=0, timeout=60, stdin=None, env=None, cwd=None):
    """Runs a program to its end. `status` is what it must exit with; None accepts any, "failure" any but 0."""
    began = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command], stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}, cwd=cwd,
        start_new_session=True)
    try:
        out, _ = process.communicate(stdin, timeout=timeout)
        late = False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, _ = process.communicate()
        late = True
    result = Result(command, process.returncode, out.decode(errors="replace"), time.monotonic() - began)
    if late:
        raise Failed(f"{result}\nit did not end within {timeout} s")
    if status == "failure" and result.status == 0 or isinstance(status, int) and result.status != status:
        raise Failed(f"{result}\nexpected status: {status}")
    return result


def until(condition, *, timeout, what):
    """Asks `condition` again and again; returns its first true value, and fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failed(f"not within {timeout} s: {what}")
        time.sleep(0.02)


def in_terminal(command, columns, *, env=None, timeout=30):
    """Runs a program in a terminal of that many columns; all that it draws, and its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                               env={**os.environ, "TERM": "xterm", **(env or {})})
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 65536)
        except OSError:
            break  # Linux says EIO when the last writer has gone
    os.close(ours)
    return said.decode().replace("\r\n", "\n"), process.wait(timeout)


def plain(text):
    """Without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
