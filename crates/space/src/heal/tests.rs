use pool_seam::DiskNumber;

use super::*;

const NEW: Value = Value::Written(2);
const OLD: Value = Value::Written(1);
const FORMER: u32 = 7;

fn content(disk: u16, byte: Option<u8>) -> Content {
    let (index, slab) = (disk as u8, disk as u8);
    let member = Member {
        index,
        slab,
        content: 0,
        disk: DiskNumber(disk),
        membership: None,
        generation: 0,
        counts: true,
        block: 0,
        data: 0,
    };
    (member, byte.map(|byte| IoBuf::from(vec![byte])))
}

/// The chosen byte, or the chosen value; the checksum of a byte is the byte itself.
fn chosen(candidates: &[Value], contents: &[Content], may_be_strange: bool) -> Option<Result<u8, Value>> {
    let candidates: Vec<Values> = candidates.iter().map(|value| smallvec![*value]).collect();
    choose(&candidates, &[FORMER], contents, may_be_strange, |bytes| bytes[0].into()).map(|decision| {
        match decision {
            Decision::Bytes(bytes) => Ok(bytes[0]),
            Decision::Value(value) => Err(value),
        }
    })
}

#[test]
fn the_newest_value_that_a_copy_has() {
    let both = [content(0, Some(1)), content(1, Some(2))];
    assert_eq!(chosen(&[NEW, OLD], &both, false), Some(Ok(2)));
    assert_eq!(chosen(&[NEW, OLD], &both[..1], false), Some(Ok(1)));
    assert_eq!(chosen(&[Value::Unwritten, OLD], &both, false), Some(Err(Value::Unwritten)));
}

#[test]
fn an_older_value_is_chosen_only_if_a_copy_was_read() {
    for unread in [&[][..], &[content(0, None)]] {
        assert_eq!(chosen(&[NEW, Value::Unwritten], unread, false), None);
        assert_eq!(chosen(&[NEW, OLD], unread, true), None);
    }
    let other = [content(0, None), content(1, Some(9))];
    assert_eq!(chosen(&[NEW, Value::Unwritten], &other, false), Some(Err(Value::Unwritten)));
    assert_eq!(chosen(&[NEW, OLD], &other, false), None);
}

#[test]
fn a_write_in_flight_may_have_left_anything() {
    let strange = [content(0, Some(9)), content(1, Some(8)), content(2, Some(8))];
    assert_eq!(chosen(&[NEW, OLD], &strange, true), Some(Ok(8)), "most copies have it");
    assert_eq!(chosen(&[NEW, OLD], &strange, false), None);
    let rolled_back = [content(0, Some(7)), content(1, Some(1))];
    assert_eq!(chosen(&[NEW, OLD], &rolled_back, true), Some(Ok(1)), "the other copy is behind");
}
