//! SET_INFO (MS-SMB2 2.2.39, 2.2.40). The contents of `buffer` are in [`crate::fscc`] and [`crate::security`].

use super::{InfoType, SecurityInformation, part32, put_request_part};
use crate::cursor::{Field, Reader};
use crate::macros::fixed_message;
use crate::{Decode, Encode, FileId, MessageBuilder, WireError};

/// SET_INFO request (MS-SMB2 2.2.39).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetInfoRequest<'a> {
    /// File, file system, security or quota.
    pub info_type: InfoType,
    /// The information class of that type: [`crate::fscc::FileInfoClass`], [`crate::fscc::FsInfoClass`].
    pub info_class: u8,
    /// For `InfoType::SECURITY`: the parts of the descriptor to set.
    pub additional_information: SecurityInformation,
    /// The open.
    pub file_id: FileId,
    /// The new value.
    pub buffer: &'a [u8],
}

impl<'a> Decode<'a> for SetInfoRequest<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, "SET_INFO request", 33)?;
        let info_type = r.get()?;
        let info_class = r.get()?;
        let len: u32 = r.get()?;
        let offset: u16 = r.get()?;
        r.skip(2)?;
        let additional_information = r.get()?;
        let file_id = r.get()?;
        let buffer = r.range(offset.into(), len as usize, "SET_INFO buffer")?;
        Ok(Self { info_type, info_class, additional_information, file_id, buffer })
    }
}

impl Encode for SetInfoRequest<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let (offset, len) = part32(m.offset() + 32, self.buffer, "SET_INFO buffer")?;
        let out = m.out();
        33u16.put(out);
        self.info_type.put(out);
        self.info_class.put(out);
        len.put(out);
        offset.put(out);
        0u16.put(out);
        self.additional_information.put(out);
        self.file_id.put(out);
        put_request_part(m, self.buffer);
        Ok(())
    }
}

fixed_message! {
    /// SET_INFO response (MS-SMB2 2.2.40).
    pub struct SetInfoResponse [2, "SET_INFO response"] {}
}
