use super::*;
use crate::commands::tests::{World, user};

fn text(p: Option<Principal<'_>>) -> Option<(String, String, String, SidNameUse)> {
    p.map(|p| (p.domain.name.into_owned(), p.name.into_owned(), p.sid.to_string(), p.usage))
}

// MS-LSAT 3.1.1.1: every SID that is listed has a name, and a lookup of the name returns the SID.
#[test]
fn names_there_and_back() {
    let w = World::new();
    let d = Directory::new(&w.server, &user(1000));
    assert_eq!((d.name.as_str(), d.sid.to_string()), ("TEST", "S-1-5-21-1-2-3".to_owned()));
    for (sid, domain, name, usage) in [
        ("S-1-1-0", "", "Everyone", SidNameUse::WELL_KNOWN_GROUP),
        ("S-1-3-0", "", "CREATOR OWNER", SidNameUse::WELL_KNOWN_GROUP),
        ("S-1-5-18", "NT AUTHORITY", "SYSTEM", SidNameUse::WELL_KNOWN_GROUP),
        ("S-1-5-64-10", "NT AUTHORITY", "NTLM Authentication", SidNameUse::WELL_KNOWN_GROUP),
        ("S-1-5-32-544", "BUILTIN", "Administrators", SidNameUse::ALIAS),
        ("S-1-5-32", "BUILTIN", "BUILTIN", SidNameUse::DOMAIN),
        ("S-1-16-8192", "Mandatory Label", "Medium Mandatory Level", SidNameUse::LABEL),
        ("S-1-5-21-1-2-3", "TEST", "TEST", SidNameUse::DOMAIN),
        ("S-1-5-21-1-2-3-1000", "TEST", "user1000", SidNameUse::USER),
        ("S-1-5-21-1-2-3-513", "TEST", "None", SidNameUse::GROUP),
        ("S-1-22-1-1000", "Unix User", "1000", SidNameUse::USER),
        ("S-1-22-2-100", "Unix Group", "100", SidNameUse::ALIAS),
    ] {
        let expected = Some((domain.to_owned(), name.to_owned(), sid.to_owned(), usage));
        assert_eq!(text(d.by_sid(&sid.parse().expect("a SID"))), expected);
        let qualified =
            if usage == SidNameUse::DOMAIN { name.to_owned() } else { format!("{domain}\\{name}") };
        assert_eq!(text(d.by_name(&qualified.to_lowercase())), expected, "{qualified}");
        if !domain.starts_with("Unix") {
            assert_eq!(text(d.by_name(&name.to_uppercase())), expected, "{name}");
        }
    }
    for unknown in
        ["S-1-5-21-1-2-3-1001", "S-1-5-21-9-9-9-500", "S-1-5-32-9", "S-1-22-3-1", "S-1-9", "S-1-5-5-0-1"]
    {
        assert_eq!(text(d.by_sid(&unknown.parse().expect("a SID"))), None, "{unknown}");
    }
    for unknown in [
        "nobody",
        "TEST\\nobody",
        "OTHER\\user1000",
        "BUILTIN\\user1000",
        "TEST\\TEST",
        "",
        "\\",
        "Unix User\\x",
    ] {
        assert_eq!(text(d.by_name(unknown)), None, "{unknown}");
    }
}
