"""The servers that the tests run against: Causeway, and Samba's smbd to check the tests themselves.

A server lives in one folder: configuration, log, and its shares' folders under `shares/`. Its sockets lie in a folder of
their own with a short name, because a Unix socket's path has 107 bytes at most. It runs in the foreground as a child of ours and is stopped by its own process id. Life: `start` → (`kill` | `stop`) → `start` …
"""

import getpass
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from . import ROOT, guest
from .programs import Failed, run, until

START_SECONDS = 20
STOP_SECONDS = 20


USED_PORTS = set()


def free_port():
    """A TCP port of loopback that nobody uses now. It is below the range from which the kernel takes the ports of connections (32768 and up), so that no client has it when the server comes to listen, and it is given once."""
    while True:
        port = random.randrange(10000, 32768)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in USED_PORTS:
            USED_PORTS.add(port)
            return port


class Server:
    """What a test may ask of either server."""

    def __init__(self, folder, *, host="127.0.0.1", port=None, iwarp_port=None, signing="required", encryption="enabled",
                 shares=("files",), prefix=(), settings=None, share_settings=None, plain=False, settings_of=None, more_users=()):
        """Signing and encryption are as Causeway ships; a test that relaxes them says why. `plain`: smbd as it comes, without the modules that the tests need. `prefix` is put before the command (to enter a network namespace); `settings` go to the server as they are, `share_settings` to each share, `settings_of` by name to one share. `more_users` have the user's password."""
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.sockets = tempfile.TemporaryDirectory(prefix="causeway-")
        self.host, self.port, self.iwarp_port = host, port or free_port(), iwarp_port
        self.signing, self.encryption = signing, encryption
        self.shares, self.prefix = list(shares), list(prefix)
        self.settings, self.share_settings, self.plain = dict(settings or {}), dict(share_settings or {}), plain
        self.settings_of, self.more_users = dict(settings_of or {}), list(more_users)
        self.storage = {"devices": []}
        self.user, self.password, self.share = "alice", "correct horse 7", self.shares[0]
        self.log = self.folder / "server.log"
        self.process = None
        self.may_end = False  # the test ended it, or expects it to end
        for share in self.shares:
            self.path(share).mkdir(parents=True, exist_ok=True)
            self.path(share).chmod(0o777)

    def path(self, share=None):
        """Where a share's files lie on this machine."""
        return self.folder / "shares" / (share or self.share)

    @property
    def pid(self):
        return self.process.pid

    def unc(self, share=None):
        return f"//{self.host}/{share or self.share}"

    def configure(self):
        raise NotImplementedError

    def command(self):
        raise NotImplementedError

    def is_ready(self):
        raise NotImplementedError

    def start(self):
        """Starts the server and returns it once it listens."""
        self.configure()
        return self.restart()

    def restart(self):
        """Starts it with the configuration as it is now: the server may have changed it."""
        self.launch()
        until(self.is_up, timeout=START_SECONDS, what=f"{self.name} ready; its log is {self.log}")
        return self

    def launch(self):
        """Starts the process and waits for nothing."""
        with open(self.log, "ab") as log:
            self.log_start = log.tell()
            self.may_end = False
            self.process = subprocess.Popen(
                self.prefix + self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "RUST_BACKTRACE": "1"}, start_new_session=True, umask=0o022)

    def is_up(self):
        if self.process.poll() is not None:
            raise Failed(f"{self.name} ended with {self.process.returncode} while starting:\n{self.output()[-4000:]}")
        return self.is_ready()

    def output(self):
        """What this run of the server has logged so far."""
        with open(self.log, "rb") as log:
            log.seek(self.log_start)
            return log.read().decode(errors="replace")

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        """Asks the server to drain (SIGTERM) and returns its exit status."""
        if not self.is_running():
            return self.process.returncode if self.process else None
        self.may_end = True
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"{self.name} did not end within {STOP_SECONDS} s of SIGTERM:\n{self.output()[-4000:]}") from None

    def kill(self):
        """kill -9, for it and for the processes of its session."""
        self.may_end = True
        if self.is_running():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def connect(self, timeout=10):
        """A bare TCP connection to the SMB port."""
        return socket.create_connection((self.host, self.port), timeout=timeout)


