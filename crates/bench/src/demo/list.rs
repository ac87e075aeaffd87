//! The table of demonstrations, with the published figures.

use super::{Demonstration, Volume};

const KIB: u32 = 1024;
const GIB: u64 = 1 << 30;

/// On storage. The defaults are those of S1-20.
const STORAGE: Demonstration = Demonstration {
    id: "",
    name: "",
    volume: Volume::Storage,
    block: 8 * KIB,
    outstanding: 16,
    write: false,
    random: true,
    cached: false,
    write_through: false,
    full_size: 128 * GIB,
    compares: false,
    published: "",
    lacks: "",
};

/// On the null device. The sizes of the original files are unknown.
const NULL: Demonstration =
    Demonstration { volume: Volume::Null, outstanding: 64, full_size: GIB, ..STORAGE };

const BN_8: Demonstration = Demonstration {
    id: "S1-15",
    name: "8 KiB random read, directory -BN",
    published: ">600,000 IOPS, ~5 GB/s, <1 ms, queue >235, client CPU ~60 %",
    lacks: "48 mirrored SSDs and three 54 Gb/s InfiniBand cards in one session: here loopback, and one disk with all \
            files, which each read waits for (-BN; a file system in memory has no disk)",
    ..STORAGE
};

const BYRT_8: Demonstration = Demonstration {
    id: "S1-16",
    name: "8 KiB random read, directory -BYRT",
    outstanding: 32,
    cached: true,
    full_size: 8 << 20,
    published: "1,100,000 IOPS, >9 GB/s, <1 ms, queue ~300, client CPU ~98 %",
    lacks: "three 54 Gb/s InfiniBand cards and a machine for each side: here loopback, and client and server \
            share the processors",
    ..STORAGE
};

const BN_32: Demonstration = Demonstration {
    id: "S1-17",
    name: "32 KiB random read, directory -BN",
    block: 32 * KIB,
    outstanding: 32,
    published: "~500,000 IOPS, 16.4 GB/s, <2 ms, client CPU ~64 %",
    lacks: "48 mirrored SSDs, and the bandwidth of three 54 Gb/s InfiniBand cards: here loopback, and one disk with all \
            files, which each read waits for (-BN; a file system in memory has no disk)",
    ..STORAGE
};

/// All demonstrations, in the order in which they run.
pub static ALL: [Demonstration; 12] = [
    BN_8,
    BYRT_8,
    BN_32,
    Demonstration {
        id: "S1-15-pool",
        name: "8 KiB random read, pool -BN",
        volume: Volume::Pool,
        lacks: POOL_LACKS,
        ..BN_8
    },
    Demonstration {
        id: "S1-16-pool",
        name: "8 KiB random read, pool -BYRT",
        volume: Volume::Pool,
        lacks: POOL_LACKS,
        ..BYRT_8
    },
    Demonstration {
        id: "S1-17-pool",
        name: "32 KiB random read, pool -BN",
        volume: Volume::Pool,
        lacks: POOL_LACKS,
        ..BN_32
    },
    Demonstration {
        id: "S3-18",
        name: "1 KiB random read, null",
        block: KIB,
        published: "881,499 IOPS",
        lacks: TWO_CARDS,
        ..NULL
    },
    Demonstration {
        id: "S3-19",
        name: "1 KiB random write, null",
        block: KIB,
        write: true,
        write_through: true,
        published: "808,248 IOPS",
        lacks: TWO_CARDS,
        ..NULL
    },
    Demonstration {
        id: "S3-20",
        name: "8 KiB random read, null",
        compares: true,
        published: "835,688 IOPS",
        lacks: TWO_CARDS,
        ..NULL
    },
    Demonstration {
        id: "S3-21",
        name: "8 KiB random write, null",
        write: true,
        compares: true,
        published: "712,578 IOPS",
        lacks: TWO_CARDS,
        ..NULL
    },
    Demonstration {
        id: "S3-22",
        name: "512 KiB sequential read, null",
        block: 512 * KIB,
        outstanding: 12,
        random: false,
        published: "11,366 MB/s",
        lacks: TWO_CARDS,
        ..NULL
    },
    Demonstration {
        id: "S3-23",
        name: "512 KiB sequential write, null",
        block: 512 * KIB,
        outstanding: 12,
        write: true,
        random: false,
        published: "11,412 MB/s",
        lacks: TWO_CARDS,
        ..NULL
    },
];

const TWO_CARDS: &str = "two 56 Gb/s InfiniBand cards that do the RDMA: here RDMA is done in user space, which costs processor time";

const POOL_LACKS: &str = "48 SSDs and three 54 Gb/s InfiniBand cards: here 48 files of one file system, and loopback. A virtual \
    disk has no cache of its data, so -BYRT reads the disks too";
