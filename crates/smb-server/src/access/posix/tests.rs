use super::super::maximal;
use super::*;
use crate::identity::User;

struct Accounts;

impl UserLookup for Accounts {
    fn lookup(&self, _: &str, _: &str) -> Option<smb_auth::mechanism::Account> {
        None
    }

    fn owner_of(&self, uid: u32) -> Option<smb_auth::sid::Sid> {
        (uid == 1000).then(|| smb_auth::sid::Sid::machine([1, 2, 3]).account(1000))
    }
}

const READ: AccessMask = AccessMask::READ_DATA;
const WRITE: AccessMask = AccessMask::WRITE_DATA;
const DELETE: AccessMask = AccessMask::DELETE;
const DELETE_CHILD: AccessMask = AccessMask::DELETE_CHILD;
const EXECUTE: AccessMask = AccessMask::EXECUTE;
const CHANGE: AccessMask = AccessMask::WRITE_DAC;
const ALL: AccessMask = READ.union(WRITE).union(DELETE).union(DELETE_CHILD).union(EXECUTE).union(CHANGE);

fn user(uid: Option<u32>, gids: &[u32]) -> User {
    let mut groups = vec![Sid::EVERYONE, Sid::AUTHENTICATED_USERS];
    groups.extend(uid.into_iter().flat_map(|uid| [user_sid(uid), nfs::owner(uid)]));
    groups.extend(gids.iter().flat_map(|gid| [group_sid(*gid), nfs::group(*gid)]));
    let rid = uid.unwrap_or(9000);
    let sid = Sid::new(5, &[21, 1, 2, 3, rid]).expect("short");
    User { name: String::new(), workstation: String::new(), sid, groups }
}

fn encoded(mode: u32, kind: Kind) -> Vec<u8> {
    let mut bytes = Vec::new();
    descriptor(&Posix { uid: 1000, gid: 100, mode }, kind, &Accounts).encode(&mut bytes);
    bytes
}

/// The rights of the owner, of a member of the group and of another user, out of [`ALL`].
fn may(mode: u32, kind: Kind) -> [AccessMask; 3] {
    let bytes = encoded(mode, kind);
    [user(Some(1000), &[100]), user(Some(1001), &[100]), user(None, &[])]
        .map(|u| maximal(&u, Some(&bytes)) & ALL)
}

#[test]
fn files() {
    let read = READ | EXECUTE;
    let own = read | WRITE | DELETE | CHANGE;
    let nothing = AccessMask::empty();
    assert_eq!(may(0o600, Kind::File), [own, nothing, nothing]);
    assert_eq!(may(0o644, Kind::File), [own, read, read]);
    assert_eq!(may(0o660, Kind::File), [own, read | WRITE, nothing]);
    assert_eq!(may(0o666, Kind::File), [own, read | WRITE, read | WRITE]);
    assert_eq!(may(0o000, Kind::File), [CHANGE, nothing, nothing], "an owner can give itself rights");
    // POSIX: the first class that fits decides, even where it allows less than a later one.
    assert_eq!(may(0o604, Kind::File), [own, nothing, read]);
    assert_eq!(may(0o066, Kind::File), [CHANGE, read | WRITE, read | WRITE]);
}

#[test]
fn directories() {
    let pass = READ | EXECUTE;
    let own = pass | WRITE | DELETE | DELETE_CHILD | CHANGE;
    let nothing = AccessMask::empty();
    assert_eq!(may(0o700, Kind::Directory), [own, nothing, nothing]);
    assert_eq!(may(0o755, Kind::Directory), [own, pass, pass]);
    assert_eq!(may(0o2775, Kind::Directory), [own, pass | WRITE | DELETE_CHILD, pass]);
    assert_eq!(may(0o711, Kind::Directory), [own, EXECUTE, EXECUTE]);
    let sticky = pass | WRITE;
    assert_eq!(may(0o1777, Kind::Directory), [own, sticky, sticky], "to delete is the owner's of each file");
}

#[test]
fn what_a_directory_passes_on() {
    let (maker, member, stranger) = (user(Some(1001), &[100]), user(Some(1002), &[100]), user(None, &[]));
    for (mode, members, others) in [
        (0o777, READ | WRITE, READ | WRITE),
        (0o775, READ | WRITE, READ),
        (0o750, READ, AccessMask::empty()),
        (0o705, AccessMask::empty(), READ),
    ] {
        let parent = encoded(mode, Kind::Directory);
        let made = super::super::for_new(&maker, Some(&parent), None, false).expect("made");
        assert_eq!(maximal(&maker, Some(&made)), AccessMask::FILE_ALL_ACCESS, "{mode:o}");
        assert_eq!(maximal(&member, Some(&made)) & (READ | WRITE | DELETE), members, "{mode:o}");
        assert_eq!(maximal(&stranger, Some(&made)) & (READ | WRITE | DELETE), others, "{mode:o}");
    }
}

#[test]
fn administrators_are_as_root() {
    let mut administrator = user(None, &[]);
    administrator.groups.push(Sid::BUILTIN_ADMINISTRATORS);
    let may = maximal(&administrator, Some(&encoded(0o600, Kind::File)));
    assert!(may.contains(AccessMask::FILE_ALL_ACCESS));
}

#[test]
fn owner_group_and_mode_are_shown() {
    let d = descriptor(&Posix { uid: 1000, gid: 100, mode: 0o4755 }, Kind::File, &Accounts);
    assert_eq!(d.owner.map(|s| s.to_string()).as_deref(), Some("S-1-5-21-1-2-3-1000"), "an account");
    assert_eq!(d.group.map(|s| s.to_string()).as_deref(), Some("S-1-22-2-100"), "no local group");
    let dacl = d.dacl.expect("always");
    let sids: Vec<String> =
        dacl.as_acl().iter().map(Result::unwrap).take(3).map(|a| a.sid.to_string()).collect();
    assert_eq!(sids, ["S-1-5-88-1-1000", "S-1-5-88-2-100", &format!("S-1-5-88-3-{}", 0o104_755)]);
}
