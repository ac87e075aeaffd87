//! A journal in one file of this machine.
//!
//! ```text
//! 0   8 bytes   "CWOPENS1"
//! 8   records, one after the other:
//!     0  u32 LE   length of the text
//!     4  u32 LE   CRC32C of the text
//!     8  text     JSON: {"Put": OpenRecord} or {"Remove": id}
//! ```
//!
//! One thread appends the records: it writes all that are waiting and syncs once, so many opens share one sync. A
//! record at the end that a crash left incomplete is cut off when the file is opened; nothing behind it was
//! acknowledged. Damaged records in the middle are skipped: a copy of the file is kept as `*.damaged-1`, `*.damaged-2`
//! …, and the file is rewritten. When most of the file is stale, it is rewritten under another name and renamed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use env::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{JournalResult, OpenJournal, OpenRecord};

const MAGIC: &[u8; 8] = b"CWOPENS1";
/// The longest valid record, in bytes.
const RECORD_MAX: u32 = 1 << 20;
/// A file shorter than this is not rewritten, in bytes.
const COMPACT_MIN: u64 = 1 << 20;
/// The most changes in one write.
const BATCH: usize = 1024;

#[derive(Serialize, Deserialize)]
enum Entry {
    Put(Box<OpenRecord>),
    Remove(u64),
}

/// One change and the channel for its result.
#[derive(Debug)]
struct Change {
    id: u64,
    /// `None` removes the record.
    record: Option<Vec<u8>>,
    done: oneshot::Sender<JournalResult>,
}

/// See the module.
#[derive(Debug)]
pub struct FileJournal {
    changes: Sender<Change>,
    found: Mutex<Vec<OpenRecord>>,
}

impl FileJournal {
    /// Opens the journal at `path`, or creates it. Blocks: call it at start.
    ///
    /// # Errors
    /// Errors of the system; InvalidData if the file is no journal.
    pub fn open(path: &Path) -> io::Result<Arc<FileJournal>> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let JournalContents { records, end, damaged } = read(&mut file)?;
        for at in &damaged {
            tracing::error!(path = %path.display(), "bytes {} to {} of the journal of persistent opens cannot be read: the \
                state of one open is lost, and its client must open the file again", at.start, at.end);
        }
        if !damaged.is_empty() {
            let kept = keep_damaged(path, &mut file)?;
            tracing::error!(path = %kept.display(), "the damaged journal was kept under this name");
        }
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        if end == 0 {
            file.write_all(MAGIC)?;
        }
        file.sync_all()?;
        sync_folder(path)?;
        let live = records.iter().map(|(id, r)| (*id, frame(&put_text(r)))).collect();
        let length = end.max(MAGIC.len() as u64);
        let mut writer = Writer { path: path.to_owned(), file, length, live, live_bytes: 0, failed: None };
        writer.live_bytes = writer.live.values().map(Vec::len).sum();
        if !damaged.is_empty() {
            writer.compact()?;
        }
        let (changes, receiver) = channel();
        std::thread::Builder::new().name("open-journal".into()).spawn(move || writer.run(&receiver))?;
        Ok(Arc::new(FileJournal { changes, found: Mutex::new(records.into_values().collect()) }))
    }

    fn change(&self, id: u64, record: Option<Vec<u8>>) -> BoxFuture<JournalResult> {
        let (done, wait) = oneshot::channel();
        let sent = self.changes.send(Change { id, record, done }).is_ok();
        Box::pin(async move {
            let gone = || io::Error::other("the journal's thread has ended");
            if sent { wait.await.unwrap_or_else(|_| Err(gone())) } else { Err(gone()) }
        })
    }
}

impl OpenJournal for FileJournal {
    fn put(&self, record: &OpenRecord) -> BoxFuture<JournalResult> {
        self.change(record.id, Some(frame(&put_text(record))))
    }

    fn remove(&self, id: u64) -> BoxFuture<JournalResult> {
        self.change(id, None)
    }

    fn take_all(&self) -> Vec<OpenRecord> {
        std::mem::take(&mut self.found.lock())
    }
}

struct Writer {
    path: PathBuf,
    file: File,
    length: u64,
    /// The newest record of each open, framed.
    live: BTreeMap<u64, Vec<u8>>,
    /// Their length in bytes.
    live_bytes: usize,
    /// A write or sync failed: the content of the file is unknown.
    failed: Option<io::ErrorKind>,
}

impl Writer {
    fn run(mut self, changes: &Receiver<Change>) {
        while let Ok(first) = changes.recv() {
            let more = std::iter::from_fn(|| changes.try_recv().ok()).take(BATCH - 1);
            let batch: Vec<Change> = std::iter::once(first).chain(more).collect();
            let result = self.write(&batch);
            for change in batch {
                let _ = change.done.send(result.as_ref().map_err(|e| io::Error::from(e.kind())).copied());
            }
        }
    }

