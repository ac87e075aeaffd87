//! The mechanism that SPNEGO negotiates: it proves the client's identity and yields a session key.
//!
//! NTLM ([`crate::ntlm`]) is the only implementation so far. Kerberos will be a second implementation of
//! [`AcceptMechanism`] and [`InitiateMechanism`]: the negotiation, its MIC and the key derivation do not depend on
//! the mechanism. A Kerberos session key may have 32 bytes, so [`SessionKey`] has no fixed length.

use zeroize::Zeroizing;

use crate::ntlm::{NtHash, NtlmError, Refusal};
use crate::sid::Sid;
use crate::spnego::{Oid, SpnegoError};
use crate::users::UserInfo;

/// A mechanism's session key: 16 bytes from NTLM. Wiped when dropped. Goes into
/// [`SessionKeys::derive`](crate::derive::SessionKeys::derive).
pub type SessionKey = Zeroizing<Vec<u8>>;

/// 100 ns intervals since 1601-01-01 UTC (MS-DTYP 2.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileTime(pub u64);

impl FileTime {
    /// The time this long after 1970-01-01 UTC.
    pub fn from_unix(since_epoch: std::time::Duration) -> Self {
        const EPOCH_100NS: u64 = 116_444_736_000_000_000;
        let intervals = u64::try_from(since_epoch.as_nanos() / 100).unwrap_or(u64::MAX);
        Self(intervals.saturating_add(EPOCH_100NS))
    }
}

/// Source of accounts.
pub trait UserLookup {
    /// The machine's SID, which prefixes the SIDs of its accounts. If `None`, callers use the prefix of the
    /// session's account SID.
    fn machine_sid(&self) -> Option<Sid> {
        None
    }

    /// Every account, for enumerations and for translating SIDs to names; an implementation may return none.
    fn users(&self) -> Vec<UserInfo> {
        Vec::new()
    }

    /// Every local group: those of the machine, and the BUILTIN groups (`S-1-5-32-x`) that have members.
    fn groups(&self) -> Vec<GroupInfo> {
        Vec::new()
    }

    /// The account that a client named, or `None`. Names are compared case-insensitively. The caller takes the same
    /// time for a wrong password as for an unknown name, so this function should be fast in both cases.
    fn lookup(&self, user: &str, domain: &str) -> Option<Account>;

    /// Groups and POSIX identifiers of the account `user`, a name that [`lookup`](Self::lookup) returned. Called at
    /// log-on.
    fn membership(&self, _user: &str) -> Membership {
        Membership::default()
    }

    /// The SID of the account or local group with this name; `None` if there is none.
    fn principal(&self, _name: &str) -> Option<Sid> {
        None
    }

    /// The account that is mapped to a POSIX user: files of that user show it as their owner.
    fn owner_of(&self, _uid: u32) -> Option<Sid> {
        None
    }

    /// The local group that is mapped to a POSIX group.
    fn group_of(&self, _gid: u32) -> Option<Sid> {
        None
    }
}

/// Groups and POSIX identifiers of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// SIDs of the local groups that contain the account.
    pub groups: Vec<Sid>,
    /// The POSIX user that the account is mapped to.
    pub uid: Option<u32>,
    /// The POSIX groups of the account.
    pub gids: Vec<u32>,
}

/// A local group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its name.
    pub name: String,
    /// A description for people.
    pub comment: String,
    /// Its SID.
    pub sid: Sid,
    /// The SIDs of its members.
    pub members: Vec<Sid>,
}

/// An account as stored.
#[derive(Clone, Debug)]
pub struct Account {
    /// The name as it was created.
    pub name: String,
    /// The stored secret.
    pub nt_hash: NtHash,
    /// The account's SID in security descriptors.
    pub sid: Sid,
    /// The account exists but may not log on.
    pub disabled: bool,
}

/// The identity that logged on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The account's name as it was created.
    pub user: String,
    /// The domain that the client sent; it is ignored for local accounts.
    pub domain: String,
    /// The client machine's name as the client sent it, without proof.
    pub workstation: String,
    /// The account's SID.
    pub sid: Sid,
}

/// The identity that a client claims, for log lines; it may be unproved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// The user's name as sent; ill-formed UTF-16 shows as U+FFFD.
    pub user: String,
    /// The domain as sent.
    pub domain: String,
    /// The machine as sent.
    pub workstation: String,
}

