use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A temporary folder for each test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("smb-auth-users-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("users.toml")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn hash(password: &str) -> NtHash {
    NtHash::from_password(password)
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn users_survive_on_disk() {
    let folder = Folder::new("survive");
    let users = UserFile::create(folder.file(), [1, 2, 3]).unwrap();
    assert_eq!(users.add("Alice", hash("a"), "Alice Liddell").unwrap().to_string(), "S-1-5-21-1-2-3-1000");
    assert_eq!(
        users.add("bob \"x\"", hash("b"), "").unwrap_err().to_string().split(" cannot").next(),
        Some("\"bob \\\"x\\\"\"")
    );
    users.add("bob", hash("b"), "quotes \" and\nlines").unwrap();
    users.set_disabled("BOB", true).unwrap();
    users.set_password("alice", hash("new")).unwrap();

    let again = UserFile::open(folder.file()).unwrap();
    assert_eq!(again.list(), users.list());
    assert_eq!(again.list()[1].full_name, "quotes \" and\nlines");
    let alice = again.lookup("ALICE", "ANY").unwrap();
    assert_eq!(alice.name, "Alice");
    assert_eq!(alice.nt_hash, hash("new"));
    assert_eq!(again.lookup("alice@example.org", "").unwrap().name, "Alice");
    assert!(again.lookup("bob", "").unwrap().disabled);
    assert!(again.lookup("carol", "").is_none());
    assert_eq!(fs::metadata(folder.file()).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(fs::read_to_string(folder.file()).unwrap().starts_with("# The users of this server."));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "nothing is left beside the file");
}

#[test]
fn identifiers_are_not_given_twice() {
    let folder = Folder::new("rids");
    let users = UserFile::create(folder.file(), [1, 2, 3]).unwrap();
    users.add("alice", hash("a"), "").unwrap();
    users.remove("Alice").unwrap();
    let again = UserFile::open(folder.file()).unwrap();
    assert_eq!(again.add("alice", hash("a"), "").unwrap().sub_authorities().last(), Some(&1001));
}

#[test]
fn mistakes_are_reported() {
    let folder = Folder::new("mistakes");
    let users = UserFile::create(folder.file(), [1, 2, 3]).unwrap();
    assert!(matches!(UserFile::create(folder.file(), [4, 5, 6]), Err(UserFileError::Io { .. })));
    users.add("alice", hash("a"), "").unwrap();
    assert!(matches!(users.add("ALICE", hash("b"), ""), Err(UserFileError::Exists { .. })));
    assert!(matches!(users.remove("bob"), Err(UserFileError::NoSuchUser { .. })));
    assert!(matches!(users.set_password("bob", hash("b")), Err(UserFileError::NoSuchUser { .. })));
    for name in ["", " ", "Guest", "a/b", "a\\b", "a@b", "a\nb", "dot.", "trailing ", &"x".repeat(105)] {
        assert!(matches!(users.add(name, hash("b"), ""), Err(UserFileError::BadName { .. })), "{name:?}");
    }
    assert_eq!(users.list().len(), 1);
}

#[test]
fn a_file_that_others_can_read_is_refused_with_the_cure() {
    let folder = Folder::new("open");
    let users = UserFile::create(folder.file(), [1, 2, 3]).unwrap();
    for mode in [0o640, 0o604, 0o620, 0o602] {
        fs::set_permissions(folder.file(), fs::Permissions::from_mode(mode)).unwrap();
        let error = UserFile::open(folder.file()).err().expect("refused");
        assert!(matches!(error, UserFileError::TooOpen { mode: found, .. } if found == mode));
        assert!(error.to_string().contains("chmod 600"), "{error}");
        assert!(users.reload_if_changed().is_err(), "a change of mode alone is noticed");
        assert!(users.add("alice", hash("a"), "").is_err());
    }
}

#[test]
fn another_process_s_changes_are_seen() {
    let folder = Folder::new("reload");
    let server = UserFile::create(folder.file(), [1, 2, 3]).unwrap();
    assert!(!server.reload_if_changed().unwrap());
    let tool = UserFile::open(folder.file()).unwrap();
    tool.add("alice", hash("a"), "").unwrap();
    assert!(server.lookup("alice", "").is_none());
    assert!(server.reload_if_changed().unwrap());
    assert!(server.lookup("alice", "").is_some());
    assert!(!server.reload_if_changed().unwrap());
    // A change is applied to the content on disk, not to the last read content.
    tool.add("bob", hash("b"), "").unwrap();
    server.add("carol", hash("c"), "").unwrap();
    assert_eq!(
        server.list().iter().map(|user| user.name.as_str()).collect::<Vec<_>>(),
        ["alice", "bob", "carol"]
    );

    write(&folder.file(), "nonsense");
    assert!(server.reload_if_changed().is_err());
    assert_eq!(server.list().len(), 3, "the users last read stay");
}

#[test]
fn an_interrupted_change_leaves_the_old_file() {
    let folder = Folder::new("crash");
    let users = UserFile::create(folder.file(), [1, 2, 3]).unwrap();
    users.add("alice", hash("a"), "").unwrap();
    // A crash before the rename leaves this file.
    fs::write(folder.0.join(".users.toml.new"), "half a fi").unwrap();
    assert_eq!(UserFile::open(folder.file()).unwrap().list().len(), 1);
    users.add("bob", hash("b"), "").unwrap();
    assert_eq!(UserFile::open(folder.file()).unwrap().list().len(), 2);
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn writers_in_parallel_lose_nothing() {
    let folder = Folder::new("parallel");
    UserFile::create(folder.file(), [1, 2, 3]).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = folder.file();
            scope.spawn(move || {
                let users = UserFile::open(path).unwrap();
                for n in 0..10 {
                    users.add(&format!("user-{writer}-{n}"), hash("x"), "").unwrap();
                }
            });
        }
    });
    let users = UserFile::open(folder.file()).unwrap().list();
    assert_eq!(users.len(), 40);
    let sids: std::collections::BTreeSet<_> = users.into_iter().map(|user| user.sid).collect();
    assert_eq!(sids.len(), 40);
}

