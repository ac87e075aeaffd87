//! What SPNEGO negotiates: a mechanism proves who the client is and yields a session key.
//!
//! NTLM is the only one here ([`crate::ntlm`]). Kerberos will be a second implementation of [`AcceptMechanism`] and
//! [`InitiateMechanism`]: the negotiation, its MIC and the key derivation do not know which mechanism runs. Its session
//! key may have 32 bytes, hence [`SessionKey`] has no fixed length.

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

/// Where accounts come from.
pub trait UserLookup {
    /// The SID of the machine, of which its accounts' SIDs are made. `None`: the one that the account of a session has.
    fn machine_sid(&self) -> Option<Sid> {
        None
    }

    /// Every account, for lists and for names of SIDs; an implementation may list none.
    fn users(&self) -> Vec<UserInfo> {
        Vec::new()
    }

    /// Every local group: of the machine, and the BUILTIN ones (`S-1-5-32-x`) that have members.
    fn groups(&self) -> Vec<GroupInfo> {
        Vec::new()
    }

    /// The account that a client named, or `None`. Names compare without regard to case. The caller takes the same
    /// time over a wrong password as over an unknown name, so this should be quick either way.
    fn lookup(&self, user: &str, domain: &str) -> Option<Account>;

    /// What the account `user`, a name that [`lookup`](Self::lookup) gave, is beside itself. Asked at a log-on.
    fn membership(&self, _user: &str) -> Membership {
        Membership::default()
    }

    /// The account or local group of this name.
    fn principal(&self, _name: &str) -> Option<Sid> {
        None
    }

    /// The account that is mapped to a number of the machine's users: how files of that user are shown.
    fn owner_of(&self, _uid: u32) -> Option<Sid> {
        None
    }

    /// The local group that is mapped to a number of the machine's groups.
    fn group_of(&self, _gid: u32) -> Option<Sid> {
        None
    }
}

/// What an account is beside itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The local groups that it is in.
    pub groups: Vec<Sid>,
    /// The machine's user that it is mapped to.
    pub uid: Option<u32>,
    /// The machine's groups that it is in.
    pub gids: Vec<u32>,
}

/// A local group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its name.
    pub name: String,
    /// A text for people.
    pub comment: String,
    /// Its SID.
    pub sid: Sid,
    /// The SIDs of its members.
    pub members: Vec<Sid>,
}

/// What is known of an account.
#[derive(Clone, Debug)]
pub struct Account {
    /// The name as it was created.
    pub name: String,
    /// The stored secret.
    pub nt_hash: NtHash,
    /// Who the account is in security descriptors.
    pub sid: Sid,
    /// The account exists but may not log on.
    pub disabled: bool,
}

/// Who logged on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The account's name as it was created.
    pub user: String,
    /// The domain that the client gave; it decides nothing for local accounts.
    pub domain: String,
    /// The client machine's name as it gave it: a hint for people, no proof.
    pub workstation: String,
    /// The account's SID.
    pub sid: Sid,
}

/// Who a client says it is: for log lines, before or without proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// The user's name as sent; ill-formed UTF-16 shows as U+FFFD.
    pub user: String,
    /// The domain as sent.
    pub domain: String,
    /// The machine as sent.
    pub workstation: String,
}

/// A step of an accepting mechanism.
#[derive(Debug)]
pub enum MechStep {
    /// Send this token and wait for another.
    Continue(Vec<u8>),
    /// The client has proved its identity.
    Done {
        /// The mechanism's last token, if it has one.
        token: Option<Vec<u8>>,
        /// Who it is.
        identity: Identity,
        /// The key that both ends now share.
        session_key: SessionKey,
    },
}

/// The accepting end of a mechanism.
pub trait AcceptMechanism: Send {
    /// The mechanism's name in SPNEGO.
    fn oid(&self) -> Oid<'static>;

    /// Takes the client's next token.
    ///
    /// # Errors
    /// [`AuthError`]: the log-on has failed, and this value is of no more use.
    fn accept(&mut self, token: &[u8], users: &dyn UserLookup) -> Result<MechStep, AuthError>;

    /// The acceptor's MIC over SPNEGO's list of mechanisms; after `Done` only.
    fn make_mic(&self, mech_list: &[u8]) -> Option<Vec<u8>>;

    /// Whether `mic` is the initiator's MIC over the list; after `Done` only. Takes constant time.
    fn check_mic(&self, mech_list: &[u8], mic: &[u8]) -> bool;

    /// Who the client says it is, once it said so.
    fn claimed(&self) -> Option<&Claimed>;
}

/// The initiating end of a mechanism.
pub trait InitiateMechanism: Send {
    /// The mechanism's name in SPNEGO.
    fn oid(&self) -> Oid<'static>;

    /// The next token, from the acceptor's previous one (empty for the first).
    ///
    /// # Errors
    /// [`AuthError`]: the log-on has failed, and this value is of no more use.
    fn initiate(&mut self, token: &[u8]) -> Result<Vec<u8>, AuthError>;

    /// The session key, once the mechanism has sent its last token.
    fn session_key(&self) -> Option<SessionKey>;

    /// The initiator's MIC over SPNEGO's list of mechanisms, once there is a session key.
    fn make_mic(&self, mech_list: &[u8]) -> Option<Vec<u8>>;

    /// Whether `mic` is the acceptor's MIC over the list. Takes constant time.
    fn check_mic(&self, mech_list: &[u8], mic: &[u8]) -> bool;
}

/// Why a log-on failed. Variants are for our log: to the peer every one of a [`FailureKind`] looks the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The peer's SPNEGO token is malformed.
    #[error("SPNEGO: {0}")]
    Spnego(#[from] SpnegoError),
    /// The peer's NTLM message is malformed.
    #[error("NTLM: {0}")]
    Ntlm(#[from] NtlmError),
    /// The peer sent a token that the exchange has no place for here.
    #[error("unexpected authentication token")]
    OutOfOrder,
    /// The peer offers no mechanism that we have.
    #[error("client and server have no authentication mechanism in common")]
    NoCommonMechanism,
    /// The peer rejected the negotiation.
    #[error("the peer rejected the authentication")]
    Rejected,
    /// The peer wants something that we do not do.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// There is no such account.
    #[error("unknown user")]
    UnknownUser,
    /// The account exists; the response does not fit its secret.
    #[error("wrong password")]
    WrongPassword,
    /// The response is right, but the account is disabled.
    #[error("account disabled")]
    AccountDisabled,
    /// The messages were changed under way.
    #[error("message integrity code missing or wrong")]
    BadMic,
    /// The list of mechanisms was changed under way, or had to be protected and was not.
    #[error("mechanism list MIC missing or wrong")]
    BadMechListMic,
}

/// The token for a peer (MS-SMB2 3.3.5.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// STATUS_INVALID_PARAMETER: the bytes made no sense.
    Malformed,
    /// STATUS_LOGON_FAILURE.
    LogonFailure,
    /// STATUS_ACCOUNT_DISABLED: only for clients that know the password.
    AccountDisabled,
    /// STATUS_ACCESS_DENIED: a null session was wanted.
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
