//! The user that the examples log on as.

use std::env::{VarError, var};

use smb_client::{ConnectOptions, Credentials, NtHash};

/// Options of a connection as the user in `SMB_USER`, with the password in `SMB_PASSWORD`.
pub fn options() -> Result<ConnectOptions, VarError> {
    Ok(ConnectOptions::new(Credentials {
        user: var("SMB_USER")?,
        domain: String::new(),
        nt_hash: NtHash::from_password(&var("SMB_PASSWORD")?),
        workstation: String::new(),
    }))
}