#[test]
fn malformed_files_are_refused_without_repeating_secrets() {
    let folder = Folder::new("malformed");
    let head = "machine_sid = \"S-1-5-21-1-2-3\"\nnext_rid = 1002\n";
    let entry = |name: &str, rid: u32, hash: &str| {
        format!("[[user]]\nname = \"{name}\"\nrid = {rid}\nnt_hash = \"{hash}\"\n")
    };
    let good = "0123456789abcdef0123456789ABCDEF";
    let read = |text: &str| {
        write(&folder.file(), text);
        UserFile::open(folder.file()).err()
    };
    let fault = |text: &str| match read(text) {
        Some(UserFileError::BadEntry { fault, .. }) => fault,
        other => panic!("{other:?}"),
    };
    assert!(read(&format!("{head}{}{}", entry("a", 1000, good), entry("b", 1001, good))).is_none());
    assert_eq!(fault(&format!("{head}{}", entry("a", 1000, "12"))), EntryFault::Hash);
    assert_eq!(fault(&format!("{head}{}", entry("a", 1000, &"é".repeat(32)))), EntryFault::Hash);
    assert_eq!(fault(&format!("{head}{}", entry("a/b", 1000, good))), EntryFault::Name);
    assert_eq!(fault(&format!("{head}{}", entry("a", 1002, good))), EntryFault::Rid);
    assert_eq!(fault(&format!("{head}{}", entry("a", 500, good))), EntryFault::Rid);
    let twice = format!("{head}{}{}", entry("a", 1000, good), entry("A", 1001, good));
    assert_eq!(fault(&twice), EntryFault::DuplicateName);
    let twice = format!("{head}{}{}", entry("a", 1000, good), entry("b", 1000, good));
    assert_eq!(fault(&twice), EntryFault::DuplicateRid);

    let secret = format!("{head}[[user]]\nname = \"a\"\nrid = \"{good}\"\n");
    let error = read(&secret).expect("refused");
    assert!(matches!(error, UserFileError::Malformed { line: 5, .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains(good));
    assert!(matches!(
        read("machine_sid = \"S-1-5-18\"\nnext_rid = 1\n"),
        Some(UserFileError::Malformed { .. })
    ));
    assert!(matches!(read(&format!("{head}surprise = 1\n")), Some(UserFileError::Malformed { .. })));
    assert!(!format!("{:?}", Table::new([1, 2, 3])).is_empty());
}

#[test]
fn debug_output_has_no_secrets() {
    let mut users = Table::new([1, 2, 3]);
    users.add("alice", NtHash::from_bytes([0xab; 16]), "").unwrap();
    let text = format!("{users:?} {:?}", users.lookup("alice", ""));
    assert!(!text.contains("171") && !text.to_lowercase().contains("abab"), "{text}");
}
