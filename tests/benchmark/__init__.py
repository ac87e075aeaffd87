"""What `make bench` measures: `smbd` is Causeway beside Samba's smbd, `limit` Causeway beside the fabric without SMB,
`names` operations on names beside smbd, `unbuffered` unbuffered I/O beside fio on the same file, `pool` spaces beside fio on the
raw disks, which `devices` makes, `document` writes the results into docs/performance.md. scripts/bench is the command."""

import os
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = Path(os.environ.get("CAUSEWAY_BIN", ROOT / "target" / "release" / "causeway"))


def medians(runs):
    """The median of each figure of some runs."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}