    fn write(&mut self, batch: &[Change]) -> JournalResult {
        if let Some(kind) = self.failed {
            return Err(kind.into());
        }
        let mut bytes = Vec::new();
        for change in batch {
            match &change.record {
                Some(record) => {
                    bytes.extend_from_slice(record);
                    self.live_bytes += record.len();
                    self.live_bytes -= self.live.insert(change.id, record.clone()).map_or(0, |old| old.len());
                }
                None => {
                    let text = serde_json::to_vec(&Entry::Remove(change.id)).expect("a number is JSON");
                    bytes.extend_from_slice(&frame(&text));
                    self.live_bytes -= self.live.remove(&change.id).map_or(0, |old| old.len());
                }
            }
        }
        let result = self.append(&bytes);
        if let Err(e) = &result {
            tracing::error!(path = %self.path.display(), "the journal of persistent opens cannot be written: {e}");
            self.failed = Some(e.kind());
        }
        result
    }

    fn append(&mut self, bytes: &[u8]) -> JournalResult {
        if self.length > COMPACT_MIN && self.length > 4 * self.live_bytes as u64 {
            return self.compact();
        }
        self.file.write_all(bytes)?;
        self.file.sync_data()?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Writes the newest records, and no others, to a new file.
    fn compact(&mut self) -> JournalResult {
        let beside = self.path.with_extension("new");
        let mut file = File::create(&beside)?;
        let mut bytes = MAGIC.to_vec();
        self.live.values().for_each(|record| bytes.extend_from_slice(record));
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)?;
        sync_folder(&self.path)?;
        (self.file, self.length) = (file, bytes.len() as u64);
        Ok(())
    }
}

fn put_text(record: &OpenRecord) -> Vec<u8> {
    serde_json::to_vec(&Entry::Put(Box::new(record.clone()))).expect("a record is JSON")
}

fn frame(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + text.len());
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc(text).to_le_bytes());
    bytes.extend_from_slice(text);
    bytes
}

fn crc(text: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, text) as u32
}

/// The content of a journal.
struct JournalContents {
    /// The newest record of each open.
    records: BTreeMap<u64, OpenRecord>,
    /// Where the last whole entry ends.
    end: u64,
    /// Byte ranges between whole entries that are not valid entries.
    damaged: Vec<Range<usize>>,
}

fn read(file: &mut File) -> io::Result<JournalContents> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut found = JournalContents { records: BTreeMap::new(), end: 0, damaged: Vec::new() };
    // The server crashed while it created the file: no open had been stored.
    if bytes.len() <= MAGIC.len() && (MAGIC.starts_with(&bytes) || bytes.iter().all(|b| *b == 0)) {
        return Ok(found);
    }
    if !bytes.starts_with(MAGIC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a journal of persistent opens"));
    }
    let mut at = MAGIC.len();
    found.end = at as u64;
    while at < bytes.len() {
        let next = (at..bytes.len()).find_map(|at| entry_at(&bytes[at..]).map(|entry| (at, entry)));
        let Some((next, (entry, length))) = next else { break };
        if next > at {
            found.damaged.push(at..next);
        }
        match entry {
            Entry::Put(record) => drop(found.records.insert(record.id, *record)),
            Entry::Remove(id) => drop(found.records.remove(&id)),
        }
        at = next + length;
        found.end = at as u64;
    }
    Ok(found)
}

/// The entry at the start of `bytes` and its length in bytes; `None` if no whole valid entry is there.
fn entry_at(bytes: &[u8]) -> Option<(Entry, usize)> {
    let word = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let (length, sum) = (word(0)?, word(4)?);
    if length > RECORD_MAX {
        return None;
    }
    let text = bytes.get(8..8 + length as usize)?;
    // The braces first: this check is cheaper.
    if text.first() != Some(&b'{') || text.last() != Some(&b'}') || crc(text) != sum {
        return None;
    }
    Some((serde_json::from_slice(text).ok()?, 8 + text.len()))
}

