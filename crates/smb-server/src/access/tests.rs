mod linux;

use super::*;

const ALLOW: AceType = AceType::ACCESS_ALLOWED;
const DENY: AceType = AceType::ACCESS_DENIED;
const READ: AccessMask = AccessMask::READ_DATA;
const WRITE: AccessMask = AccessMask::WRITE_DATA;

fn sid(rid: u32) -> Sid {
    Sid::new(5, &[21, 1, 2, 3, rid]).expect("short")
}

fn user(rid: u32) -> User {
    User {
        name: String::new(),
        workstation: String::new(),
        sid: sid(rid),
        groups: vec![Sid::EVERYONE, sid(500)],
    }
}

fn descriptor(owner: Sid, entries: &[(AceType, AceFlags, AccessMask, Sid)]) -> Vec<u8> {
    let mut dacl = AclBuf::new();
    for (ace_type, flags, mask, sid) in entries {
        dacl.push(&Ace::new(*ace_type, *flags, *mask, *sid)).expect("fits");
    }
    let d = SecurityDescriptorBuf {
        control: ControlFlags::DACL_PRESENT,
        owner: Some(owner),
        dacl: Some(dacl),
        ..SecurityDescriptorBuf::default()
    };
    encoded(&d)
}

fn encoded(d: &SecurityDescriptorBuf) -> Vec<u8> {
    let mut bytes = Vec::new();
    d.encode(&mut bytes);
    bytes
}

fn here(entries: &[(AceType, AccessMask, Sid)]) -> Vec<u8> {
    let entries: Vec<_> = entries.iter().map(|(t, m, s)| (*t, AceFlags::empty(), *m, *s)).collect();
    descriptor(sid(9), &entries)
}

// MS-DTYP 2.5.3.2: the order decides.
#[test]
fn the_first_entry_for_a_right_wins() {
    let me = user(1);
    let may = |d: &[u8]| maximal(&me, Some(d));
    assert_eq!(may(&here(&[])), AccessMask::empty());
    assert_eq!(may(&here(&[(ALLOW, READ, sid(1))])), READ);
    assert_eq!(may(&here(&[(ALLOW, READ, sid(2))])), AccessMask::empty());
    assert_eq!(may(&here(&[(ALLOW, READ, sid(500))])), READ, "by a group");
    assert_eq!(may(&here(&[(DENY, READ, Sid::EVERYONE), (ALLOW, READ | WRITE, sid(1))])), WRITE);
    assert_eq!(may(&here(&[(ALLOW, READ | WRITE, sid(1)), (DENY, READ, Sid::EVERYONE)])), READ | WRITE);
    assert_eq!(may(&here(&[(ALLOW, AccessMask::GENERIC_READ, sid(1))])), AccessMask::FILE_GENERIC_READ);
}

#[test]
fn no_descriptor_null_dacl_and_a_broken_one() {
    let me = user(1);
    assert_eq!(maximal(&me, None), AccessMask::FILE_ALL_ACCESS);
    let null =
        SecurityDescriptorBuf { control: ControlFlags::DACL_PRESENT, ..SecurityDescriptorBuf::default() };
    assert_eq!(maximal(&me, Some(&encoded(&null))), AccessMask::FILE_ALL_ACCESS);
    assert_eq!(maximal(&me, Some(b"nonsense")), AccessMask::empty());
}

// MS-DTYP 2.4.2.4: the implicit rights of an owner, unless the list has an entry for owner rights.
#[test]
fn owners() {
    let owned = |entries: &[_]| descriptor(sid(1), entries);
    assert_eq!(maximal(&user(1), Some(&owned(&[]))), OWNER_MAY);
    assert_eq!(maximal(&user(2), Some(&owned(&[]))), AccessMask::empty());
    let limited = owned(&[(ALLOW, AceFlags::empty(), READ, owner_rights())]);
    assert_eq!(maximal(&user(1), Some(&limited)), READ);
    assert_eq!(maximal(&user(2), Some(&limited)), AccessMask::empty());
    let passed_on = owned(&[(ALLOW, AceFlags::INHERIT_ONLY, READ, owner_rights())]);
    assert_eq!(maximal(&user(1), Some(&passed_on)), OWNER_MAY);
}

fn entries_of(bytes: &[u8]) -> Vec<(AceFlags, AccessMask, Sid)> {
    let d = SecurityDescriptor::decode(bytes).expect("our own");
    d.dacl.expect("has one").iter().map(|a| a.map(|a| (a.flags, a.mask, a.sid)).expect("our own")).collect()
}

