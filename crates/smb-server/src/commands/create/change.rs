//! Changes that a CREATE makes to the file that it has opened: it overwrites the file and reserves space.

use std::sync::Arc;

use smb_wire::NtStatus;
use vfs::{Attributes, BasicChange, ExtendedAttribute, Kind, Node, VfsError};

use super::{OpenedFile, Plan};
use crate::commands::metadata::stored_attributes;
use crate::open::FileOpen;
use crate::status;

impl Plan<'_> {
    /// MS-FSA 2.1.5.1.2.3: overwrites the file if requested, and applies AllocationSize to a new or overwritten one.
    pub(super) async fn change(&self, f: &FileOpen, found: &OpenedFile) -> Result<vfs::Stat, NtStatus> {
        let (created, node) = (found.opened.created || found.resumed, &found.opened.node);
        let replaced = self.overwrites() && !created;
        let reserves = node.kind() == Kind::File && (created || replaced);
        let allocation = self.requested.allocation.filter(|n| *n > 0 && reserves);
        if !replaced && allocation.is_none() {
            return Ok(found.opened.stat);
        }
        let _change = f.file.begin_change(&self.r.server.env);
        let _one = f.file.metadata().await;
        if replaced && self.stream.is_none() {
            self.drop_streams(f, found).await.map_err(status::of_vfs)?;
        }
        self.overwrite(node, replaced, found.opened.stat.ea_size, allocation).await.map_err(status::of_vfs)
    }

    async fn overwrite(
        &self,
        node: &Arc<dyn Node>,
        replaced: bool,
        ea_size: u32,
        allocation: Option<u64>,
    ) -> Result<vfs::Stat, VfsError> {
        let ctx = self.r.ctx();
        if replaced {
            node.set_len(&ctx, 0).wait().await?;
        }
        if replaced && self.stream.is_none() {
            let attributes = Some(self.attributes_of_new(false));
            node.set_basic(&ctx, BasicChange { attributes, ..BasicChange::default() }).wait().await?;
            let mut set = Vec::new();
            if ea_size > 0 {
                let old = node.extended_attributes(&ctx).wait().await?;
                set.extend(old.into_iter().map(|ea| ExtendedAttribute { value: Vec::new(), ..ea }));
            }
            set.extend(self.requested.extended_attributes.iter().cloned());
            if !set.is_empty() {
                node.set_extended_attributes(&ctx, set).wait().await?;
            }
        }
        if let Some(bytes) = allocation {
            node.set_allocation(&ctx, bytes).wait().await?;
        }
        node.stat(&ctx).wait().await
    }

    /// NTFS removes the named streams of a file that is overwritten, except those that are open.
    async fn drop_streams(&self, f: &FileOpen, found: &OpenedFile) -> Result<(), VfsError> {
        let (ctx, server) = (self.r.ctx(), &self.r.server);
        let names = f.node.streams(&ctx).wait().await?.into_iter().filter_map(|s| s.name);
        // The claims are dropped after the change: an open that found a stream before its removal cannot join it.
        let mut claims = Vec::new();
        let mut change = None;
        for name in names {
            let Some(claim) = server.files.claim_stream(&f.file, &name) else { continue };
            claims.push(claim);
            if change.is_none() {
                let begun = server.namespace.begin_change(self.share).await;
                change.insert(begun).touch(&found.opened.path, f.file.id());
            }
            match f.node.remove_stream(&ctx, &name).wait().await {
                // A CLOSE has removed it since the streams were listed.
                Ok(()) | Err(VfsError::NotFound) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub(super) fn attributes_of_new(&self, directory: bool) -> Attributes {
        let asked = stored_attributes(self.q.file_attributes);
        if directory { asked } else { asked | Attributes::ARCHIVE }
    }
}
