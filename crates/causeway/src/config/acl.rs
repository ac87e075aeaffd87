//! The permission of a share: `NAME=LEVEL`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One entry of a share's permission.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AclEntry {
    /// A user or group, `Everyone`, `Administrators`, or a SID.
    pub name: String,
    /// Its level.
    pub level: AclLevel,
}

/// The level of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AclLevel {
    /// No access, regardless of other entries.
    Deny,
    /// Read.
    Read,
    /// Read, write and delete.
    Change,
    /// Everything, including changes of security descriptors.
    Full,
}

/// A text is not a valid [`AclEntry`].
#[derive(Debug, Error)]
#[error("write it like NAME=read, with read, change, full or deny")]
pub struct NotAnEntry;

impl AclLevel {
    const ALL: [(AclLevel, &'static str); 4] = [
        (AclLevel::Deny, "deny"),
        (AclLevel::Read, "read"),
        (AclLevel::Change, "change"),
        (AclLevel::Full, "full"),
    ];
}

impl fmt::Display for AclLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(AclLevel::ALL[*self as usize].1)
    }
}

impl fmt::Display for AclEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.level)
    }
}

/// A name has no `=`, so the last one is the separator.
impl FromStr for AclEntry {
    type Err = NotAnEntry;

    fn from_str(text: &str) -> Result<AclEntry, NotAnEntry> {
        let (name, level) = text.rsplit_once('=').ok_or(NotAnEntry)?;
        let (level, _) = AclLevel::ALL.into_iter().find(|(_, word)| *word == level).ok_or(NotAnEntry)?;
        let name = name.trim();
        if name.is_empty() || name.contains('=') || name.chars().any(char::is_control) {
            return Err(NotAnEntry);
        }
        Ok(AclEntry { name: name.to_owned(), level })
    }
}

impl TryFrom<String> for AclEntry {
    type Error = NotAnEntry;

    fn try_from(text: String) -> Result<AclEntry, NotAnEntry> {
        text.parse()
    }
}

impl From<AclEntry> for String {
    fn from(entry: AclEntry) -> String {
        entry.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for text in ["alice=read", "Domain Users=change", "S-1-1-0=full", "bob=deny"] {
            assert_eq!(text.parse::<AclEntry>().expect("an entry").to_string(), text);
        }
        for bad in ["", "alice", "=read", "alice=write", "alice=Read", "a=b=read"] {
            assert!(bad.parse::<AclEntry>().is_err(), "{bad}");
        }
    }
}