// MS-DTYP 2.5.3.4: the table of which flags a child gets.
#[test]
fn inheritance() {
    let (oi, ci) = (AceFlags::OBJECT_INHERIT, AceFlags::CONTAINER_INHERIT);
    let (np, io) = (AceFlags::NO_PROPAGATE_INHERIT, AceFlags::INHERIT_ONLY);
    let none = AceFlags::empty();
    for (flags, file, folder) in [
        (oi, Some(none), Some(oi | io)),
        (ci, None, Some(ci)),
        (oi | ci, Some(none), Some(oi | ci)),
        (oi | ci | io, Some(none), Some(oi | ci)),
        (oi | ci | np, Some(none), Some(none)),
        (oi | np, Some(none), None),
        (none, None, None),
    ] {
        let parent = descriptor(sid(9), &[(ALLOW, flags, READ, sid(2))]);
        for (directory, expected) in [(false, file), (true, folder)] {
            let new = for_new(&user(1), Some(&parent), None, directory).expect("made");
            let expected = match expected {
                Some(flags) => vec![(flags, READ, sid(2))],
                // Nothing is inherited: the entries are for the owner and the system.
                None => [sid(1), Sid::LOCAL_SYSTEM].map(|s| (none, AccessMask::FILE_ALL_ACCESS, s)).to_vec(),
            };
            assert_eq!(entries_of(&new), expected, "{flags:?}, directory: {directory}");
        }
    }
}

#[test]
fn creator_owner_becomes_somebody() {
    let both = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
    let parent = descriptor(sid(9), &[(ALLOW, both, AccessMask::GENERIC_READ, Sid::CREATOR_OWNER)]);
    let file = for_new(&user(1), Some(&parent), None, false).expect("made");
    let mine = (AceFlags::empty(), AccessMask::FILE_GENERIC_READ, sid(1));
    assert_eq!(entries_of(&file), [mine]);
    let folder = for_new(&user(1), Some(&parent), None, true).expect("made");
    let goes_on = (both | AceFlags::INHERIT_ONLY, AccessMask::GENERIC_READ, Sid::CREATOR_OWNER);
    assert_eq!(entries_of(&folder), [mine, goes_on]);
    let d = SecurityDescriptor::decode(&file).expect("our own");
    assert_eq!((d.owner, d.group), (Some(sid(1)), Some(sid(513))));
}

const AUDIT: AceType = AceType::SYSTEM_AUDIT;
const LABEL: AceType = AceType::SYSTEM_MANDATORY_LABEL;

/// A descriptor with a SACL of these entries alone.
fn audited(control: ControlFlags, entries: &[(AceType, AceFlags, AccessMask, Sid)]) -> Vec<u8> {
    let mut sacl = AclBuf::new();
    for (ace_type, flags, mask, sid) in entries {
        sacl.push(&Ace::new(*ace_type, *flags, *mask, *sid)).expect("fits");
    }
    encoded(&SecurityDescriptorBuf { control, sacl: Some(sacl), ..SecurityDescriptorBuf::default() })
}

fn administrator() -> User {
    User { groups: vec![Sid::EVERYONE, Sid::BUILTIN_ADMINISTRATORS], ..user(1) }
}

type Entries = Vec<(AceFlags, AccessMask, Sid)>;

/// The entries of a descriptor's SACL, and whether it is auto-inherited and protected.
fn sacl_of(bytes: &[u8]) -> (Option<Entries>, bool, bool) {
    let d = SecurityDescriptor::decode(bytes).expect("our own");
    let entries = d.sacl.map(|s| {
        s.iter().map(|a| a.map(|a| (a.flags, a.mask, a.sid)).expect("our own")).collect::<Entries>()
    });
    let has = |flag| d.control.contains(flag);
    (entries, has(ControlFlags::SACL_AUTO_INHERITED), has(ControlFlags::SACL_PROTECTED))
}

// MS-DTYP 2.5.3.4.1, step 4: the rules of inheritance for SACLs are those for DACLs, and do not depend on the creator.
#[test]
fn audit_entries_are_inherited() {
    let (oi, ci, failed) = (AceFlags::OBJECT_INHERIT, AceFlags::CONTAINER_INHERIT, AceFlags::FAILED_ACCESS);
    let entries = [(AUDIT, oi | ci | failed, READ, sid(2)), (AUDIT, failed, WRITE, sid(3))];
    for (control, auto) in [(ControlFlags::empty(), false), (ControlFlags::SACL_AUTO_INHERITED, true)] {
        let parent = audited(control, &entries);
        let mark = if auto { AceFlags::INHERITED } else { AceFlags::empty() };
        for maker in [user(1), administrator()] {
            let file = for_new(&maker, Some(&parent), None, false).expect("made");
            assert_eq!(sacl_of(&file), (Some(vec![(failed | mark, READ, sid(2))]), auto, false));
            let folder = for_new(&maker, Some(&parent), None, true).expect("made");
            assert_eq!(sacl_of(&folder), (Some(vec![(oi | ci | failed | mark, READ, sid(2))]), auto, false));
        }
    }
    let parent = audited(ControlFlags::SACL_AUTO_INHERITED, &entries[1..]);
    let file = for_new(&user(1), Some(&parent), None, false).expect("made");
    assert_eq!(sacl_of(&file), (None, false, false), "nothing is passed on");
}

