//! Storage media in the metadata, and the class of media on which a space's slabs may be placed.

use std::fmt;

use disk::Media;

/// The media on which a space's slabs may be placed (a storage tier's MediaType).
///
/// A set of media. [`MediaClass::ANY`] also includes unknown media ([`Media::Unspecified`]), which are in no
/// other class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaClass(u8);

impl MediaClass {
    /// Any disk.
    pub const ANY: MediaClass = MediaClass(0);

    /// The class of these media; [`Media::Unspecified`] has no effect.
    pub fn of(media: impl IntoIterator<Item = Media>) -> MediaClass {
        MediaClass(media.into_iter().fold(0, |all, m| all | bit(m)))
    }

    /// All media without moving parts: SSD, NVMe and SCM.
    pub fn flash() -> MediaClass {
        MediaClass::of([Media::Ssd, Media::Nvme, Media::Scm])
    }

    /// Whether every disk is allowed.
    pub fn is_any(self) -> bool {
        self == MediaClass::ANY
    }

    /// Whether a disk of this medium is allowed.
    pub fn takes(self, media: Media) -> bool {
        self.is_any() || self.0 & bit(media) != 0
    }

    /// Whether `other` allows every disk that this class allows.
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

    /// The media of the class, the slowest first; empty for [`MediaClass::ANY`].
    pub fn media(self) -> impl Iterator<Item = Media> {
        BY_SPEED.into_iter().filter(move |m| !self.is_any() && self.takes(*m))
    }

    /// The encoding on disk: a bit for each medium, see `docs/on-disk-format.md`.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns `None` if a bit is set that this version does not know.
    pub fn from_bits(bits: u8) -> Option<MediaClass> {
        (bits & !MediaClass::of(BY_SPEED).0 == 0).then_some(MediaClass(bits))
    }

    /// `SSD disks`, `SSD or NVMe disks`; `disks` for any.
    pub fn disks(self) -> String {
        let names: Vec<_> = self.media().map(|m| m.to_string()).collect();
        if names.is_empty() { "disks".to_owned() } else { format!("{} disks", names.join(" or ")) }
    }
}

/// `SSD`, `SSD, NVMe`; `Unspecified` for any, as in the cmdlets.
impl fmt::Display for MediaClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.media().map(|m| m.to_string()).collect();
        if names.is_empty() { Media::Unspecified.fmt(f) } else { f.write_str(&names.join(", ")) }
    }
}

/// The known media, the slowest first.
const BY_SPEED: [Media; 4] = [Media::Hdd, Media::Ssd, Media::Nvme, Media::Scm];

/// The bit of a medium in a class: `1 << (number - 1)`.
fn bit(media: Media) -> u8 {
    match media_number(media) {
        0 => 0,
        number => 1 << (number - 1),
    }
}

/// The medium with this number; [`Media::Unspecified`] for unknown numbers.
pub fn media_of(number: u8) -> Media {
    BY_SPEED.into_iter().find(|m| media_number(*m) == number).unwrap_or(Media::Unspecified)
}

/// The number of a medium in the on-disk format.
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
