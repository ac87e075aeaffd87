use proptest::prelude::*;

use super::*;

fn exports() -> Vec<Description> {
    let one = |name: &str, block| Description {
        name: name.into(),
        size: 1 << 30,
        block,
        payload_max: 1 << 20,
        read_only: false,
        rotational: false,
    };
    vec![one("space", 4096), one("bytes", 1)]
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut b = OPTION_MAGIC.to_be_bytes().to_vec();
    b.extend_from_slice(&number.to_be_bytes());
    b.extend_from_slice(&(data.len() as u32).to_be_bytes());
    b.extend_from_slice(data);
    b
}

fn go(name: &str, wants: &[u16]) -> Vec<u8> {
    let mut b = (name.len() as u32).to_be_bytes().to_vec();
    b.extend_from_slice(name.as_bytes());
    b.extend_from_slice(&(wants.len() as u16).to_be_bytes());
    wants.iter().for_each(|w| b.extend_from_slice(&w.to_be_bytes()));
    b
}

/// Returns the kinds of the answers and the outcome.
fn talk(input: &[u8], piece: usize) -> (Vec<u32>, NextStep) {
    let mut handshake = Handshake::new(exports());
    let (mut out, mut outcome) = (Vec::new(), NextStep::More);
    for bytes in input.chunks(piece.max(1)) {
        outcome = handshake.handle(bytes, &mut out);
        if outcome != NextStep::More {
            break;
        }
    }
    let mut kinds = Vec::new();
    let mut rest = &out[..];
    while rest.len() >= 20 && rest[..8] == REPLY_MAGIC.to_be_bytes() {
        kinds.push(u32::from_be_bytes(rest[12..16].try_into().unwrap()));
        let length = u32::from_be_bytes(rest[16..20].try_into().unwrap()) as usize;
        rest = &rest[20 + length..];
    }
    (kinds, outcome)
}

/// An export was chosen, and nothing else agreed.
fn chosen(export: usize) -> NextStep {
    NextStep::Transmission(Negotiated { export, structured: false, status: false })
}

/// Encodes the data of an option about contexts.
fn queries(name: &str, queries: &[&str]) -> Vec<u8> {
    let text = |t: &str| [&(t.len() as u32).to_be_bytes(), t.as_bytes()].concat();
    let queries_text: Vec<u8> = queries.iter().flat_map(|q| text(q)).collect();
    [text(name), (queries.len() as u32).to_be_bytes().to_vec(), queries_text].concat()
}

fn flags() -> Vec<u8> {
    u32::from(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes().to_vec()
}

#[test]
fn a_client_chooses_byte_by_byte_too() {
    let tls = 5;
    let input = [
        flags(),
        option(tls, &[]),
        option(OPTION_LIST, &[]),
        option(OPTION_INFO, &go("nothing", &[])),
        option(OPTION_GO, &go("space", &[])),
        option(OPTION_GO, &go("space", &[INFO_BLOCK_SIZE, INFO_NAME])),
    ]
    .concat();
    for piece in [1, 7, input.len()] {
        let (kinds, outcome) = talk(&input, piece);
        let expected = [
            vec![ERROR_UNSUPPORTED],
            vec![REPLY_SERVER, REPLY_SERVER, REPLY_ACK],
            vec![ERROR_UNKNOWN],
            vec![REPLY_INFO, REPLY_INFO, ERROR_BLOCK_SIZE_REQUIRED],
            vec![REPLY_INFO, REPLY_INFO, REPLY_INFO, REPLY_ACK],
        ]
        .concat();
        assert_eq!((kinds, outcome), (expected, chosen(0)), "in pieces of {piece}");
    }
}

#[test]
fn what_is_refused() {
    let close = |input: Vec<u8>| matches!(talk(&input, 64).1, NextStep::Close(_));
    assert!(close(0_u32.to_be_bytes().to_vec()), "old clients");
    assert!(close(8_u32.to_be_bytes().to_vec()), "flags that do not exist");
    assert!(close([flags(), vec![0; 16]].concat()), "no magic number");
    assert!(
        close([flags(), option(OPTION_EXPORT_NAME, b"space")].concat()),
        "it would not know the block size"
    );
    assert!(close([flags(), option(OPTION_EXPORT_NAME, b"nothing")].concat()));
    assert!(close([flags(), option(OPTION_ABORT, b"")].concat()));
    assert!(close([flags(), option(OPTION_LIST, b"").repeat(300)].concat()), "the client never chooses");
    let by_name = talk(&[flags(), option(OPTION_EXPORT_NAME, b"bytes")].concat(), 64).1;
    assert_eq!(by_name, chosen(1));
}

#[test]
fn what_is_too_long_is_skipped() {
    let long = option(OPTION_GO, &vec![7; OPTION_MAX as usize + 1]);
    let input = [flags(), long, option(OPTION_GO, &go("", &[INFO_BLOCK_SIZE]))].concat();
    for piece in [1000, input.len()] {
        let (kinds, outcome) = talk(&input, piece);
        assert_eq!(kinds, [ERROR_TOO_BIG, REPLY_INFO, REPLY_INFO, REPLY_ACK]);
        assert_eq!(outcome, chosen(0));
    }
}

proptest! {
    /// No input causes a panic or a large buffer.
    #[test]
    fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), valid in any::<bool>(), piece in 1_usize..80) {
        if valid {
            let mut head = flags();
            head.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
            bytes.splice(0..0, head);
        }
        let mut handshake = Handshake::new(exports());
        let mut out = Vec::new();
        for b in bytes.chunks(piece) {
            if handshake.handle(b, &mut out) != NextStep::More {
                break;
            }
            prop_assert!(handshake.input.len() <= OPTION_HEAD + OPTION_MAX as usize + piece);
        }
    }
}

