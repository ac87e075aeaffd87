//! ECHO (MS-SMB2 2.2.28, 2.2.29) and CANCEL (2.2.30), which have no fields.

use crate::macros::fixed_message;

fixed_message! {
    /// ECHO request (MS-SMB2 2.2.28).
    pub struct EchoRequest [4, "ECHO request", pad 2] {}
}

fixed_message! {
    /// ECHO response (MS-SMB2 2.2.29).
    pub struct EchoResponse [4, "ECHO response", pad 2] {}
}

fixed_message! {
    /// CANCEL request (MS-SMB2 2.2.30); the header identifies the request to cancel, and there is no response.
    pub struct CancelRequest [4, "CANCEL request", pad 2] {}
}
