"""Samba's rpcclient: named pipes of a server."""

from .programs import run
from .smbclient import SmbClient


class RpcClient(SmbClient):
    """rpcclient with a server's address and account."""

    def __call__(self, *commands, status=0, timeout=60):
        """Runs commands over one connection; each opens the pipe that it needs."""
        return run([*self.server.prefix, "rpcclient", *self.options(), self.server.host, "-c", ";".join(commands)],
                   status=status, timeout=timeout, env={"TZ": "UTC"})