/// NBD, "Metadata querying".
#[test]
fn a_client_may_ask_for_the_allocation() {
    const META: u32 = 4;
    let structured = option(OPTION_STRUCTURED_REPLY, &[]);
    let set = |name, of: &[&str]| option(OPTION_SET_META_CONTEXT, &queries(name, of));
    let list = |of: &[&str]| option(OPTION_LIST_META_CONTEXT, &queries("space", of));
    let go = option(OPTION_GO, &go("space", &[INFO_BLOCK_SIZE]));
    let talked = |options: &[&[u8]]| {
        let (kinds, outcome) = talk(&[&flags()[..], &options.concat(), &go].concat(), 7);
        let NextStep::Transmission(agreed) = outcome else { panic!("{outcome:?}") };
        // The last three answers are those to GO.
        (kinds[..kinds.len() - 3].to_vec(), agreed.structured, agreed.status)
    };
    let all = "base:allocation";
    assert_eq!(talked(&[&structured, &set("space", &[all])]), (vec![REPLY_ACK, META, REPLY_ACK], true, true));
    assert_eq!(
        talked(&[&structured, &set("space", &["qemu:dirty-bitmap:x"])]),
        (vec![REPLY_ACK; 2], true, false)
    );
    assert_eq!(
        talked(&[&structured, &set("space", &["base:"])]),
        (vec![REPLY_ACK; 2], true, false),
        "no list"
    );
    assert_eq!(talked(&[&set("space", &[all])]), (vec![ERROR_INVALID], false, false), "not agreed upon");
    let other = talked(&[&structured, &set("bytes", &[all])]);
    assert_eq!(other, (vec![REPLY_ACK, META, REPLY_ACK], true, false), "of another export");
    let replaced = talked(&[&structured, &set("space", &[all]), &set("nothing", &[all])]);
    assert_eq!(replaced, (vec![REPLY_ACK, META, REPLY_ACK, ERROR_UNKNOWN], true, false));
    for listed in [&[][..], &["base:"], &[all]] {
        let (kinds, _, status) = talked(&[&structured, &list(listed)]);
        assert_eq!((kinds, status), (vec![REPLY_ACK, META, REPLY_ACK], false), "{listed:?}");
    }
    let cut = &queries("space", &[all])[..20];
    let many = [&queries("space", &[])[..9], &u32::MAX.to_be_bytes()].concat();
    for wrong in [cut, &many] {
        let wrong = option(OPTION_SET_META_CONTEXT, wrong);
        assert_eq!(talked(&[&structured, &wrong]).0, [REPLY_ACK, ERROR_INVALID]);
    }
    assert_eq!(talked(&[&option(OPTION_STRUCTURED_REPLY, b"x")]), (vec![ERROR_INVALID], false, false));
}
