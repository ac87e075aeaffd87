//! `causeway rm`.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::Tally;
use crate::failure::Failure;
use crate::output::Output;
use crate::remote::{Remote, RemoteArgs};
use crate::transfer::target::named;
use crate::url::Location;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct RmArgs {
    /// Files to remove, all of one share
    #[arg(required = true, value_name = "URL")]
    places: Vec<String>,
    /// Remove directories with their contents
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// The output with `--json`.
#[derive(JsonSchema, Serialize)]
pub(super) struct Removed {
    /// Number of removed files and directories.
    removed: u64,
}

pub(super) async fn run(args: RmArgs, out: Output) -> Result<(), Failure> {
    let places = named(&args.places)?;
    let remote = Remote::connect(&args.remote, &places[0]).await?;
    let (failed, mut removed) = (Tally::default(), 0);
    for place in &places {
        let found = remote.stat_link(&place.path).await?;
        if !found.directory {
            remote.remove_file(&place.path).await?;
        } else if found.is_link() {
            remote.remove_directory(&place.path).await?;
        } else if args.recursive {
            removed += remove_tree(&remote, place, &failed, out).await?;
            continue;
        } else {
            return Err(Failure::IsDirectory { place: place.to_string() });
        }
        removed += 1;
    }
    remote.close().await;
    if out.json {
        out.document(&Removed { removed })?;
    }
    failed.result()
}

/// Removes a directory and its contents; returns the number of removed entries. Reports entries that cannot be removed.
async fn remove_tree(remote: &Remote, top: &Location, failed: &Tally, out: Output) -> Result<u64, Failure> {
    let mut removed = 0;
    let mut note = |result: Result<(), Failure>| {
        removed += u64::from(result.is_ok());
        failed.note(result, |failure| out.failed(&failure.to_string(), failure.cure()))
    };
    // A directory is visited twice: to list it, and to remove it when it is empty.
    let mut todo = vec![(top.clone(), false)];
    while let Some((place, emptied)) = todo.pop() {
        if emptied {
            note(remote.remove_directory(&place.path).await)?;
            continue;
        }
        todo.push((place.clone(), true));
        for entry in remote.list(&place.path).await? {
            match place.join(&entry.name) {
                // For a link, only the link is removed, not its target.
                Ok(child) if entry.directory => todo.push((child, entry.is_link())),
                Ok(child) => note(remote.remove_file(&child.path).await)?,
                Err(e) => note(Err(e.into()))?,
            }
        }
    }
    Ok(removed)
}
