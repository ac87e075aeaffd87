//! A Mac's attributes in listings: maximal access, length of the resource fork, Finder's information.
//!
//! A Mac keeps the latter two in the named streams `AFP_Resource` and `AFP_AfpInfo`. `AFP_AfpInfo` begins with a
//! signature and has Finder's information in the 32 bytes at offset 16. A listing has 12 of these bytes, and the
//! creation time:
//!
//! | `AFP_AfpInfo` | listing | what                                                      |
//! |---------------|---------|-----------------------------------------------------------|
//! | 16            | 0       | type and creator, 4 bytes each, of a file                  |
//! | 24            | 8       | flags                                                     |
//! | 40            | 10      | extended flags                                            |
//! |               | 12      | seconds from 2000-01-01 to its creation (big-endian)       |

use arena::{Data, sg_to_vec};
use smb_wire::AccessMask;
use smb_wire::fscc::MacAttributes;
use vfs::{DirEntry, Kind, OpenRequest, ReadOptions, Rights, StreamName, Vfs, VfsPath};

use crate::access;
use crate::open::FileOpen;
use crate::request::Request;

const RESOURCE: &str = "AFP_Resource";
const INFORMATION: &str = "AFP_AfpInfo";
/// Bytes of `AFP_AfpInfo`.
const INFORMATION_LEN: u32 = 60;
const SIGNATURE: &[u8] = b"AFP\0";
/// 2000-01-01 in seconds after 1970.
const EPOCH: i64 = 946_684_800;

/// The attributes of an entry of `directory`. Attributes that cannot be read are left out.
pub(super) async fn attributes(
    r: &Request,
    f: &FileOpen,
    directory: &VfsPath,
    entry: &DirEntry,
) -> MacAttributes {
    let mut mac = MacAttributes::default();
    let ceiling = AccessMask::from_bits_retain(r.tree.maximal_access);
    if matches!(&*entry.name, "." | "..") {
        mac.maximal_access = ceiling;
        return mac;
    }
    let security = f.node.entry_security(&r.ctx(), vec![entry.name.clone()]).wait().await;
    let security = security.ok().and_then(|mut all| all.pop()).unwrap_or(Ok(None));
    let descriptor = access::of_entry(r, security, &entry.stat);
    mac.maximal_access = access::maximal(&r.session.user, descriptor.as_deref()) & ceiling;
    if !mac.maximal_access.contains(AccessMask::READ_DATA) {
        return mac;
    }
    let (Ok(path), Some(vfs)) = (directory.join(&entry.name), f.share.vfs()) else { return mac };
    let Ok(opened) = vfs.open(&r.ctx(), request(&path, None)).wait().await else { return mac };
    // The name may be another file's by now, whose access was not checked.
    if opened.node.id() != entry.stat.id {
        return mac;
    }
    let Ok(streams) = opened.node.streams(&r.ctx()).wait().await else { return mac };
    for stream in streams {
        let Some(name) = stream.name else { continue };
        if name.as_str().eq_ignore_ascii_case(RESOURCE) {
            mac.resource_length = stream.size;
        } else if name.as_str().eq_ignore_ascii_case(INFORMATION) {
            let bytes = read(r, &**vfs, &path, name, entry).await.unwrap_or_default();
            mac.finder = finder(&bytes, entry);
        }
    }
    mac
}

fn request(path: &VfsPath, stream: Option<StreamName>) -> OpenRequest {
    OpenRequest {
        rights: Rights { read: stream.is_some(), write: false },
        stream,
        ..OpenRequest::for_metadata(path.clone())
    }
}

/// The content of a stream of the entry.
async fn read(
    r: &Request,
    vfs: &dyn Vfs,
    path: &VfsPath,
    stream: StreamName,
    entry: &DirEntry,
) -> Option<Vec<u8>> {
    let opened = vfs.open(&r.ctx(), request(path, Some(stream))).wait().await.ok()?;
    if opened.node.id() != entry.stat.id {
        return None;
    }
    let want = ReadOptions { length: INFORMATION_LEN, arena: &r.server.arena, file_ok: false };
    match opened.node.read(&r.ctx(), 0, want).wait().await.ok()? {
        Data::Bufs(sg) => Some(sg_to_vec(&sg)),
        Data::File { .. } => None,
    }
}

/// Finder's information in the layout of a listing; zeros if the stream's content is malformed.
fn finder(information: &[u8], entry: &DirEntry) -> [u8; 16] {
    let mut finder = [0; 16];
    if information.len() < INFORMATION_LEN as usize || !information.starts_with(SIGNATURE) {
        return finder;
    }
    if entry.stat.kind == Kind::File {
        finder[..8].copy_from_slice(&information[16..24]);
    }
    finder[8..10].copy_from_slice(&information[24..26]);
    finder[10..12].copy_from_slice(&information[40..42]);
    let made = (entry.stat.created.seconds - EPOCH).clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    finder[12..].copy_from_slice(&made.to_be_bytes());
    finder
}
