use super::*;
use crate::AccessMask;
use crate::msg::SecurityInformation;

fn dacl() -> AclBuf {
    let mut acl = AclBuf::new();
    acl.push(&Ace::new(AceType::ACCESS_DENIED, AceFlags::empty(), AccessMask::DELETE, Sid::BUILTIN_USERS))
        .unwrap();
    let inherit = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
    acl.push(&Ace::new(AceType::ACCESS_ALLOWED, inherit, AccessMask::FILE_ALL_ACCESS, Sid::EVERYONE))
        .unwrap();
    acl
}

#[test]
fn sids_as_text() {
    let sid: Sid = "S-1-5-21-1-2-4294967295-500".parse().unwrap();
    assert_eq!((sid.authority(), sid.sub_authorities()), (5, &[21, 1, 2, u32::MAX, 500][..]));
    assert_eq!(sid.to_string(), "S-1-5-21-1-2-4294967295-500");
    assert_eq!(Sid::BUILTIN_ADMINISTRATORS.to_string(), "S-1-5-32-544");
    let big = Sid::new(0x1_0000_0000, &[1]).unwrap();
    assert_eq!(big.to_string(), "S-1-0x000100000000-1");
    assert_eq!(big.to_string().parse(), Ok(big));
    for bad in [
        "",
        "S-2-1",
        "S-1-",
        "S-1-5-x",
        "S-1-0x1000000000000",
        "S-1-5-1-2-3-4-5-6-7-8-9-10-11-12-13-14-15-16",
    ] {
        assert!(bad.parse::<Sid>().is_err(), "{bad}");
    }
}

/// MS-DTYP 2.4.2.2: the SID of everyone has twelve bytes.
#[test]
fn sids_on_the_wire() {
    let mut out = Vec::new();
    Sid::EVERYONE.encode(&mut out);
    assert_eq!(out, [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(Sid::decode(&out), Ok(Sid::EVERYONE));
    out[1] = 16;
    assert!(Sid::decode(&out).is_err(), "sixteen sub-authorities");
    out[..2].copy_from_slice(&[2, 1]);
    assert!(Sid::decode(&out).is_err(), "revision 2");
}

#[test]
fn a_descriptor_round_trips_and_shows_the_parts_asked_for() {
    let kept = SecurityDescriptorBuf {
        control: ControlFlags::DACL_PRESENT | ControlFlags::DACL_PROTECTED,
        owner: Some(Sid::BUILTIN_ADMINISTRATORS),
        group: Some(Sid::BUILTIN_USERS),
        sacl: None,
        dacl: Some(dacl()),
    };
    let mut out = vec![9; 5];
    kept.encode(&mut out);
    let read = SecurityDescriptor::decode(&out[5..]).unwrap();
    assert_eq!(read.control, kept.control | ControlFlags::SELF_RELATIVE);
    assert_eq!((read.owner, read.group), (kept.owner, kept.group));
    read.check_entries().unwrap();
    let entries: Vec<_> = read.dacl.unwrap().iter().map(Result::unwrap).collect();
    assert_eq!(entries.len(), 2);
    assert_eq!((entries[0].ace_type, entries[0].sid), (AceType::ACCESS_DENIED, Sid::BUILTIN_USERS));
    assert_eq!((entries[1].mask, entries[1].sid), (AccessMask::FILE_ALL_ACCESS, Sid::EVERYONE));

    out.clear();
    kept.encode_parts(SecurityInformation::OWNER, &mut out);
    let read = SecurityDescriptor::decode(&out).unwrap();
    assert_eq!((read.owner, read.group, read.dacl), (kept.owner, None, None));
    assert_eq!(read.control, ControlFlags::SELF_RELATIVE, "nothing is said of a DACL that is not shown");
}

/// MS-DTYP 2.4.6: DACL_PRESENT without an offset is the null DACL, which is not an empty DACL.
#[test]
fn null_and_empty_dacl_are_two_things() {
    for dacl in [None, Some(AclBuf::new())] {
        let kept = SecurityDescriptorBuf { control: ControlFlags::DACL_PRESENT, dacl, ..Default::default() };
        let mut out = Vec::new();
        kept.encode(&mut out);
        let read = SecurityDescriptor::decode(&out).unwrap();
        assert!(read.control.contains(ControlFlags::DACL_PRESENT));
        assert_eq!(read.to_buf().dacl, kept.dacl);
    }
}

#[test]
fn setting_one_part_leaves_the_others() {
    let mut kept = SecurityDescriptorBuf { owner: Some(Sid::EVERYONE), ..Default::default() };
    let new = SecurityDescriptorBuf {
        control: ControlFlags::DACL_PRESENT | ControlFlags::OWNER_DEFAULTED,
        owner: Some(Sid::ANONYMOUS),
        dacl: Some(dacl()),
        ..Default::default()
    };
    let mut out = Vec::new();
    new.encode(&mut out);
    kept.replace_parts(SecurityInformation::DACL, &SecurityDescriptor::decode(&out).unwrap());
    assert_eq!((kept.owner, &kept.dacl), (Some(Sid::EVERYONE), &new.dacl));
    assert_eq!(kept.control, ControlFlags::DACL_PRESENT);
}

#[test]
fn object_entries_and_application_data_survive() {
    let ace = Ace {
        ace_type: AceType::ACCESS_ALLOWED_OBJECT,
        flags: AceFlags::INHERITED,
        mask: AccessMask::READ_CONTROL,
        object_types: (None, Some(crate::Guid([7; 16]))),
        sid: Sid::LOCAL_SYSTEM,
        application_data: b"abcd",
    };
    let mut acl = AclBuf::new();
    acl.push(&ace).unwrap();
    assert_eq!(acl.as_acl().revision(), 4);
    let read = Acl::decode(acl.as_bytes()).unwrap();
    assert_eq!(read.iter().map(Result::unwrap).collect::<Vec<_>>(), [ace]);
}

#[test]
fn a_list_that_grows_too_long_stays_as_it_was() {
    let big = vec![0; 65_000];
    let mut acl = dacl();
    let before = acl.clone();
    let ace = Ace {
        application_data: &big,
        ..Ace::new(AceType(9), AceFlags::empty(), AccessMask::all(), Sid::EVERYONE)
    };
    acl.push(&ace).unwrap();
    let full = acl.clone();
    assert!(acl.push(&ace).is_err());
    assert_eq!(acl, full);
    assert_ne!(acl, before);
}

#[test]
fn entries_that_lie_about_their_size_end_the_list() {
    for size in [0u16, 3, 4, 6, 200] {
        let mut bytes = dacl().as_bytes().to_vec();
        bytes[10..12].copy_from_slice(&size.to_le_bytes());
        let acl = Acl::decode(&bytes).unwrap();
        let items: Vec<_> = acl.iter().collect();
        assert!(matches!(items[..], [Err(_)]), "{size}: {items:?}");
    }
}
