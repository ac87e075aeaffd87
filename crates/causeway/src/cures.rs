//! The action of the user that helps with an error.

use smb_client::{ConnectError, Lost, RequestError, WhyNotRdma};
use smb_wire::NtStatus;

use crate::password::VARIABLE;

/// The cure for a connection that could not be established.
pub fn connect(error: &ConnectError) -> Option<String> {
    let cure = match error {
        ConnectError::Resolve { .. } => "check the name, or use the server's address",
        ConnectError::Unreachable { address, source } => match source.kind() {
            std::io::ErrorKind::ConnectionRefused if address.port() == 445 => {
                "no server listens on this port: is it running? For another port, write smb://host:4450/share"
            }
            std::io::ErrorKind::ConnectionRefused => {
                "no server listens on this port: check that it is running, and its port"
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
            NtStatus::ACCOUNT_DISABLED => "ask the administrator of the server to enable the user",
            NtStatus::ACCESS_DENIED => "the server may require encryption: pass --encrypt",
            _ => return None,
        },
        ConnectError::Request(e) => return request(e),
        _ => return None,
    };
    Some(cure.to_owned())
}

fn no_rdma(why: &WhyNotRdma) -> &'static str {
    match why {
        WhyNotRdma::Encrypted => "omit --encrypt, or pass --transport tcp",
        WhyNotRdma::ConnectFailed { .. } => {
            "check that the server listens for SMB Direct, and that --rdma-port is its port"
        }
        _ => "pass --transport auto or tcp",
    }
}

/// The cure for an error of a file of this machine.
pub fn local(error: &std::io::Error) -> Option<String> {
    use std::io::ErrorKind as Kind;
    let cure = match error.kind() {
        Kind::AlreadyExists => "this name exists on this machine: choose another one, or remove it",
        Kind::NotFound => "check the path: it, or one of its directories, does not exist on this machine",
        Kind::PermissionDenied => "you have no permission for this on this machine: see ls -l",
        Kind::StorageFull | Kind::QuotaExceeded => {
            "free some space on this machine; --resume continues a copy"
        }
        Kind::InvalidFilename => "names on this machine have at most 255 bytes: choose a shorter one",
        Kind::IsADirectory => "a directory on this machine has this name: choose another one",
        Kind::NotADirectory => "a part of the path is a file, not a directory: check the path",
        Kind::ReadOnlyFilesystem => "choose a path on a file system that is not read-only",
        Kind::UnexpectedEof => "the file became shorter during the copy: copy it again",
        _ => return None,
    };
    Some(cure.to_owned())
}

/// The cure for a failed request.
pub fn request(error: &RequestError) -> Option<String> {
    if let RequestError::Lost(Lost::TimedOut | Lost::ByServer | Lost::Transport(_)) = error {
        return Some("see the server's log; --resume continues a copy".to_owned());
    }
    let cure = match error.status()? {
        NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::NO_SUCH_FILE => {
            "there is no such file: list its directory with causeway ls"
        }
        NtStatus::OBJECT_PATH_NOT_FOUND => {
            "a directory of the path does not exist: create it with causeway mkdir -p"
        }
        NtStatus::OBJECT_NAME_COLLISION => {
            "this name exists: choose another one, or pass --force (mv) or -p (mkdir)"
        }
        NtStatus::BAD_NETWORK_NAME => "there is no such share: see causeway shares smb://host",
        NtStatus::ACCESS_DENIED => {
            "the user has no permission for this, or the share is read-only or requires --encrypt"
        }
        NtStatus::NOT_A_DIRECTORY => "a part of the path is a file, not a directory: check the path",
        NtStatus::OBJECT_NAME_INVALID => "the server refuses this name: choose a shorter or simpler one",
        NtStatus::NOT_SUPPORTED => "the share does not support this: the server's log may have the reason",
        NtStatus::DELETE_PENDING => {
            "the file is being deleted: close the programs that have it open, or wait"
        }
        NtStatus::CANNOT_DELETE => "the file is read-only, or the directory is not empty",
        NtStatus::MEDIA_WRITE_PROTECTED => "the share is read-only",
        NtStatus::SHARING_VIOLATION => {
            "another client has the file open: see causeway open list on the server"
        }
        NtStatus::FILE_LOCK_CONFLICT | NtStatus::LOCK_NOT_GRANTED => {
            "another client has locked this part of the file: try again later"
        }
        NtStatus::DISK_FULL | NtStatus::QUOTA_EXCEEDED => "free some space on the server",
        NtStatus::DIRECTORY_NOT_EMPTY => "the directory is not empty: see causeway ls -a",
        NtStatus::FILE_IS_A_DIRECTORY => "this is a directory: name a file in it",
        NtStatus::NETWORK_NAME_DELETED => {
            "the share was removed during the request: see causeway shares smb://host"
        }
        NtStatus::FILE_CLOSED | NtStatus::USER_SESSION_DELETED => {
            "the administrator of the server closed the file or the session: try again"
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
