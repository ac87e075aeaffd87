use super::*;

#[test]
fn classes_take_what_they_name() {
    let class = |media: &[Media]| MediaClass::of(media.iter().copied());
    let ssd = class(&[Media::Ssd]);
    assert!(ssd.takes(Media::Ssd) && !ssd.takes(Media::Nvme) && !ssd.takes(Media::Unspecified));
    assert!(MediaClass::ANY.takes(Media::Unspecified) && MediaClass::ANY.takes(Media::Hdd));
    assert!(class(&[Media::Unspecified]).is_any());
    assert!(ssd.is_within(MediaClass::flash()) && ssd.is_within(MediaClass::ANY) && ssd.is_within(ssd));
    assert!(!MediaClass::flash().is_within(ssd) && !MediaClass::ANY.is_within(ssd));
    assert!(MediaClass::ANY.is_within(MediaClass::ANY));
    let words = |c: MediaClass| (c.to_string(), c.disks());
    assert_eq!(words(MediaClass::ANY), ("Unspecified".into(), "disks".into()));
    assert_eq!(words(class(&[Media::Nvme, Media::Hdd])), ("HDD, NVMe".into(), "HDD or NVMe disks".into()));
}

#[test]
fn journals_may_be_faster() {
    let of = |media: &[Media]| MediaClass::of(media.iter().copied()).or_faster();
    assert_eq!(of(&[Media::Hdd]), MediaClass::of(BY_SPEED));
    assert_eq!(of(&[Media::Ssd]), MediaClass::flash());
    assert_eq!(of(&[Media::Scm]), MediaClass::of([Media::Scm]));
    assert_eq!(of(&[Media::Nvme, Media::Hdd]), MediaClass::of(BY_SPEED));
    assert_eq!(MediaClass::ANY.or_faster(), MediaClass::ANY);
}

#[test]
fn numbers_on_disks_come_back() {
    for bits in 0..=u8::MAX {
        assert_eq!(MediaClass::from_bits(bits).map(MediaClass::bits), (bits < 16).then_some(bits));
    }
    assert_eq!(BY_SPEED.map(bit), [1, 2, 4, 8]);
}
