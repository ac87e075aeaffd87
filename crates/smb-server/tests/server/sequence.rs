//! ChannelSequence (MS-SMB2 3.3.5.2.10): late changes from a lost channel are refused.

use env::Env;
use smb_server::Limits;
use smb_wire::msg::{InfoType, SetInfoRequest};
use smb_wire::{Command, FileId, HeaderFlags, NtStatus};
use tokio::io::AsyncWriteExt;

use crate::raw::Raw;
use crate::world::World;

async fn write(raw: &mut Raw, file: FileId, sequence: u16, flags: HeaderFlags) -> NtStatus {
    (raw.sequence, raw.flags) = (sequence, flags);
    let m = raw.write(file, 0, b"data");
    raw.stream.write_all(&m).await.expect("sent");
    raw.answer().await.expect("an answer").0.status
}

async fn logged_on(world: &World, dialect: u16) -> Raw {
    let mut raw = Raw::new(world.dial().await.0);
    raw.negotiate(dialect, 1).await;
    assert_eq!(raw.log_on("alice", None).await, NtStatus::SUCCESS);
    raw.tree("ram").await;
    raw
}

#[tokio::test]
async fn changes_that_come_late_are_refused() {
    let world = World::new(Env::real(), 64 << 20, Limits::default());
    let mut raw = logged_on(&world, 0x0311).await;
    raw.sequence = 5;
    let (file, other) = (raw.open("f").await, raw.open("g").await);
    let no = HeaderFlags::empty();
    assert_eq!(write(&mut raw, file, 5, no).await, NtStatus::SUCCESS, "as the CREATE said");
    assert_eq!(write(&mut raw, file, 4, no).await, NtStatus::FILE_NOT_AVAILABLE);
    // Any request on the open carries the new ChannelSequence.
    raw.sequence = 6;
    assert_eq!(raw.read_status(file).await, Some(NtStatus::SUCCESS));
    assert_eq!(write(&mut raw, file, 5, no).await, NtStatus::FILE_NOT_AVAILABLE);
    assert_eq!(write(&mut raw, file, 5, HeaderFlags::REPLAY).await, NtStatus::FILE_NOT_AVAILABLE);
    assert_eq!(write(&mut raw, file, 6, HeaderFlags::REPLAY).await, NtStatus::SUCCESS, "nothing is at work");
    assert_eq!(write(&mut raw, file, 7, HeaderFlags::REPLAY).await, NtStatus::SUCCESS);
    (raw.sequence, raw.flags) = (6, no);
    assert_eq!(raw.read_status(file).await, Some(NtStatus::SUCCESS), "a READ changes nothing");
    let position = SetInfoRequest {
        info_type: InfoType::FILE,
        info_class: 14,
        file_id: file,
        buffer: &[0; 8],
        ..SetInfoRequest::default()
    };
    let late = raw.call(Command::SET_INFO, &position).await.expect("an answer").0.status;
    assert_eq!(late, NtStatus::FILE_NOT_AVAILABLE);
    assert_eq!(write(&mut raw, other, 5, no).await, NtStatus::SUCCESS, "each open has its own");
    let mut raw = logged_on(&world, 0x0210).await;
    let file = raw.open("f").await;
    assert_eq!(write(&mut raw, file, 5, no).await, NtStatus::SUCCESS);
    assert_eq!(write(&mut raw, file, 4, no).await, NtStatus::SUCCESS, "2.1 has no such number");
}
