//! READs and WRITEs inside SMB Direct messages, up to the sizes that both sides accept.

use env::Env;
use smb_auth::crypt::Cipher;
use smb_direct::SmbDirectOptions;
use smb_server::Limits;
use smb_wire::msg::{ReadResponse, WriteResponse};
use smb_wire::{Decode, NtStatus};
use tokio::io::AsyncWriteExt;

use crate::lifecycle::connected;
use crate::world::World;

const MIB: u32 = 1 << 20;
/// The longest message that the Linux kernel's client receives, in bytes.
const TAKES: u32 = 173_910;

/// A client, and the longest READ that it may send.
struct Case {
    cipher: Option<Cipher>,
    requires_signing: bool,
    max_read: u32,
    longest: u32,
}

/// MS-SMB2 3.3.5.4, 3.3.5.12; MS-SMBD 3.1.5.2: MaxReadSize and the longest READ without RDMA follow exactly from the
/// longest message that the client receives; a longer READ is refused, and a WRITE of MaxWriteSize is accepted,
/// encrypted or not.
#[tokio::test]
async fn reads_are_as_long_as_the_clients_messages() {
    let sealed = Some(Cipher::Aes128Gcm);
    let cases = [
        Case { cipher: None, requires_signing: false, max_read: MIB, longest: TAKES - 80 },
        Case { cipher: None, requires_signing: true, max_read: MIB, longest: TAKES - 80 },
        Case { cipher: sealed, requires_signing: true, max_read: MIB, longest: TAKES - 80 - 52 },
        Case { cipher: sealed, requires_signing: false, max_read: 172_032, longest: 172_032 },
    ];
    for case in cases {
        let world = World::new(Env::simulated(1), 64 << 20, Limits::default());
        let options = SmbDirectOptions { max_fragmented_size: TAKES, ..SmbDirectOptions::default() };
        let mut piped = connected(&world, options).await;
        let raw = &mut piped.raw;
        raw.offers = case.cipher;
        raw.requires_signing = case.requires_signing;
        raw.negotiate(0x0311, 1).await;
        assert_eq!(raw.log_on("alice", None).await, NtStatus::SUCCESS);
        raw.signs = case.requires_signing && case.cipher.is_none();
        assert_eq!(raw.max_read, case.max_read);
        raw.tree("ram").await;
        let file = raw.open("f").await;
        while raw.credits < 64 {
            raw.echo().await.expect("an answer");
        }
        let data: Vec<u8> = (0..MIB).map(|i| (i / 7) as u8).collect();
        let m = raw.write(file, 0, &data);
        raw.stream.write_all(&m).await.expect("sent");
        let (header, m) = raw.answer().await.expect("an answer");
        assert_eq!(header.status, NtStatus::SUCCESS);
        assert_eq!(WriteResponse::decode(&m).expect("sound").count, MIB);
        let m = raw.read(file, 5, case.longest);
        raw.stream.write_all(&m).await.expect("sent");
        let (header, m) = raw.answer().await.expect("an answer");
        assert_eq!(header.status, NtStatus::SUCCESS);
        let response = ReadResponse::decode(&m).expect("sound");
        assert!(response.data(&m).expect("inside") == &data[5..][..case.longest as usize]);
        let m = raw.read(file, 5, case.longest + 1);
        raw.stream.write_all(&m).await.expect("sent");
        assert_eq!(raw.answer().await.expect("an answer").0.status, NtStatus::INVALID_PARAMETER);
    }
}
