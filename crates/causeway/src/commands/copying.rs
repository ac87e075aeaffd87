//! Shared by `get` and `put`: options, progress, and concurrent copies.

use std::future::Future;

use clap::Args;
use env::Env;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::signal::unix::{SignalKind, signal};

use super::Tally;
use crate::failure::Failure;
use crate::output::Output;
use crate::remote::{Remote, RemoteArgs};
use crate::transfer::copy;
use crate::transfer::progress::Progress;
use crate::url::Location;

/// Options of both.
#[derive(Debug, Args)]
pub(super) struct CopyArgs {
    /// Copy directories with their contents
    #[arg(short, long)]
    recursive: bool,
    /// Copy to NAME.part and rename it at the end; after an interruption the same command continues the copy
    #[arg(long)]
    resume: bool,
    /// Overwrite existing files in place, which keeps their hard links and streams; an interrupted copy leaves them
    /// incomplete [default: write a new file, and replace the existing one when the new one is complete, unless the new
    /// one cannot have the same owner and permissions]
    #[arg(long, conflicts_with = "resume")]
    in_place: bool,
    /// Do not copy modification times: the copies get the current time
    #[arg(long)]
    no_times: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

impl CopyArgs {
    /// Runs a copy until it completes or a signal interrupts it. An interruption drops `work`, which removes its
    /// temporary files.
    ///
    /// # Errors
    /// Those of `work`, and [`Failure::Interrupted`].
    pub(super) async fn until_interrupted(
        &self,
        work: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let code = tokio::select! {
            biased;
            done = work => return done,
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 143,
        };
        let left = match (self.resume, self.in_place) {
            (true, _) => "run the same command again to continue the copy",
            (_, true) => "the files that were being copied are incomplete",
            _ => "existing files are unchanged, but links and files of other owners may be incomplete",
        };
        Err(Failure::Interrupted { code, left })
    }
}

/// A copy of some files to or from one share.
pub(super) struct Copying {
    pub(super) remote: Remote,
    pub(super) recursive: bool,
    pub(super) resume: bool,
    /// Existing files are overwritten in place, not replaced by new ones.
    pub(super) in_place: bool,
    /// Copies get the modification times of their sources.
    pub(super) times: bool,
    pub(super) progress: Progress,
    /// Files of a tree that could not be copied.
    failed: Tally,
    out: Output,
}

/// Files that are copied at the same time.
pub(super) struct Running<'a, F> {
    copying: &'a Copying,
    files: FuturesUnordered<F>,
}

impl Copying {
    /// Connects to the share that `at` is on.
    pub(super) async fn begin(args: &CopyArgs, at: &Location, out: Output) -> Result<Copying, Failure> {
        let remote = Remote::connect(&args.remote, at).await?;
        let progress = Progress::new(out, &Env::real());
        let CopyArgs { recursive, resume, in_place, no_times, .. } = *args;
        let times = !no_times;
        Ok(Copying { remote, recursive, resume, in_place, times, progress, failed: Tally::default(), out })
    }

    /// Reports a file that could not be copied, and continues with the next; a lost connection ends the whole
    /// copy.
    pub(super) fn note(&self, result: Result<(), Failure>) -> Result<(), Failure> {
        self.failed.note(result, |failure| self.progress.failed(failure))
    }

    /// No files yet.
    pub(super) fn running<F: Future<Output = Result<(), Failure>>>(&self) -> Running<'_, F> {
        Running { copying: self, files: FuturesUnordered::new() }
    }

    /// Ends the session and prints the summary.
    pub(super) async fn finish(self) -> Result<(), Failure> {
        let (transport, why_not) = self.remote.transport();
        let summary = self.progress.finish(transport, why_not);
        self.remote.close().await;
        if self.out.json {
            self.out.document(&summary)?
        } else {
            eprintln!("{}", summary.text())
        }
        self.failed.result()
    }
}

impl<F: Future<Output = Result<(), Failure>>> Running<'_, F> {
    /// Adds a file; waits while too many files are being copied.
    pub(super) async fn add(&mut self, file: F) -> Result<(), Failure> {
        if self.files.len() >= copy::FILES
            && let Some(done) = self.files.next().await
        {
            self.copying.note(done)?;
        }
        self.files.push(file);
        Ok(())
    }

    /// Waits for all files.
    pub(super) async fn finish(mut self) -> Result<(), Failure> {
        while let Some(done) = self.files.next().await {
            self.copying.note(done)?;
        }
        Ok(())
    }
}
