//! The [`Node`] of a named stream: calls for data use the record or the sidecar's node, all others the file's node.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::{Arena, Class, IoBuf, Sg};
use env::{Ctx, Io};

use super::data::{InlineResult, touch};
use super::{DataLocation, Stream, store};
use crate::hostdir::node::HostNode;
use crate::{
    BasicChange, Data, DirEntry, ExtendedAttribute, FileKey, Kind, Node, ReadOptions, ReparsePoint, Stat,
    StreamInfo, StreamName, VfsError, VfsResult,
};

/// One open of a named stream.
pub(in crate::hostdir) struct StreamNode {
    stream: Arc<Stream>,
    /// The file.
    file: HostNode,
}

impl StreamNode {
    pub(super) fn new(stream: Stream) -> StreamNode {
        let file = HostNode { open: Arc::clone(&stream.file) };
        StreamNode { stream: Arc::new(stream), file }
    }

    /// Runs `work` in the thread pool; on a memory file system at once.
    fn run<T: Send + 'static>(&self, work: impl FnOnce(&Stream) -> T + Send + 'static) -> Io<T> {
        let stream = Arc::clone(&self.stream);
        self.file.run(move |_| work(&stream))
    }

    /// Calls the sidecar's node, directly if one is known; otherwise reads the record first.
    fn data<T: Send + 'static>(
        &self,
        inline: impl FnOnce(&Stream) -> VfsResult<InlineResult<T>> + Send + 'static,
        sidecar: impl FnOnce(&HostNode) -> Io<VfsResult<T>> + Send + 'static,
    ) -> Io<VfsResult<T>> {
        if let Some(node) = self.stream.sidecar.get() {
            return sidecar(node);
        }
        match self.run(inline) {
            Io::Done(Ok(InlineResult::Done(done))) => Io::Done(Ok(done)),
            Io::Done(Ok(InlineResult::Sidecar(node))) => sidecar(&node),
            Io::Done(Err(e)) => Io::Done(Err(e)),
            Io::Pending(first) => Io::pending(async move {
                match first.await? {
                    InlineResult::Done(done) => Ok(done),
                    InlineResult::Sidecar(node) => sidecar(&node).wait().await,
                }
            }),
        }
    }

    /// [`StreamNode::data`] for changes.
    fn change<T: Send + 'static>(
        &self,
        inline: impl FnOnce(&Stream) -> VfsResult<InlineResult<T>> + Send + 'static,
        sidecar: impl FnOnce(&HostNode) -> Io<VfsResult<T>> + Send + 'static,
    ) -> Io<VfsResult<T>> {
        if let Err(e) = self.stream.file.shared.tree.may_change() {
            return Io::Done(Err(e));
        }
        self.stream.wrote.store(true, Ordering::Relaxed);
        self.data(inline, sidecar)
    }
}

impl Node for StreamNode {
    fn id(&self) -> FileKey {
        self.file.id()
    }

    fn kind(&self) -> Kind {
        Kind::File
    }

    fn stat(&self, _: &Ctx) -> Io<VfsResult<Stat>> {
        self.run(Stream::stat)
    }

    fn may_change(&self, c: &Ctx) -> Io<VfsResult<()>> {
        self.file.may_change(c)
    }

    fn set_basic(&self, c: &Ctx, change: BasicChange) -> Io<VfsResult<()>> {
        if change.written.is_some() {
            self.stream.wrote.store(false, Ordering::Relaxed); // earlier writes no longer set the time
        }
        self.file.set_basic(c, change)
    }