/// Result of one step of an accepting mechanism.
#[derive(Debug)]
pub enum MechStep {
    /// Send this token and wait for another.
    Continue(Vec<u8>),
    /// The client has proved its identity.
    Done {
        /// The mechanism's last token, if it has one.
        token: Option<Vec<u8>>,
        /// The proved identity.
        identity: Identity,
        /// The key that both ends now share.
        session_key: SessionKey,
    },
}

/// The accepting end of a mechanism.
pub trait AcceptMechanism: Send {
    /// The mechanism's object identifier in SPNEGO.
    fn oid(&self) -> Oid<'static>;

    /// Processes the client's next token.
    ///
    /// # Errors
    /// [`AuthError`]: the log-on has failed, and this value must not be used again.
    fn accept(&mut self, token: &[u8], users: &dyn UserLookup) -> Result<MechStep, AuthError>;

    /// Returns the acceptor's MIC over SPNEGO's list of mechanisms; `None` before `Done`.
    fn make_mic(&self, mech_list: &[u8]) -> Option<Vec<u8>>;

    /// Whether `mic` is the initiator's MIC over the list; false before `Done`. Takes constant time.
    fn check_mic(&self, mech_list: &[u8], mic: &[u8]) -> bool;

    /// The identity that the client claims; `None` until the client has sent it.
    fn claimed(&self) -> Option<&Claimed>;
}

/// The initiating end of a mechanism.
pub trait InitiateMechanism: Send {
    /// The mechanism's object identifier in SPNEGO.
    fn oid(&self) -> Oid<'static>;

    /// Returns the next token, given the acceptor's previous token (empty for the first).
    ///
    /// # Errors
    /// [`AuthError`]: the log-on has failed, and this value must not be used again.
    fn initiate(&mut self, token: &[u8]) -> Result<Vec<u8>, AuthError>;

    /// The session key; `None` until the mechanism has sent its last token.
    fn session_key(&self) -> Option<SessionKey>;

    /// The initiator's MIC over SPNEGO's list of mechanisms; `None` until there is a session key.
    fn make_mic(&self, mech_list: &[u8]) -> Option<Vec<u8>>;

    /// Whether `mic` is the acceptor's MIC over the list. Takes constant time.
    fn check_mic(&self, mech_list: &[u8], mic: &[u8]) -> bool;
}

/// Why a log-on failed. The variants are for our log: the peer cannot distinguish those of one [`FailureKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The peer's SPNEGO token is malformed.
    #[error("SPNEGO: {0}")]
    Spnego(#[from] SpnegoError),
    /// The peer's NTLM message is malformed.
    #[error("NTLM: {0}")]
    Ntlm(#[from] NtlmError),
    /// The peer sent a token that is not valid in this state of the exchange.
    #[error("unexpected authentication token")]
    OutOfOrder,
    /// The peer offers no mechanism that we support.
    #[error("client and server have no authentication mechanism in common")]
    NoCommonMechanism,
    /// The peer rejected the negotiation.
    #[error("the peer rejected the authentication")]
    Rejected,
    /// The peer asks for something that we refuse.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// There is no such account.
    #[error("unknown user")]
    UnknownUser,
    /// The account exists, but the response does not match its password hash.
    #[error("wrong password")]
    WrongPassword,
    /// The response is right, but the account is disabled.
    #[error("account disabled")]
    AccountDisabled,
    /// The messages were modified in transit.
    #[error("message integrity code missing or wrong")]
    BadMic,
    /// The list of mechanisms was modified in transit, or its required MIC is missing.
    #[error("mechanism list MIC missing or wrong")]
    BadMechListMic,
}

/// The status that the peer receives (MS-SMB2 3.3.5.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// STATUS_INVALID_PARAMETER: the token was malformed or out of order.
    Malformed,
    /// STATUS_LOGON_FAILURE.
    LogonFailure,
    /// STATUS_ACCOUNT_DISABLED: only for clients that know the password.
    AccountDisabled,
    /// STATUS_ACCESS_DENIED: the client asked for a null session.
    AccessDenied,
}

impl AuthError {
    /// The status for the peer.
    pub fn kind(self) -> FailureKind {
        match self {
            Self::Spnego(_) | Self::Ntlm(_) | Self::OutOfOrder => FailureKind::Malformed,
            Self::Refused(Refusal::Anonymous) => FailureKind::AccessDenied,
            Self::AccountDisabled => FailureKind::AccountDisabled,
            Self::NoCommonMechanism
            | Self::Rejected
            | Self::Refused(_)
            | Self::UnknownUser
            | Self::WrongPassword
            | Self::BadMic
            | Self::BadMechListMic => FailureKind::LogonFailure,
        }
    }
}
