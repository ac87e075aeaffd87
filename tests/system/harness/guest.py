"""The Linux kernel as a client (or as ksmbd, a server): small guests in a network namespace of their own.

`Network` is a namespace that lives exactly as long as the process that holds it, so that nothing is left behind
however the tests end: a bridge at 10.77.0.1 for servers on the host, tap devices for QEMU and veth pairs for user-mode
Linux. `Guest` boots a kernel, runs one shell script in it and gives back what it said. There is no shell to log in to.

The guest's own conventions (tests/guest/init): the kernel's command line has guest.ip, guest.mtu, guest.out (where the
script's output goes) and guest.files (user-mode Linux: a folder of the host); /files holds the script and its files; the
last line of the output is "GUEST-EXIT status".
"""

import lzma
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from . import ROOT
from .programs import Failed, Result, run, until

HOST = "10.77.0.1"
HOST_TOO = "10.77.0.9"
UML = "linux-um-*"
QEMU = "vmlinuz-6*"
STOPPED = 125


def folder():
    """Where the guest's built files are: CAUSEWAY_GUEST, or what `make guest` built; None when there is neither."""
    for place in (os.environ.get("CAUSEWAY_GUEST"), ROOT / "target" / "guest"):
        if place and any(Path(place).glob("initramfs.cpio*")):
            return Path(place)
    return None


def unavailable_reason():
    """Why no guest can be booted here, or None."""
    if folder() is None:
        return "NO GUEST: the Linux kernel's client was not tried. Set CAUSEWAY_GUEST to a folder with its files, or run `make guest`."
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "NO GUEST: /dev/net/tun cannot be opened here"
    try:
        Network().close()
    except Failed as failed:
        return f"NO GUEST: no network namespace can be made here (try as root): {failed}"
    return None


def unpacked(pattern):
    """A guest file as a plain file (of several, the newest version); compressed ones are unpacked once into
    target/guest-unpacked."""
    names = sorted({file.name.removesuffix(".xz") for end in ("", ".xz") for file in folder().glob(pattern + end)})
    if not names:
        return None
    name = names[-1]
    plain, packed = folder() / name, folder() / f"{name}.xz"
    if plain.exists():
        return plain
    state = packed.stat()
    place = ROOT / "target" / "guest-unpacked" / f"{state.st_size}-{int(state.st_mtime)}" / name
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as out, lzma.open(packed) as data:
            shutil.copyfileobj(data, out, 1 << 20)
        os.chmod(out.name, 0o755)
        os.rename(out.name, place)
    return place


