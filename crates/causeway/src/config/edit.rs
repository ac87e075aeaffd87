//! Changes of shares in the file. Comments and order are preserved. A concurrent reader sees the complete old file or
//! the complete new one.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, value};

use super::section::same_name;
use super::{AclEntry, ConfigError, Problem, ProblemKind, Problems, ShareSection, format_size};

/// Appends a share to the file, replacing one of that name.
///
/// # Errors
/// When the file cannot be read, is no TOML, or cannot be written.
pub fn put_share(path: &Path, share: &ShareSection) -> Result<(), ConfigError> {
    change(path, |doc| {
        drop_share(doc, &share.name);
        let shares = doc.entry("share").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        if let Some(list) = shares.as_array_of_tables_mut() {
            list.push(table_of(share));
        }
    })
}

/// Sets the permission of a share in the file, if the share is there.
///
/// # Errors
/// When the file cannot be read, is no TOML, or cannot be written.
pub fn set_acl(path: &Path, name: &str, acl: &[AclEntry]) -> Result<(), ConfigError> {
    change(path, |doc| {
        let Some(shares) = doc.get_mut("share").and_then(Item::as_array_of_tables_mut) else { return };
        let is_it = |t: &&mut Table| t.get("name").and_then(Item::as_str).is_some_and(|n| same_name(n, name));
        if let Some(share) = shares.iter_mut().find(is_it) {
            share["acl"] = list_of(acl);
        }
    })
}

/// Removes a share from the file, if it is there.
///
/// # Errors
/// When the file cannot be read, is no TOML, or cannot be written.
pub fn remove_share(path: &Path, name: &str) -> Result<(), ConfigError> {
    change(path, |doc| drop_share(doc, name))
}

/// Replaces a file: writes a new file beside it, flushes and renames it. Mode and owner are preserved.
///
/// # Errors
/// The system's.
pub fn replace_file(path: &Path, text: &str) -> std::io::Result<()> {
    // The target of a symbolic link is replaced, not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(path).ok();
    let mode = old.as_ref().map_or(0o600, |m| m.permissions().mode() & 0o7777);
    let mut name = path.file_name().ok_or(std::io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    let written = (|| {
        let mut f = File::options().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
        f.set_permissions(fs::Permissions::from_mode(mode))?;
        if let Some(m) = &old
            && (f.metadata()?.uid(), f.metadata()?.gid()) != (m.uid(), m.gid())
        {
            // Only root may change the owner; for other users the new file is their own.
            let _ = std::os::unix::fs::fchown(&f, Some(m.uid()), Some(m.gid()));
        }
        f.write_all(text.as_bytes())?;
        f.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn change(path: &Path, edit: impl FnOnce(&mut DocumentMut)) -> Result<(), ConfigError> {
    let text = fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let mut doc: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| {
        let at = e.span().map_or(0, |s| s.start);
        let line = text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1;
        let kind = ProblemKind::Syntax { message: e.message().replace('\n', ", ") };
        let problem = Problem { file: path.display().to_string(), line, key: String::new(), kind };
        ConfigError::Invalid(Problems(vec![problem]))
    })?;
    // `share = [{…}]` means the same as [[share]], and only the latter can be edited line by line.
    if let Some(item) = doc.get_mut("share").filter(|i| i.is_array()) {
        *item = std::mem::take(item).into_array_of_tables().map_or_else(|same| same, Item::ArrayOfTables);
    }
    edit(&mut doc);
    replace_file(path, &doc.to_string())
        .map_err(|source| ConfigError::Unwritable { path: path.to_owned(), source })
}

fn drop_share(doc: &mut DocumentMut, name: &str) {
    if let Some(list) = doc.get_mut("share").and_then(Item::as_array_of_tables_mut) {
        list.retain(|t| !t.get("name").and_then(Item::as_str).is_some_and(|n| same_name(n, name)));
    }
}

fn table_of(share: &ShareSection) -> Table {
    let mut t = Table::new();
    t.decor_mut().set_prefix("\n");
    t["name"] = value(&share.name);
    t["backend"] = value(share.backend.as_str());
    if let Some(p) = &share.path {
        t["path"] = value(p.display().to_string());
    }
    if let Some(folder) = &share.snapshots {
        t["snapshots"] = value(folder.display().to_string());
    }
    if let Some(pool) = &share.pool {
        t["pool"] = value(pool);
    }
    if let Some(resiliency) = share.resiliency {
        t["resiliency"] = value(resiliency.as_str());
    }
    if let Some(columns) = share.columns {
        t["columns"] = value(i64::from(columns));
    }
    if share.allow_delete {
        t["allow_delete"] = value(true);
    }
    if let Some(n) = share.size {
        t["size"] = value(format_size(n));
    }
    if !share.comment.is_empty() {
        t["comment"] = value(&share.comment);
    }
    for (key, set) in [
        ("read_only", share.read_only),
        ("encrypt", share.encrypt),
        ("continuous_availability", share.continuous_availability),
    ] {
        if set {
            t[key] = value(true);
        }
    }
    if share.hidden != share.name.ends_with('$') {
        t["hidden"] = value(share.hidden);
    }
    if let Some(acl) = &share.acl {
        t["acl"] = list_of(acl);
    }
    if share.access_based {
        t["access_based"] = value(true);
    }
    t
}

fn list_of(acl: &[AclEntry]) -> Item {
    value(acl.iter().map(ToString::to_string).collect::<Array>())
}