// MS-DTYP 2.5.3.4.2: a creator's explicit entries come first, unless it protects its list.
#[test]
fn a_creator_sends_audit_entries() {
    let (oi, failed) = (AceFlags::OBJECT_INHERIT, AceFlags::FAILED_ACCESS);
    let parent = audited(ControlFlags::SACL_AUTO_INHERITED, &[(AUDIT, oi | failed, READ, sid(2))]);
    let inherited = (failed | AceFlags::INHERITED, READ, sid(2));
    let entries = [
        (AUDIT, failed, AccessMask::GENERIC_WRITE, sid(3)),
        (AUDIT, failed | AceFlags::INHERITED, WRITE, sid(4)),
    ];
    let explicit = (failed, AccessMask::FILE_GENERIC_WRITE, sid(3));
    let made = |user: &User, sent: &[u8]| for_new(user, Some(&parent), Some(sent), false);
    let sent = audited(ControlFlags::empty(), &entries);
    let file = made(&administrator(), &sent).expect("by the privilege");
    assert_eq!(sacl_of(&file), (Some(vec![explicit, inherited]), true, false));
    let protected = audited(ControlFlags::SACL_PROTECTED, &entries);
    let file = made(&administrator(), &protected).expect("by the privilege");
    assert_eq!(sacl_of(&file), (Some(vec![explicit, (failed, WRITE, sid(4))]), false, true));

    // Without SeSecurityPrivilege: only labels and resource attributes, which do not end the audit of the folder.
    let empty = audited(ControlFlags::SACL_PROTECTED, &[]);
    let label = (LABEL, AceFlags::empty(), READ, sid(5));
    let both = audited(ControlFlags::empty(), &[label, entries[0]]);
    for refused in [&sent, &protected, &empty, &both] {
        assert_eq!(made(&user(1), refused), Err(NtStatus::PRIVILEGE_NOT_HELD));
    }
    let file = made(&user(1), &audited(ControlFlags::SACL_PROTECTED, &[label])).expect("a label");
    assert_eq!(sacl_of(&file), (Some(vec![(AceFlags::empty(), READ, sid(5)), inherited]), true, false));
    // SACL_PRESENT without a list: none is sent.
    let mut none = descriptor(sid(1), &[]);
    none[2] |= ControlFlags::SACL_PRESENT.bits() as u8;
    let file = made(&user(1), &none).expect("no list");
    assert_eq!(sacl_of(&file), (Some(vec![inherited]), true, false));
}

// MS-FSA 2.1.5.17: parts that are not named stay; a file cannot be given to another user.
#[test]
fn changing() {
    let stored = here(&[(ALLOW, READ, sid(2))]);
    let sent = descriptor(sid(1), &[(ALLOW, AceFlags::empty(), AccessMask::GENERIC_WRITE, sid(3))]);
    let dacl = changed(&user(1), Some(&stored), SecurityInformation::DACL, &sent).expect("sound");
    let d = SecurityDescriptor::decode(&dacl).expect("our own");
    assert_eq!(d.owner, Some(sid(9)));
    assert_eq!(entries_of(&dacl), [(AceFlags::empty(), AccessMask::FILE_GENERIC_WRITE, sid(3))]);
    let owner = |u: &User| changed(u, Some(&stored), SecurityInformation::OWNER, &sent).map(|_| ());
    assert_eq!(owner(&user(1)), Ok(()));
    assert_eq!(owner(&user(2)), Err(NtStatus::INVALID_OWNER));
    let broken = changed(&user(1), Some(&stored), SecurityInformation::DACL, &sent[..30]);
    assert_eq!(broken, Err(NtStatus::INVALID_SECURITY_DESCR));
}

// A descriptor that exists but cannot be read gives access only to administrators, who can repair it.
#[test]
fn a_descriptor_that_cannot_be_read() {
    let me = user(1);
    let administrator = User { groups: vec![Sid::EVERYONE, Sid::BUILTIN_ADMINISTRATORS], ..user(2) };
    for error in [VfsError::Damaged, VfsError::Io(5), VfsError::Unsupported] {
        let d = stored(Err(error)).expect("it is judged");
        assert_eq!(maximal(&me, d.as_deref()), AccessMask::empty(), "{error}");
        let theirs = maximal(&administrator, d.as_deref());
        assert!(theirs.contains(OWNER_MAY) && !theirs.intersects(READ | WRITE), "{error}: {theirs:?}");
        let sent = here(&[(ALLOW, READ, sid(1))]);
        let new = changed(&administrator, d.as_deref(), SecurityInformation::DACL, &sent).expect("repaired");
        assert_eq!(maximal(&me, Some(&new)), READ);
    }
    assert_eq!(stored(Ok(None)), Ok(None));
    assert_eq!(stored(Err(VfsError::TooManyOpen)), Err(NtStatus::TOO_MANY_OPENED_FILES));
}
