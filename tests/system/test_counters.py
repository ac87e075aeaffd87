"""The performance counters of a running server: Prometheus's own parsers, the dashboard, the command line's recordings."""

import csv
import http.client
import json
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from harness import ROOT
from harness.programs import run
from harness.servers import Causeway, free_port

pytestmark = pytest.mark.skipif(not Causeway.binary.exists(), reason="causeway is not built")
BYTES = 3_000_000


class Measured:
    """A server with iWARP and a port for Prometheus."""

    def __init__(self, folder):
        self.port = free_port()
        self.server = Causeway(folder, iwarp_port=free_port(), settings={"metrics": f"127.0.0.1:{self.port}"}).start()
        self.folder = folder

    def counters(self, *arguments, status=0):
        control = str(Path(self.server.sockets.name) / "control.sock")
        return run([Causeway.binary, "counters", "--control", control, *arguments], status=status, timeout=60)

    def copy(self, transport):
        """Puts and gets a file of BYTES bytes."""
        source, target = self.folder / "source", self.folder / "target"
        source.write_bytes(bytes(range(250)) * (BYTES // 250))
        url = f"smb://{self.server.user}@127.0.0.1:{self.server.port}/{self.server.share}/f-{transport}"
        via = ["--transport", transport, "--rdma-port", str(self.server.iwarp_port)]
        environment = {"CAUSEWAY_PASSWORD": self.server.password}
        target.unlink(missing_ok=True)
        run([Causeway.binary, "put", *via, source, url], env=environment, timeout=60)
        run([Causeway.binary, "get", *via, url, target], env=environment, timeout=60)
        assert target.read_bytes() == source.read_bytes()

    def metrics(self):
        return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10).read().decode()

    def value(self, name, **labels):
        for family in openmetrics(self.metrics()):
            for sample in family.samples:
                if sample.name == name and all(sample.labels.get(k) == v for k, v in labels.items()):
                    return sample.value
        raise AssertionError(f"no {name} {labels}")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    m = Measured(tmp_path_factory.mktemp("counters"))
    yield m
    m.server.stop()


def names(text):
    return {sample.name for family in openmetrics(text) for sample in family.samples}


def test_metrics_parse(measured):
    measured.copy("tcp")
    measured.copy("rdma")
    text = measured.metrics()
    families = list(openmetrics(text))
    assert len(families) > 90
    assert all(f.documentation and f.type in ("counter", "gauge", "histogram") for f in families)
    assert all(s.value >= 0 for f in families for s in f.samples)
    # The older format's parser takes it too.
    assert {s.name for f in prometheus(text) for s in f.samples} == names(text)


def test_sums(measured):
    share = {"share": measured.server.share}
    before = {m: measured.value(f"causeway_smb_server_share_{m}_total", **share)
              for m in ("read_bytes", "write_bytes", "read_direct_bytes", "write_direct_bytes")}
    for transport, direct in (("tcp", 0), ("rdma", BYTES)):
        measured.copy(transport)
        after = {m: measured.value(f"causeway_smb_server_share_{m}_total", **share) for m in before}
        moved = {m: after[m] - before[m] for m in before}
        assert moved["read_bytes"] == moved["write_bytes"] == BYTES, transport
        assert moved["read_direct_bytes"] == moved["write_direct_bytes"] == direct, transport
        before = after
    for gauge in ("open_files", "tree_connects", "read_current", "write_current", "metadata_current"):
        assert measured.value(f"causeway_smb_server_share_{gauge}", **share) == 0, gauge
    assert measured.value("causeway_rdma_active_connections", provider="iwarp") == 0
    assert measured.value("causeway_rdma_accepted_connections_total", provider="iwarp") >= 2
    assert measured.value("causeway_rdma_inbound_bytes_total", provider="iwarp") > BYTES
    assert measured.value("causeway_rdma_work_requests_rdma_read_total", provider="iwarp") > 0


def test_nothing_else_over_tcp(measured):
    for path in ("/v1/counters", "/v1/shares", "/v1/server", "/"):
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"http://127.0.0.1:{measured.port}{path}", timeout=10)
        assert error.value.code == 404
    connection = http.client.HTTPConnection("127.0.0.1", measured.port, timeout=10)
    connection.request("POST", "/metrics")
    assert connection.getresponse().status == 405
    # Peers that connect and send nothing, or nonsense, do not block others.
    idle = [socket.create_connection(("127.0.0.1", measured.port)) for _ in range(20)]
    idle[0].sendall(b"\x00\xff nonsense\r\n\r\n")
    assert "# EOF" in measured.metrics()
    for s in idle:
        s.close()


def test_the_dashboard_asks_for_what_there_is(measured):
    """Every metric that the dashboard names is one that the server shows (a set without instances by its description)."""
    text = measured.metrics()
    shown = {f.name + ("_total" if f.type == "counter" else "") for f in openmetrics(text)}
    dashboard = (ROOT / "packaging" / "grafana" / "causeway.json").read_text()
    panels = [p for p in json.loads(dashboard)["panels"] if p["type"] != "row"]
    asked = set(re.findall(r"causeway_[a-z_]+", " ".join(t["expr"] for p in panels for t in p["targets"])))
    variables = json.loads(dashboard)["templating"]["list"]
    asked |= {m for v in variables for m in re.findall(r"causeway_[a-z_]+", json.dumps(v["query"]))}
    assert len(panels) > 10 and len(asked) > 30
    assert asked - shown == set()


def test_record_and_replay(measured, tmp_path):
    for name in ("r.ndjson", "r.csv"):
        recording = tmp_path / name
        measured.counters("--record", recording, "--count", "2", "--watch", "0.2", "SMB Server Shares")
        out = measured.counters("--replay", recording, "--json", r"\SMB Server Shares(files)\*").out
        series = json.loads(out)
        assert {s["counter"] for s in series} >= {"Read Bytes/sec", "Avg. sec/Read", "Current Open File Count"}
        assert all(len(s["points"]) == 2 and s["instance"] == "files" for s in series)
        assert "Read Bytes/sec" in measured.counters("--replay", recording).out
        for drawn in ("p.svg", "p.html"):
            measured.counters("--replay", recording, f"--plot={tmp_path / drawn}")
            assert "<svg" in (tmp_path / drawn).read_text()
    rows = list(csv.reader((tmp_path / "r.csv").open()))
    assert rows[0][0] == "(PDH-CSV 4.0) (UTC)(0)" and len(rows) == 3
    assert any(column.endswith(r"\SMB Server Shares(files)\Data Requests/sec") for column in rows[0])
    (tmp_path / "bad.csv").write_text("not,a,recording\n")
    assert "line 1" in measured.counters("--replay", tmp_path / "bad.csv", status=1).out


def test_the_table(measured):
    out = measured.counters("smb-server-shares", "--instance", "files").out
    assert re.search(r"^SMB Server Shares +files$", out, re.M) and re.search(r"^Tree Connect Count +0$", out, re.M)
    sample = json.loads(measured.counters("--json", "RDMA Activity").out)
    assert sample["interval_s"] > 0.9 and sample["counters"][0]["path"] == r"\RDMA Activity(iwarp)\RDMA Active Connections"
    text = measured.counters("--definitions").out
    assert "Stalls (Send Credit)/sec (rate, 1/s)" in text and "not available" in text
    assert "unknown set or counter" in measured.counters("Cluster CSVFS", status=2).out
