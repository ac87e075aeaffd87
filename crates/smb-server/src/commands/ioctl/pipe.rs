//! FSCTLs of pipes (MS-SMB2 3.3.5.15.4, 3.3.5.15.5, 3.3.5.15.10).

use smb_wire::NtStatus;
use smb_wire::ioctl::{PipePeek, PipeWait};
use smb_wire::msg::IoctlRequest;

use super::{FS_DRIVER_REQUIRED, Output};
use crate::open::Open;
use crate::pipes::Pipe;
use crate::request::Request;

/// Writes a message and reads the answer.
pub(super) async fn transceive(r: &Request, open: &Open, q: &IoctlRequest<'_>) -> Result<Output, NtStatus> {
    let pipe = open.pipe().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    let (bytes, more) = pipe.transceive(r, q.input, q.max_output_response as usize).await?;
    let status = if more { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
    Ok(Output { status, bytes })
}

/// Waits until a pipe has a free instance: every pipe that exists always has one.
pub(super) fn wait(r: &Request, q: &IoctlRequest<'_>) -> Result<Output, NtStatus> {
    // MS-SMB2 3.3.5.15.10: on IPC$, with no open.
    if r.tree.share.vfs().is_some() {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    let name = PipeWait::decode(q.input)
        .and_then(|w| w.name.to_string())
        .map_err(|_| NtStatus::INVALID_PARAMETER)?;
    if Pipe::exists(&name) { Ok(Output::none()) } else { Err(NtStatus::OBJECT_NAME_NOT_FOUND) }
}

/// The data that is available to read, without consuming it.
pub(super) fn peek(open: &Open, output_max: usize) -> Result<Output, NtStatus> {
    /// FILE_PIPE_CONNECTED_STATE.
    const CONNECTED: u32 = 3;
    let pipe = open.pipe().ok_or(FS_DRIVER_REQUIRED)?;
    let p = pipe.peek();
    let mut bytes = Vec::new();
    PipePeek {
        named_pipe_state: CONNECTED,
        read_data_available: p.available as u32,
        number_of_messages: p.messages as u32,
        message_length: p.first as u32,
        data: &[],
    }
    .encode(&mut bytes);
    Output::whole(bytes, output_max)
}
