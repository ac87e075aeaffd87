//! What the disks' bits are kept in, as the metadata has it.

use disk::Media;

use super::DiskRecord;

impl DiskRecord {
    /// What its bits are kept in; a number that this version does not know is [`Media::Unspecified`].
    pub fn media(&self) -> Media {
        const KNOWN: [Media; 4] = [Media::Hdd, Media::Ssd, Media::Nvme, Media::Scm];
        KNOWN.into_iter().find(|m| media_number(*m) == self.media).unwrap_or(Media::Unspecified)
    }
}

/// What a medium is in [`DiskRecord::media`], which is on disks.
pub(crate) fn media_number(media: Media) -> u8 {
    match media {
        Media::Unspecified => 0,
        Media::Hdd => 1,
        Media::Ssd => 2,
        Media::Nvme => 3,
        Media::Scm => 4,
    }
}
