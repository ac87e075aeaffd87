//! What the user can do about an error.

use smb_client::{ConnectError, Lost, RequestError, WhyNotRdma};
use smb_wire::NtStatus;

use crate::password::VARIABLE;

/// For a connection that could not be made.
pub fn connect(error: &ConnectError) -> Option<String> {
    let cure = match error {
        ConnectError::Resolve { .. } => "check the name, or use the server's address",
        ConnectError::Unreachable { address, source } => match source.kind() {
            std::io::ErrorKind::ConnectionRefused if address.port() == 445 => {
                "no server listens there: is it running? Another port is written smb://host:4450/share"
            }
            std::io::ErrorKind::ConnectionRefused => {
                "no server listens there: is it running, and on this port?"
            }
            _ => "check the address, the route and firewalls",
        },
        ConnectError::NoRdma(why) => no_rdma(why),
        ConnectError::LogOn(status) => match *status {
            NtStatus::LOGON_FAILURE | NtStatus::WRONG_PASSWORD | NtStatus::NO_SUCH_USER => {
                return Some(format!(
                    "check user and password: smb://USER@host/share or --user, and {VARIABLE} or --password-stdin"
                ));
            }
            NtStatus::ACCOUNT_DISABLED => "let the server's administrator enable the user",
            NtStatus::ACCESS_DENIED => "perhaps the server demands encryption: pass --encrypt",
            _ => return None,
        },
        ConnectError::Request(e) => return request(e),
        _ => return None,
    };
    Some(cure.to_owned())
}

fn no_rdma(why: &WhyNotRdma) -> &'static str {
    match why {
        WhyNotRdma::Encrypted => "leave --encrypt out, or pass --transport tcp",
        WhyNotRdma::ConnectFailed { .. } => "check that the server listens for SMB Direct, and --rdma-port",
        _ => "pass --transport auto or tcp",
    }
}

/// For a file of this machine.
pub fn local(error: &std::io::Error) -> Option<String> {
    use std::io::ErrorKind as Kind;
    let cure = match error.kind() {
        Kind::AlreadyExists => "this name exists here: choose another, or remove that one",
        Kind::NotFound => "check the path: it, or a directory on the way, does not exist here",
        Kind::PermissionDenied => "the user has no permission for this here: see ls -l",
        Kind::StorageFull | Kind::QuotaExceeded => "free some space here; --resume continues a copy",
        Kind::InvalidFilename => "names here have 255 bytes at most: choose a shorter one",
        Kind::IsADirectory => "a directory has this name here: choose another",
        Kind::NotADirectory => "a file is in the way where a directory is needed",
        Kind::ReadOnlyFilesystem => "choose a place that can be written to",
        Kind::UnexpectedEof => "it became shorter while it was copied: copy it again",
        _ => return None,
    };
    Some(cure.to_owned())
}

/// For a request that failed.
pub fn request(error: &RequestError) -> Option<String> {
    if let RequestError::Lost(Lost::TimedOut | Lost::ByServer | Lost::Transport(_)) = error {
        return Some("see the server's log; --resume continues a copy".to_owned());
    }
    let cure = match error.status()? {
        NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::NO_SUCH_FILE => {
            "there is no such file: list its directory with causeway ls"
        }
        NtStatus::OBJECT_PATH_NOT_FOUND => "a directory on the way does not exist: causeway mkdir -p",
        NtStatus::OBJECT_NAME_COLLISION => {
            "this name exists: choose another, or pass --force (mv) or -p (mkdir)"
        }
        NtStatus::BAD_NETWORK_NAME => "there is no such share: see causeway shares smb://host",
        NtStatus::ACCESS_DENIED => {
            "the user has no permission for this, or the share is read-only or requires --encrypt"
        }
        NtStatus::NOT_A_DIRECTORY => "a file is in the way where a directory is needed",
        NtStatus::OBJECT_NAME_INVALID => "the server refuses this name: choose a shorter or simpler one",
        NtStatus::DELETE_PENDING => "it is being deleted: close the programs that have it open, or wait",
        NtStatus::CANNOT_DELETE => "it is read-only, or not empty",
        NtStatus::MEDIA_WRITE_PROTECTED => "the share is read-only",
        NtStatus::SHARING_VIOLATION => "another client has it open: see causeway open list on the server",
        NtStatus::FILE_LOCK_CONFLICT | NtStatus::LOCK_NOT_GRANTED => {
            "another client has locked this part: try again later"
        }
        NtStatus::DISK_FULL | NtStatus::QUOTA_EXCEEDED => "make room on the server",
        NtStatus::DIRECTORY_NOT_EMPTY => "it is not empty: see causeway ls -a",
        NtStatus::FILE_IS_A_DIRECTORY => "it is a directory: name a file in it",
        NtStatus::NETWORK_NAME_DELETED => "the share was removed meanwhile",
        NtStatus::FILE_CLOSED | NtStatus::USER_SESSION_DELETED => {
            "the server's administrator closed it: try again"
        }
        _ => return None,
    };
    Some(cure.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_errors_have_a_cure() {
        let refused = ConnectError::Unreachable {
            address: "127.0.0.1:445".parse().expect("an address"),
            source: std::io::ErrorKind::ConnectionRefused.into(),
        };
        assert!(connect(&refused).is_some_and(|c| c.contains("smb://host:4450")));
        assert!(connect(&ConnectError::LogOn(NtStatus::LOGON_FAILURE)).is_some_and(|c| c.contains(VARIABLE)));
        let no_share = RequestError::Status(NtStatus::BAD_NETWORK_NAME);
        assert!(request(&no_share).is_some_and(|c| c.contains("causeway shares")));
        assert_eq!(request(&RequestError::Status(NtStatus::INTERNAL_ERROR)), None);
        let long = std::io::Error::from_raw_os_error(36); // ENAMETOOLONG
        assert!(local(&long).is_some_and(|c| c.contains("255")));
    }
}