    fn read(&self, c: &Ctx, offset: u64, want: ReadOptions<'_>) -> Io<VfsResult<Data>> {
        if let Some(node) = self.stream.sidecar.get() {
            return node.read(c, offset, want);
        }
        let (c, arena, length, file_ok) = (*c, want.arena.clone(), want.length, want.file_ok);
        let lender = arena.clone();
        self.data(
            move |stream| {
                Ok(match stream.read(offset, length as usize)? {
                    InlineResult::Done(bytes) => InlineResult::Done(lend(&lender, bytes)),
                    InlineResult::Sidecar(node) => InlineResult::Sidecar(node),
                })
            },
            move |node| node.read(&c, offset, ReadOptions { length, arena: &arena, file_ok }),
        )
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<VfsResult<u32>> {
        let (c, again) = (*c, src.clone());
        self.change(
            move |stream| {
                let done = stream.write(offset, &src)?;
                if c.flags.write_through && matches!(done, InlineResult::Done(_)) {
                    stream.file.flush()?;
                }
                Ok(done)
            },
            move |node| node.write(&c, offset, again),
        )
    }

    fn flush(&self, c: &Ctx) -> Io<VfsResult<()>> {
        let (stream, c) = (Arc::clone(&self.stream), *c);
        let around = self.file.run_slow(move |file| {
            if let DataLocation::Sidecar(_) = stream.location()? {
                store::sync(file)?;
            }
            file.flush()
        });
        match self.stream.sidecar.get() {
            None => around,
            Some(node) => {
                let data = node.flush(&c);
                Io::pending(async move {
                    data.wait().await?;
                    around.wait().await
                })
            }
        }
    }

    /// Updates the file's last write time after writes to a sidecar.
    fn close(&self, c: &Ctx) -> Io<VfsResult<()>> {
        let Some(node) = self.stream.sidecar.get() else { return Io::Done(Ok(())) };
        let wrote = self.stream.wrote.swap(false, Ordering::Relaxed);
        let data = node.close(c);
        if !wrote {
            return data;
        }
        let touched = self.run(|stream| touch(&stream.file));
        Io::pending(async move {
            touched.wait().await?;
            data.wait().await
        })
    }

    fn set_len(&self, c: &Ctx, len: u64) -> Io<VfsResult<()>> {
        let c = *c;
        self.change(move |stream| stream.set_len(len), move |node| node.set_len(&c, len))
    }

    fn set_allocation(&self, c: &Ctx, len: u64) -> Io<VfsResult<()>> {
        let c = *c;
        self.change(move |stream| stream.set_allocation(len), move |node| node.set_allocation(&c, len))
    }

    /// The attribute belongs to the file; on a directory the call has no effect.
    fn set_sparse(&self, c: &Ctx, sparse: bool) -> Io<VfsResult<()>> {
        match self.file.kind() {
            Kind::File => self.file.set_sparse(c, sparse),
            Kind::Directory => Io::Done(Ok(())),
        }
    }

    fn zero(&self, c: &Ctx, range: Range<u64>) -> Io<VfsResult<()>> {
        let (c, again) = (*c, range.clone());
        self.change(move |stream| stream.zero(&range), move |node| node.zero(&c, again))
    }

    fn allocated(&self, c: &Ctx, range: Range<u64>, limit: usize) -> Io<VfsResult<Vec<Range<u64>>>> {
        let (c, again) = (*c, range.clone());
        self.data(move |stream| stream.allocated(&range, limit), move |node| node.allocated(&c, again, limit))
    }

    /// Copies between sidecars only; for small streams the caller reads and writes.
    fn copy_to(
        &self,
        c: &Ctx,
        from: u64,
        target: &Arc<dyn Node>,
        to: u64,
        length: u64,
    ) -> Io<VfsResult<u64>> {
        let target: &dyn Any = &**target;
        let target = target.downcast_ref::<StreamNode>();
        let sidecars = target.and_then(|t| Some((self.stream.sidecar.get()?, t.stream.sidecar.get()?, t)));
        let Some((source, sink, target)) = sidecars else { return Io::Done(Err(VfsError::Unsupported)) };
        target.stream.wrote.store(true, Ordering::Relaxed);
        let sink: Arc<dyn Node> = Arc::new(sink.clone_handle());
        source.copy_to(c, from, &sink, to, length)
    }

    fn list(&self, _: &Ctx, _: bool, _: usize) -> Io<VfsResult<Vec<DirEntry>>> {
        Io::Done(Err(VfsError::NotDirectory))
    }

    fn lookup(&self, _: &Ctx, _: &str) -> Io<VfsResult<DirEntry>> {
        Io::Done(Err(VfsError::NotDirectory))
    }

    fn is_empty(&self, _: &Ctx) -> Io<VfsResult<bool>> {
        Io::Done(Err(VfsError::NotDirectory))
    }

    fn streams(&self, c: &Ctx) -> Io<VfsResult<Vec<StreamInfo>>> {
        self.file.streams(c)
    }

    fn remove_stream(&self, c: &Ctx, name: &StreamName) -> Io<VfsResult<()>> {
        self.file.remove_stream(c, name)
    }

    fn rename_stream(
        &self,
        c: &Ctx,
        from: &StreamName,
        to: Option<&StreamName>,
        replace: bool,
    ) -> Io<VfsResult<()>> {
        self.file.rename_stream(c, from, to, replace)
    }

    fn security(&self, c: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>> {
        self.file.security(c)
    }

    fn set_security(&self, c: &Ctx, descriptor: Vec<u8>) -> Io<VfsResult<()>> {
        self.file.set_security(c, descriptor)
    }

    fn reparse_point(&self, c: &Ctx) -> Io<VfsResult<Option<ReparsePoint>>> {
        self.file.reparse_point(c)
    }

    fn set_reparse_point(&self, c: &Ctx, point: Option<ReparsePoint>) -> Io<VfsResult<()>> {
        self.file.set_reparse_point(c, point)
    }

    fn creation_id(&self, c: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>> {
        self.file.creation_id(c)
    }

    fn extended_attributes(&self, c: &Ctx) -> Io<VfsResult<Vec<ExtendedAttribute>>> {
        self.file.extended_attributes(c)
    }

    fn set_extended_attributes(&self, c: &Ctx, set: Vec<ExtendedAttribute>) -> Io<VfsResult<()>> {
        self.file.set_extended_attributes(c, set)
    }
}

/// Copies the bytes into the caller's arena. If it is exhausted, returns them in their own memory: they are few.
fn lend(arena: &Arena, bytes: Vec<u8>) -> Data {
    if bytes.is_empty() {
        return Data::Bufs(Sg::new());
    }
    let buf = match arena.try_alloc(bytes.len(), Class::Payload) {
        Some(mut b) => {
            b.append(&bytes);
            b.freeze()
        }
        None => IoBuf::from(bytes),
    };
    Data::Bufs([buf].into_iter().collect())
}
