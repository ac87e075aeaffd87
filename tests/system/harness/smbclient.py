"""Samba's smbclient, with a configuration of its own so that the machine's does not matter."""

import re

from .programs import run

CONFIG = """[global]
workgroup = TEST
name resolve order = host
client min protocol = SMB2_02
client use kerberos = off
client ipc signing = auto
"""


class SmbClient:
    """smbclient with a server's address and account."""

    def __init__(self, server, **changes):
        """`changes` replaces attributes: user, password, share, dialect, protection ("sign", "encrypt", "off"), and
        settings, smb.conf's own."""
        self.server, self.user, self.password, self.share = server, server.user, server.password, server.share
        self.dialect = self.protection = None
        self.settings = {}
        for name, value in changes.items():
            assert hasattr(self, name), name
            setattr(self, name, value)

    def options(self):
        config = self.server.folder / "smbclient.conf"
        if not config.exists():
            config.write_text(CONFIG + f"lock directory = {self.server.folder}\ncache directory = {self.server.folder}\n")
        options = ["-s", config, "-p", self.server.port, "-U", f"{self.user}%{self.password}"]
        if self.dialect:
            options += [f"--option=client min protocol={self.dialect}", f"--option=client max protocol={self.dialect}"]
        options += [f"--option={name}={value}" for name, value in self.settings.items()]
        if self.protection:
            options += [f"--client-protection={self.protection}"]
        return options

    def __call__(self, *commands, status=0, timeout=60, cwd=None):
        """Runs smbclient's own commands in one connection."""
        return run([*self.server.prefix, "smbclient", self.server.unc(self.share), *self.options(), "-c", ";".join(commands)],
                   status=status, timeout=timeout, cwd=cwd, env={"TZ": "UTC"})

    def list_shares(self):
        """Names and comments that `-L` shows."""
        out = run([*self.server.prefix, "smbclient", "-g", "-L", f"//{self.server.host}", *self.options()]).out
        return {name: comment for name, comment in re.findall(r"^\w+\|([^|\n]*)\|([^|\n]*)$", out, re.M)}

    def ls(self, pattern="*"):
        """{name: (attributes, size)} of what `ls` shows."""
        out = self(f'ls "{pattern}"').out
        entry = re.compile(r"^  (.+?)\s+([ADHNRS]+)?\s+(\d+)  \w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}$", re.M)
        return {name: (attributes or "", int(size)) for name, attributes, size in entry.findall(out)}
