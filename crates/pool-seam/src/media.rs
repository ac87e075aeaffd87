//! The media of disks in the metadata, and the class of media that a space's slabs may lie on.

use std::fmt;

use disk::Media;

/// The media that a space's slabs may lie on (a storage tier's MediaType).
///
/// A set: [`MediaClass::ANY`] is every medium, one that is not known ([`Media::Unspecified`]) too; a disk
/// whose medium is not known is in no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaClass(u8);

impl MediaClass {
    /// Any disk.
    pub const ANY: MediaClass = MediaClass(0);

    /// Those media; unknown ones cannot be requested, and change nothing.
    pub fn of(media: impl IntoIterator<Item = Media>) -> MediaClass {
        MediaClass(media.into_iter().fold(0, |all, m| all | bit(m)))
    }

    /// Everything without heads: SSD, NVMe and SCM.
    pub fn flash() -> MediaClass {
        MediaClass::of([Media::Ssd, Media::Nvme, Media::Scm])
    }

    /// Whether every disk will do.
    pub fn is_any(self) -> bool {
        self == MediaClass::ANY
    }

    /// Whether a disk of this medium will do.
    pub fn takes(self, media: Media) -> bool {
        self.is_any() || self.0 & bit(media) != 0
    }

    /// Whether all disks that will do for this class do for `other`, too.
    pub fn is_within(self, other: MediaClass) -> bool {
        other.is_any() || !self.is_any() && self.0 & !other.0 == 0
    }

    /// This class, and every medium that is faster than its slowest.
    pub fn or_faster(self) -> MediaClass {
        let slowest = BY_SPEED.into_iter().position(|m| self.takes(m));
        match slowest {
            Some(at) if !self.is_any() => MediaClass::of(BY_SPEED[at..].iter().copied()),
            _ => self,
        }
    }

    /// The media, the slowest first; none for any.
    pub fn media(self) -> impl Iterator<Item = Media> {
        BY_SPEED.into_iter().filter(move |m| !self.is_any() && self.takes(*m))
    }

    /// As it is on disks: a bit for each medium, see `docs/on-disk-format.md`.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// `None`: there are media that this version does not know.
    pub fn from_bits(bits: u8) -> Option<MediaClass> {
        (bits & !MediaClass::of(BY_SPEED).0 == 0).then_some(MediaClass(bits))
    }

    /// `SSD disks`, `SSD or NVMe disks`; `disks` for any.
    pub fn disks(self) -> String {
        let names: Vec<_> = self.media().map(|m| m.to_string()).collect();
        if names.is_empty() { "disks".to_owned() } else { format!("{} disks", names.join(" or ")) }
    }
}

/// `SSD`, `SSD, NVMe`; `Unspecified` for any, as the cmdlets have it.
impl fmt::Display for MediaClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.media().map(|m| m.to_string()).collect();
        if names.is_empty() { Media::Unspecified.fmt(f) } else { f.write_str(&names.join(", ")) }
    }
}

/// The media that are known, the slowest first.
const BY_SPEED: [Media; 4] = [Media::Hdd, Media::Ssd, Media::Nvme, Media::Scm];

/// The bit of a medium in a class: `1 << (number - 1)`.
fn bit(media: Media) -> u8 {
    match media_number(media) {
        0 => 0,
        number => 1 << (number - 1),
    }
}

/// The medium with a number; one that this version does not know is [`Media::Unspecified`].
pub fn media_of(number: u8) -> Media {
    BY_SPEED.into_iter().find(|m| media_number(*m) == number).unwrap_or(Media::Unspecified)
}

/// The number of a medium on disks.
pub fn media_number(media: Media) -> u8 {
    match media {
        Media::Unspecified => 0,
        Media::Hdd => 1,
        Media::Ssd => 2,
        Media::Nvme => 3,
        Media::Scm => 4,
    }
}

#[cfg(test)]
mod tests;