class Namespace:
    """A network namespace with a loopback device, and with `mounts` a mount namespace too. `prefix` before a command runs
    it inside."""

    def __init__(self, mounts=False):
        users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        kinds = ["--net", *(["--mount"] if mounts else [])]
        # It ends when its standard input does: with us, whatever becomes of us.
        self.holder = subprocess.Popen(["unshare", *users, *kinds, "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, start_new_session=True)
        ours = os.readlink("/proc/self/ns/net")
        path = f"/proc/{self.holder.pid}/ns/net"
        until(lambda: self.holder.poll() is not None or os.readlink(path) != ours and self.is_cat(), timeout=10, what="a network namespace")
        if self.holder.poll() is not None:
            raise Failed(self.holder.stderr.read().decode())
        self.prefix = ["nsenter", f"--target={self.holder.pid}", *kinds, *(["--user", "--preserve-credentials"] if users else []), "--"]
        self.ip("link set lo up")

    def is_cat(self):
        try:
            return Path(f"/proc/{self.holder.pid}/comm").read_text() == "cat\n"
        except OSError:
            return True

    def ip(self, *commands):
        run([*self.prefix, "ip", "-batch", "-"], stdin="\n".join(commands).encode() + b"\n")

    def run(self, *command, **options):
        return run([*self.prefix, *command], **options)

    def close(self):
        self.holder.stdin.close()
        self.holder.wait(10)


class Network(Namespace):
    """A network namespace with the bridge and the devices of guests."""

    def __init__(self, mtu=1500):
        super().__init__()
        self.mtu = mtu
        self.ip("link add br0 type bridge", f"addr add {HOST}/24 dev br0", f"addr add {HOST_TOO}/24 dev br0")
        for n in (0, 1):
            self.ip(f"tuntap add tap{n} mode tap", f"link add h{n} type veth peer name g{n}")
            for device in (f"tap{n}", f"h{n}"):
                self.ip(f"link set {device} mtu {mtu} master br0 up")
            self.ip(f"link set g{n} mtu {mtu} up")
        self.ip(f"link set br0 mtu {mtu} up")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def cpio(root):
    """A folder as a newc archive, which the kernel unpacks after the initramfs proper."""
    out = bytearray()

    def add(name, mode, data=b""):
        name = name.encode() + b"\0"
        fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
        out.extend(b"070701" + b"".join(b"%08x" % f for f in fields) + name)
        out.extend(bytes(-len(out) % 4))
        out.extend(data)
        out.extend(bytes(-len(out) % 4))

    for path in [root, *sorted(root.rglob("*"))]:
        name = str(path.relative_to(root.parent))
        mode = path.stat().st_mode
        add(name, mode, path.read_bytes() if stat.S_ISREG(mode) else b"")
    add("TRAILER!!!", 0)
    return bytes(out)


class Guest:
    """One boot of a guest; `slot` 0 or 1 is its place in the network: 10.77.0.2 or 10.77.0.3."""

    def __init__(self, network, script, *, kernel=UML, slot=0, files=(), memory_mib=1024, append="", log=None):
        """`files` lie beside the script in /files. Starts at once."""
        self.network, self.kernel, self.slot = network, kernel, slot
        self.work = Path(tempfile.mkdtemp(prefix="guest-"))
        inside = self.work / "files"
        inside.mkdir()
        (inside / "script").write_text(script)
        for file in files:
            shutil.copy(file, inside)
        self.log = Path(log) if log else self.work / "kernel.log"
        self.out = (inside if self.is_uml() else self.work) / "out"
        self.out.touch()
        image, initrd = unpacked(kernel), unpacked("initramfs.cpio")
        if image is None:
            raise Failed(f"{folder()} has no {kernel}")
        arguments = f"panic=-1 mitigations=off guest.ip={self.address()}/24 guest.mtu={network.mtu} {append}"
        command = self.uml(image, initrd, memory_mib, inside) if self.is_uml() else self.qemu(image, initrd, memory_mib)
        if self.is_uml():
            command += [*arguments.split(), f"guest.files={inside}", "guest.out=/files/out"]
        else:
            command += ["-append", f"console=ttyS0 {arguments} guest.out=/dev/ttyS1"]
        with open(self.log if self.is_uml() else self.work / "qemu.log", "wb") as log_file:
            self.process = subprocess.Popen([*network.prefix, *command], stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file,
                                            start_new_session=True, cwd=self.work)

    def is_uml(self):
        return "-um-" in self.kernel

    def address(self):
        return f"10.77.0.{2 + self.slot}"

    def mac(self):
        return f"52:54:00:77:00:{2 + self.slot:02x}"

    def uml(self, image, initrd, memory_mib, inside):
        return [str(image), f"mem={memory_mib}M", "ncpus=1", "seccomp=on", f"initrd={initrd}", "con=null", "con0=null,fd:1", "console=tty0",
                f"uml_dir={self.work}/", "umid=guest",
                f"vec0:transport=raw,ifname=g{self.slot},mac={self.mac()},depth=64,mtu={self.network.mtu},gro=1"]

    def qemu(self, image, initrd, memory_mib):
        whole = self.work / "initrd"
        with open(whole, "wb") as f:
            f.write(initrd.read_bytes())
            f.write(bytes(-f.tell() % 4))
            f.write(cpio(self.work / "files"))
        return ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-machine", "q35",
                "-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max", "-smp", "1", "-m", str(memory_mib),
                "-kernel", str(image), "-initrd", str(whole),
                "-netdev", f"tap,ifname=tap{self.slot},script=no,downscript=no,id=n0",
                "-device", f"virtio-net-pci,netdev=n0,romfile=,mac={self.mac()}", "-device", "virtio-rng-pci",
                "-serial", f"file:{self.log}", "-serial", f"file:{self.out}"]

    def output(self):
        return self.out.read_bytes().decode(errors="replace").replace("\r", "")

    def kernel_log(self):
        return self.log.read_bytes().decode(errors="replace") if self.log.exists() else ""

    def wait(self, timeout):
        """Waits for the script's end; returns its Result (status 125: the guest never got to its end)."""
        late = False
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            late = True
            self.kill()
        said = self.output()
        exits = re.findall(r"GUEST-EXIT (\d+)", said)
        said = re.sub(r"GUEST-EXIT \d+\n?", "", said)
        if late or not exits:
            said += f"\n[{'it did not end within %s s' % timeout if late else 'the guest ended early'}]\n" + self.kernel_log()[-3000:]
        self.final_log = self.kernel_log()
        shutil.rmtree(self.work, ignore_errors=True)
        return Result([self.kernel], STOPPED if late or not exits else int(exits[-1]), said, 0)

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()


def boot(network, script, *, status=0, timeout=300, **options):
    """Boots a guest, runs the script to its end, and fails if it exits otherwise than with `status`."""
    guest = Guest(network, script, **options)
    try:
        result = guest.wait(timeout)
    finally:
        guest.kill()
        shutil.rmtree(guest.work, ignore_errors=True)
    if status is not None and result.status != status:
        raise Failed(f"in the guest:\n{result}\nexpected status: {status}\n{error_lines(guest.final_log)}")
    return result


def error_lines(log):
    """The lines of a kernel's log that say what went wrong."""
    lines = [line for line in log.splitlines() if re.search(r"cifs|smb|siw|rdma|BUG|WARN|Oops|Call Trace|error", line, re.I)]
    return "\n".join(lines[-40:])
