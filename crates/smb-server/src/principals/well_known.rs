//! The tables of MS-LSAT 3.1.1.1.1, and the BUILTIN groups of a machine that is no domain controller.

use smb_wire::rpc::SidNameUse;
use smb_wire::security::Sid;

/// A well-known SID.
pub(super) struct Group {
    authority: u8,
    sub: &'static [u32],
    pub(super) name: &'static str,
    pub(super) usage: SidNameUse,
}

impl Group {
    pub(super) fn sid(&self) -> Sid {
        Sid::well_known(self.authority, self.sub)
    }
}

const fn group(authority: u8, sub: &'static [u32], name: &'static str) -> Group {
    Group { authority, sub, name, usage: SidNameUse::WELL_KNOWN_GROUP }
}

const fn label(sub: &'static [u32], name: &'static str) -> Group {
    Group { authority: 16, sub, name, usage: SidNameUse::LABEL }
}

/// Domains of well-known SIDs: authority, sub-authorities, name.
pub(super) const AUTHORITIES: &[(u64, &[u32], &str)] = &[
    (0, &[], ""),
    (1, &[], ""),
    (2, &[], ""),
    (3, &[], ""),
    (5, &[], "NT AUTHORITY"),
    (5, &[64], "NT AUTHORITY"),
    (16, &[], "Mandatory Label"),
];

/// Well-known SIDs.
pub(super) const GROUPS: &[Group] = &[
    group(0, &[0], "NULL SID"),
    group(1, &[0], "Everyone"),
    group(2, &[0], "LOCAL"),
    group(2, &[1], "CONSOLE LOGON"),
    group(3, &[0], "CREATOR OWNER"),
    group(3, &[1], "CREATOR GROUP"),
    group(3, &[2], "CREATOR OWNER SERVER"),
    group(3, &[3], "CREATOR GROUP SERVER"),
    group(3, &[4], "OWNER RIGHTS"),
    group(5, &[1], "DIALUP"),
    group(5, &[2], "NETWORK"),
    group(5, &[3], "BATCH"),
    group(5, &[4], "INTERACTIVE"),
    group(5, &[6], "SERVICE"),
    group(5, &[7], "ANONYMOUS LOGON"),
    group(5, &[8], "PROXY"),
    group(5, &[9], "ENTERPRISE DOMAIN CONTROLLERS"),
    group(5, &[10], "SELF"),
    group(5, &[11], "Authenticated Users"),
    group(5, &[12], "RESTRICTED"),
    group(5, &[13], "TERMINAL SERVER USER"),
    group(5, &[14], "REMOTE INTERACTIVE LOGON"),
    group(5, &[15], "This Organization"),
    group(5, &[17], "IUSR"),
    group(5, &[18], "SYSTEM"),
    group(5, &[19], "LOCAL SERVICE"),
    group(5, &[20], "NETWORK SERVICE"),
    group(5, &[33], "WRITE RESTRICTED"),
    group(5, &[113], "Local account"),
    group(5, &[114], "Local account and member of Administrators group"),
    group(5, &[1000], "Other Organization"),
    group(5, &[64, 10], "NTLM Authentication"),
    group(5, &[64, 14], "SChannel Authentication"),
    group(5, &[64, 21], "Digest Authentication"),
    label(&[0], "Untrusted Mandatory Level"),
    label(&[4096], "Low Mandatory Level"),
    label(&[8192], "Medium Mandatory Level"),
    label(&[12288], "High Mandatory Level"),
    label(&[16384], "System Mandatory Level"),
    label(&[20480], "Protected Process Mandatory Level"),
];

/// BUILTIN groups: relative identifier and name, in order.
pub(super) const ALIASES: &[(u32, &str)] = &[
    (544, "Administrators"),
    (545, "Users"),
    (546, "Guests"),
    (547, "Power Users"),
    (551, "Backup Operators"),
    (552, "Replicator"),
    (555, "Remote Desktop Users"),
    (556, "Network Configuration Operators"),
    (558, "Performance Monitor Users"),
    (559, "Performance Log Users"),
    (562, "Distributed COM Users"),
    (568, "IIS_IUSRS"),
    (569, "Cryptographic Operators"),
    (573, "Event Log Readers"),
    (578, "Hyper-V Administrators"),
    (579, "Access Control Assistance Operators"),
    (580, "Remote Management Users"),
];