/// Copies a damaged journal beside it, under a name that no copy has yet; durable on return.
fn keep_damaged(path: &Path, file: &mut File) -> io::Result<PathBuf> {
    let mut number = 1_u32;
    let (kept, mut copy) = loop {
        let kept = path.with_extension(format!("damaged-{number}"));
        match OpenOptions::new().write(true).create_new(true).open(&kept) {
            Ok(copy) => break (kept, copy),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(e) => return Err(e),
        }
    };
    file.rewind()?;
    io::copy(file, &mut copy)?;
    copy.sync_all()?;
    sync_folder(&kept)?;
    Ok(kept)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u64) -> OpenRecord {
        OpenRecord {
            id,
            share: "vms".into(),
            path: format!("disk{id}.vhdx"),
            renamed_to: None,
            stream: None,
            file: ("1".into(), "ff".into()),
            directory: false,
            client: [1; 16],
            create_guid: [2; 16],
            user: vec![1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
            app_instance: None,
            app_version: None,
            desired_access: 3,
            access: 3,
            share_access: 1,
            options: 0,
            action: 1,
            timeout_ms: 180_000,
            delete_on_close: false,
            delete_pending: false,
            posix: false,
            caching: None,
            locks: vec![(0, 10, true)],
            lock_sequences: vec![0xFF; 64],
        }
    }

    fn found(path: &Path) -> Vec<u64> {
        let mut ids: Vec<u64> =
            FileJournal::open(path).expect("opens").take_all().iter().map(|r| r.id).collect();
        ids.sort_unstable();
        ids
    }

    #[tokio::test]
    async fn what_was_put_is_found_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("opens.journal");
        let journal = FileJournal::open(&path).expect("made");
        assert!(journal.take_all().is_empty());
        for id in [1, 2, 3] {
            journal.put(&record(id)).await.expect("stored");
        }
        drop(journal.remove(2));
        let changed = OpenRecord { locks: Vec::new(), ..record(3) };
        journal.put(&changed).await.expect("stored");
        let again = FileJournal::open(&path).expect("opens");
        assert_eq!(again.take_all(), [record(1), changed]);
        assert!(again.take_all().is_empty(), "given out once");
    }

    /// After a cut at any offset, the whole records before the cut are found, and so are records that are put later.
    #[tokio::test]
    async fn what_a_crash_cuts_off_was_not_acknowledged() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("opens.journal");
        let journal = FileJournal::open(&path).expect("made");
        journal.put(&record(1)).await.expect("stored");
        let one = std::fs::metadata(&path).expect("there").len();
        journal.put(&record(2)).await.expect("stored");
        let whole = std::fs::read(&path).expect("there");
        for cut in (one..whole.len() as u64).step_by(7) {
            let path = folder.path().join(format!("cut{cut}"));
            std::fs::write(&path, &whole[..cut as usize]).expect("room");
            assert_eq!(found(&path), [1], "cut at {cut}");
            FileJournal::open(&path).expect("opens").put(&record(9)).await.expect("stored");
            assert_eq!(found(&path), [1, 9], "cut at {cut}");
        }
        let mut rotten = whole.clone();
        rotten[one as usize + 20] ^= 1;
        std::fs::write(&path, rotten).expect("room");
        assert_eq!(found(&path), [1]);
        std::fs::write(&path, "something else").expect("room");
        assert!(FileJournal::open(&path).is_err());
    }

    /// The records after a damaged entry are found, also after a further restart; the damaged file is kept.
    #[tokio::test]
    async fn damage_in_the_middle_costs_one_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("opens.journal");
        let journal = FileJournal::open(&path).expect("made");
        let mut ends = Vec::new();
        for id in [1, 2, 3] {
            journal.put(&record(id)).await.expect("stored");
            ends.push(std::fs::metadata(&path).expect("there").len() as usize);
        }
        let whole = std::fs::read(&path).expect("there");
        for (n, at) in (ends[0]..ends[1]).step_by(23).enumerate() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            std::fs::write(&path, &damaged).expect("room");
            assert_eq!(found(&path), [1, 3], "byte {at}");
            let kept = path.with_extension(format!("damaged-{}", n + 1));
            assert_eq!(std::fs::read(kept).expect("kept"), damaged);
            assert_eq!(found(&path), [1, 3], "byte {at}, again");
        }
        std::fs::write(&path, [&whole[..ends[0]], &[0; 4096], &whole[ends[0]..]].concat()).expect("room");
        assert_eq!(found(&path), [1, 2, 3], "zeros between them");
    }

    #[tokio::test]
    async fn a_crash_while_it_was_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("opens.journal");
        for begun in [&b""[..], b"CWO", &[0; 5], &[0; 8], MAGIC] {
            std::fs::write(&path, begun).expect("room");
            FileJournal::open(&path).expect("opens").put(&record(7)).await.expect("stored");
            assert_eq!(found(&path), [7], "{begun:?}");
        }
    }

    #[tokio::test]
    async fn it_does_not_grow_for_ever() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("opens.journal");
        let journal = FileJournal::open(&path).expect("made");
        journal.put(&record(1)).await.expect("stored");
        for n in 0..20 {
            let all: Vec<_> = (0..500).map(|k| journal.put(&record(100 + n * 500 + k))).collect();
            for (k, put) in all.into_iter().enumerate() {
                put.await.expect("stored");
                drop(journal.remove(100 + n * 500 + k as u64));
            }
        }
        journal.put(&record(2)).await.expect("stored");
        let length = std::fs::metadata(&path).expect("there").len();
        assert!(length < 2 * COMPACT_MIN, "{length}");
        assert_eq!(found(&path), [1, 2]);
    }
}
