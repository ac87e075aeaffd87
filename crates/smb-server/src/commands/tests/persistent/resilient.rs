//! Resilient opens (MS-SMB2 2.2.31.3, 3.3.5.15.9): they survive the loss of their connection without an oplock or lease.

use smb_wire::ioctl::ResiliencyRequest;
use smb_wire::msg::{FsctlCode, IoctlFlags, IoctlRequest};

use super::*;

impl Client {
    async fn request_resiliency(&self, file_id: FileId, input: &[u8]) -> NtStatus {
        let q = IoctlRequest {
            ctl_code: FsctlCode::LMR_REQUEST_RESILIENCY,
            file_id,
            input,
            flags: IoctlFlags::IS_FSCTL,
            ..IoctlRequest::default()
        };
        super::super::super::ioctl::handle(self.w.request(&q)).await.status
    }

    pub(super) async fn make_resilient(&self, file_id: FileId, timeout_ms: u32) -> NtStatus {
        let mut input = Vec::new();
        ResiliencyRequest { timeout_ms }.encode(&mut input);
        self.request_resiliency(file_id, &input).await
    }

    /// SMB2_CREATE_DURABLE_HANDLE_RECONNECT.
    pub(super) async fn reclaim(&self, path: &str, before: FileId) -> Result<FileId, NtStatus> {
        let mut contexts = CreateContextsBuf::new();
        contexts.request(&CreateRequestContext::DurableReconnect(before)).expect("it fits");
        opened(self.w.create_with(path, How::OPEN, OplockLevel::NONE, &contexts).await).map(|o| o.id)
    }
}

/// The open keeps its lock until its timeout, and belongs to its user again when that reconnects.
#[tokio::test(start_paused = true)]
async fn an_open_is_reclaimed_until_its_timeout() {
    let run = Run::new();
    let (a, b) = (run.client(1), run.client(2));
    let plain = a.create("g", How::CREATE, PLAIN).await.expect("made");
    let made = a.create("f", How::CREATE, PLAIN).await.expect("made");
    assert_eq!(a.make_resilient(made.id, 10_000).await, NtStatus::SUCCESS);
    assert_eq!(a.lock(made.id, 0, 0, false).await, NtStatus::SUCCESS);
    let other = b.create("f", How::OPEN, PLAIN).await.expect("shared");

    a.lose_connection().await;
    run.w.server.env.sleep(Duration::from_secs(9)).await;
    assert_eq!(b.lock(other.id, 0, 0, false).await, NtStatus::LOCK_NOT_GRANTED);
    let a = run.client(1);
    assert_eq!(a.reclaim("g", plain.id).await, Err(NtStatus::OBJECT_NAME_NOT_FOUND), "not resilient");
    let again = a.reclaim("f", made.id).await.expect("within its timeout");
    assert_eq!(again.persistent, made.id.persistent);
    // The timeout of the first absence has no effect now.
    run.w.server.env.sleep(Duration::from_secs(20)).await;
    assert_eq!(b.lock(other.id, 0, 0, false).await, NtStatus::LOCK_NOT_GRANTED);
    assert_eq!(a.lock(again, 20, 0, false).await, NtStatus::SUCCESS);

    a.lose_connection().await;
    run.w.server.env.sleep(Duration::from_secs(11)).await;
    assert_eq!(run.client(1).reclaim("f", again).await, Err(NtStatus::OBJECT_NAME_NOT_FOUND), "too late");
    assert_eq!(b.lock(other.id, 0, 0, false).await, NtStatus::SUCCESS);
}

/// MS-SMB2 3.3.5.15.9 <401>: a timeout of zero is one of 120 seconds.
#[tokio::test(start_paused = true)]
async fn an_open_without_a_timeout_of_its_own() {
    let run = Run::new();
    for (absence, reclaimed) in [(119, true), (121, false)] {
        let a = run.client(1);
        let made = a.create("f", How::OPEN_IF, PLAIN).await.expect("made");
        assert_eq!(a.make_resilient(made.id, 0).await, NtStatus::SUCCESS);
        a.lose_connection().await;
        run.w.server.env.sleep(Duration::from_secs(absence)).await;
        assert_eq!(run.client(1).reclaim("f", made.id).await.is_ok(), reclaimed, "after {absence} s");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_refused() {
    let run = Run::new();
    let mut a = run.client(1);
    let made = a.create("f", How::CREATE, PLAIN).await.expect("made");
    assert_eq!(a.request_resiliency(made.id, &[0; 7]).await, NtStatus::INVALID_PARAMETER, "too short");
    // MaxResiliencyTimeout is 300 seconds.
    assert_eq!(a.make_resilient(made.id, 301_000).await, NtStatus::INVALID_PARAMETER);
    Arc::make_mut(&mut a.w.facts).dialect = 0x0202;
    assert_eq!(a.make_resilient(made.id, 1000).await, NtStatus::INVALID_DEVICE_REQUEST);
    Arc::make_mut(&mut a.w.facts).dialect = 0x0210;
    a.lose_connection().await;
    let reclaimed = run.client(1).reclaim("f", made.id).await;
    assert_eq!(reclaimed, Err(NtStatus::OBJECT_NAME_NOT_FOUND), "a refused request changes nothing");

    let a = run.client(1);
    let made = a.create("f", How::OPEN, PLAIN).await.expect("there");
    assert_eq!(a.make_resilient(made.id, 300_000).await, NtStatus::SUCCESS, "the most");
}
