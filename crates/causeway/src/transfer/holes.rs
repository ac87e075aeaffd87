//! Which parts of a local file hold data: the rest are holes, which take no space and read as zeros.

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Holes shorter than this are copied as data, in bytes; NTFS has no shorter holes.
const SMALLEST: u64 = 64 << 10;

/// The parts of `range` with data, in order and disjoint; the whole range if the file system reports no holes. Moves
/// the file's position. Returns an error if the file ends within the range.
pub fn data(file: &File, range: Range<u64>) -> impl Iterator<Item = io::Result<Range<u64>>> + '_ {
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let part = next(file, at, end);
        at = part.as_ref().ok().and_then(|p| p.as_ref()).map_or(end, |p| p.end);
        part.transpose()
    })
}

/// The first part with data in a range.
fn next(file: &File, at: u64, end: u64) -> io::Result<Option<Range<u64>>> {
    let found = match seek(file, SeekFrom::Data(at)) {
        Ok(found) => found,
        // No data from here on: a hole if the file is long enough.
        Err(Errno::NXIO) if file.metadata()?.len() >= end => return Ok(None),
        Err(Errno::NXIO) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::SPIPE) => return Ok(Some(at..end)),
        Err(e) => return Err(e.into()),
    };
    if found >= end {
        return Ok(None);
    }
    let start = if found - at < SMALLEST { at } else { found };
    let mut stop = seek(file, SeekFrom::Hole(found))?;
    while stop < end {
        match seek(file, SeekFrom::Data(stop)) {
            Ok(more) if more < end && more - stop < SMALLEST => stop = seek(file, SeekFrom::Hole(more))?,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(Some(start..stop.min(end)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::config::Scratch;

    fn found(file: &File, range: Range<u64>) -> Vec<Range<u64>> {
        data(file, range).collect::<io::Result<_>>().expect("told")
    }

    #[test]
    fn holes_are_found_and_small_ones_filled() {
        const MIB: u64 = 1 << 20;
        let dir = Scratch::new("holes");
        let path = dir.0.join("f");
        let file = File::options().read(true).write(true).create_new(true).open(path).expect("made");
        file.set_len(4 * MIB).expect("longer");
        if seek(&file, SeekFrom::Data(0)) != Err(Errno::NXIO) {
            eprintln!("SKIPPED: no holes on this file system");
            return;
        }
        assert!(found(&file, 0..4 * MIB).is_empty());
        for at in [MIB, MIB + 8192, 3 * MIB] {
            file.write_all_at(&[1; 4096], at).expect("written");
        }
        // Two written pages with one unwritten page between them are one part.
        let parts = [MIB..MIB + 12_288, 3 * MIB..3 * MIB + 4096];
        assert_eq!(found(&file, 0..4 * MIB), parts);
        assert_eq!(found(&file, 2 * MIB..4 * MIB), parts[1..]);
        assert_eq!(found(&file, MIB + 1..MIB + 7).first(), Some(&(MIB + 1..MIB + 7)));
        assert!(found(&file, 7..7).is_empty());
        // The file became shorter meanwhile.
        file.set_len(2 * MIB).expect("cut");
        let last = data(&file, 0..4 * MIB).last().expect("something").expect_err("the end");
        assert_eq!(last.kind(), io::ErrorKind::UnexpectedEof);
    }
}