class Causeway(Server):
    """Our server. The binary is target/debug/causeway, or what CAUSEWAY_BIN says."""

    name = "causeway"
    binary = Path(os.environ.get("CAUSEWAY_BIN", ROOT / "target" / "debug" / "causeway"))

    def configure(self):
        server = {
            "name": "CAUSEWAY",
            "listen": [f"{self.host}:{self.port}"],
            "control": str(Path(self.sockets.name) / "control.sock"),
            "users": str(self.folder / "users.toml"),
            "signing": self.signing,
            "encryption": self.encryption,
            "memory": "256MiB",
            "state": str(self.folder / "state"),
        }
        (self.folder / "state").mkdir(mode=0o700, exist_ok=True)
        if self.iwarp_port:
            server["iwarp"] = [f"{self.host}:{self.iwarp_port}"]
        server.update(self.settings)
        # A JSON string is a TOML basic string, and the same goes for lists of them, numbers and booleans.
        sections = {"server": server, "storage": self.storage}
        lines = []
        for name, section in sections.items():
            lines += [f"[{name}]"] + [f"{key} = {json.dumps(value)}" for key, value in section.items()]
        for share in self.shares:
            lines += ["[[share]]", f"name = {json.dumps(share)}", 'backend = "hostdir"',
                      f"path = {json.dumps(str(self.path(share)))}", f'comment = "The {share} share"']
            own = self.share_settings | self.settings_of.get(share, {})
            lines += [f"{key} = {json.dumps(value)}" for key, value in own.items()]
        self.config = self.folder / "causeway.toml"
        self.config.write_text("\n".join(lines) + "\n")
        users = self.folder / "users.toml"
        if not users.exists():
            for user in (self.user, *self.more_users):
                run([self.binary, "user", "add", user, "--password-stdin", "--users", users],
                    stdin=(self.password + "\n").encode())

    def command(self):
        return [str(self.binary), "serve", "--config", str(self.config)]

    def is_ready(self):
        return "ready" in self.output()


