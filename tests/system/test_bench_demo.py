"""Remote invalidation, as an independent decoder sees it on the wire: Send with Invalidate is there, or it is not."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from harness.programs import run, until
from harness.servers import Causeway, free_port

pytestmark = [
    pytest.mark.skipif(not Causeway.binary.exists(), reason="causeway is not built"),
    pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark"),
    pytest.mark.skipif(os.geteuid() != 0, reason="capturing needs root"),
]

RDMA_WRITE, READ_REQUEST, SEND, SEND_INVALIDATE = 0, 1, 3, 4  # RFC 5040 4.3: opcodes


class Capture:
    """What passes on loopback at one port while this is open."""

    def __init__(self, file, port):
        self.file, self.port = file, port
        with open(f"{file}.log", "wb") as log:
            self.process = subprocess.Popen(["tshark", "-i", "lo", "-f", f"tcp port {port}", "-B", "64", "-q", "-w", file],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        # "Capturing on" comes before the socket is open; the file is there after.
        until(lambda: file.exists() and file.stat().st_size > 0, timeout=20, what="tshark captures")

    def end(self):
        # What was captured last arrives when its block's time is over, and not at all after the signal.
        sizes = [-1]

        def quiet():
            sizes.append(self.file.stat().st_size)
            return sizes[-1] == sizes[-2] or time.sleep(1)

        until(quiet, timeout=20, what="the capture is quiet")
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)

    def opcodes(self):
        """How many RDMAP messages of each kind the server and the client sent: {(source port == server, opcode): n}."""
        out = run(["tshark", "-r", self.file, "-o", "tcp.try_heuristic_first:TRUE", "--disable-protocol", "rpcordma",
                   "--disable-protocol", "smb_direct", "-Y", "iwarp_ddp_rdmap", "-T", "fields", "-e", "tcp.srcport",
                   "-e", "iwarp_rdma.opcode", "-E", "occurrence=a"], timeout=60).out
        found = {}
        for line in out.splitlines():
            port, _, opcodes = line.partition("\t")
            if port.isdigit():  # not a warning
                for opcode in opcodes.split(","):
                    key = (port == str(self.port), int(opcode, 0))
                    found[key] = found.get(key, 0) + 1
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Causeway(tmp_path_factory.mktemp("bench"), iwarp_port=free_port()).start()
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
@pytest.mark.parametrize("remote", [True, False], ids=["remote", "local"])
def test_send_with_invalidate_is_there_or_not(server, tmp_path, remote, write):
    url = f"smb://{server.user}@127.0.0.1:{server.port}/{server.share}/data"
    line = [Causeway.binary, "bench", "--transport", "rdma", "--rdma-port", str(server.iwarp_port), "--quiet", "--json",
            *([] if remote else ["--local-invalidate"])]
    environment = {"CAUSEWAY_PASSWORD": server.password}
    # Made beforehand, so that what is captured are the I/Os alone; few, so that none is missed.
    run([*line, "-c64K", "-b8K", "-d1", "-W0", url], env=environment, timeout=60)
    capture = Capture(tmp_path / "lo.pcapng", server.iwarp_port)
    try:
        report = run([*line, "-b8K", "-o1", "-r", "-g10i", "-d2", "-W0", *(["-w100"] if write else []), url],
                     env=environment, timeout=60)
    finally:
        capture.end()
    opcodes = capture.opcodes()
    ios = json.loads(report.out)["timespans"][0]["total"]["ios"]
    assert ios >= 10, report
    assert (True, READ_REQUEST if write else RDMA_WRITE) in opcodes, opcodes
    assert opcodes[(False, SEND)] >= ios, opcodes
    if remote:  # the last one may have ended after the measured time
        assert ios <= opcodes[(True, SEND_INVALIDATE)] <= ios + 1, opcodes
    else:
        assert (True, SEND_INVALIDATE) not in opcodes, opcodes
    assert (False, SEND_INVALIDATE) not in opcodes, opcodes