class Smbd(Server):
    """Samba's smbd, unprivileged port, everything it writes in our folder."""

    name = "smbd"

    def configure(self):
        account = getpass.getuser()
        state = Path(self.sockets.name)
        (state / "private").mkdir(mode=0o700, exist_ok=True)
        # Every user of smbd is an account of the machine; `nobody` is there anyway.
        accounts = [account, *(["nobody"] if self.more_users else [])]
        names = [self.user, " ".join(self.more_users)]
        (self.folder / "usermap").write_text("".join(f"!{a} = {n}\n" for a, n in zip(accounts, names)))
        settings = {
            "netbios name": "SMBD", "workgroup": "TEST", "server role": "standalone", "disable netbios": "yes",
            "smb ports": self.port, "interfaces": self.host, "bind interfaces only": "yes",
            "private dir": state / "private", "lock directory": state, "state directory": state,
            "cache directory": state, "pid directory": state, "ncalrpc dir": state / "ncalrpc",
            "log level": "1", "username map": self.folder / "usermap", "map to guest": "never",
            "server min protocol": "SMB2_02", "load printers": "no", "printing": "bsd", "disable spoolss": "yes",
            "server signing": {"required": "mandatory", "enabled": "default"}[self.signing],
            "server smb encrypt": {"required": "required", "enabled": "default", "off": "off"}[self.encryption],
        }
        if not self.plain:
            settings |= {"vfs objects": "acl_xattr streams_xattr", "acl_xattr:ignore system acls": "yes", "ea support": "yes"}
        settings.update(self.settings)
        lines = ["[global]"] + [f"{key} = {value}" for key, value in settings.items()]
        for share in self.shares:
            lines += [f"[{share}]", f"path = {self.path(share)}", "read only = no", f"comment = The {share} share"]
            own = self.share_settings | self.settings_of.get(share, {})
            lines += [f"{key} = {value}" for key, value in own.items()]
        self.config = self.folder / "smb.conf"
        self.config.write_text("\n".join(lines) + "\n")
        if not (state / "private" / "passdb.tdb").exists():
            secret = (self.password + "\n") * 2
            for account in accounts:
                run(["smbpasswd", "-c", self.config, "-L", "-s", "-a", account], stdin=secret.encode())

    def command(self):
        return ["smbd", "--foreground", "--no-process-group", f"--configfile={self.config}", "--debug-stdout"]

    def stop(self):
        status = super().stop()
        self.stop_pipes()
        return status

    def kill(self):
        super().kill()
        self.stop_pipes()

    def stop_pipes(self):
        """smbd starts samba-dcerpcd for its pipes, which outlives it; its helpers go with it."""
        file = Path(self.sockets.name) / "samba-dcerpcd.pid"
        try:
            pid = int(file.read_text())
            if Path(f"/proc/{pid}/comm").read_text().startswith("samba-dcerpcd"):
                os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError):
            pass

    def is_ready(self):
        knock = [*self.prefix, "bash", "-c", f"exec 3<>/dev/tcp/{self.host}/{self.port}"]
        return subprocess.run(knock, stderr=subprocess.DEVNULL).returncode == 0


class Ksmbd(Server):
    """The Linux kernel's server, in a guest beside the client's: the other one that speaks SMB Direct over iWARP.

    Its files are in the guest; `path` is of no use.
    """

    name = "ksmbd"
    SCRIPT = """
rdma link add siw0 type siw netdev $ETH      # first: ksmbd listens on 5445 only if it sees siw when it starts
mkdir -p /srv/t; mount -t tmpfs -o size=700m t /srv/t; mkdir -m 1777 /srv/t/files     # a share may not be a mount point
printf '[global]\nnetbios name = GUEST\nserver signing = disabled\nserver multi channel support = yes\n[files]\npath = /srv/t/files\nread only = no\n' > /etc/ksmbd/ksmbd.conf
ksmbd.adduser -a {user} -p '{password}' >/dev/null 2>&1
ksmbd.mountd -n >/dev/null 2>&1 &
for i in $(seq 100); do ss -ltn | grep -q :5445 && break; sleep 0.1; done
ss -ltn; echo ksmbd ready; wait
"""

    def __init__(self, folder, *, network, **options):
        super().__init__(folder, host="10.77.0.3", port=445, iwarp_port=5445, prefix=network.prefix, **options)
        self.network = network

    def start(self):
        self.guest = guest.Guest(self.network, self.SCRIPT.format(user=self.user, password=self.password), kernel=guest.QEMU, slot=1)
        self.process, self.log = self.guest.process, self.guest.out
        until(lambda: "ksmbd ready" in self.guest.output() or self.process.poll() is not None, timeout=60, what="ksmbd")
        return self

    def output(self):
        return self.guest.output()

    def stop(self):
        self.kill()
        return 0

    def kill(self):
        self.may_end = True
        self.guest.kill()
        shutil.rmtree(self.guest.work, ignore_errors=True)


# A share whose folder has snapshots in `.snapshots`.
SNAPSHOT_SETTINGS = {
    "causeway": {"snapshots": ".snapshots"},
    "smbd": {"vfs objects": "shadow_copy2 acl_xattr streams_xattr", "shadow:snapdir": ".snapshots",
             "shadow:snapdirseverywhere": "yes"},
}
SERVERS = {"causeway": Causeway, "smbd": Smbd, "ksmbd": Ksmbd}
