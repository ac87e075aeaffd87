//! `causeway rm`.

use clap::Args;

use super::Tally;
use crate::failure::Failure;
use crate::remote::{Remote, RemoteArgs};
use crate::transfer::target::named;
use crate::url::Location;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct RmArgs {
    /// Files, of one share
    #[arg(required = true, value_name = "URL")]
    places: Vec<String>,
    /// Directories with their contents
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) async fn run(args: RmArgs) -> Result<(), Failure> {
    let places = named(&args.places)?;
    let remote = Remote::connect(&args.remote, &places[0]).await?;
    let failed = Tally::default();
    for place in &places {
        let found = remote.stat_link(&place.path).await?;
        if !found.directory {
            remote.remove_file(&place.path).await?;
        } else if found.is_link() {
            remote.remove_directory(&place.path).await?;
        } else if args.recursive {
            remove_tree(&remote, place, &failed).await?;
        } else {
            return Err(Failure::IsDirectory { place: place.to_string() });
        }
    }
    remote.close().await;
    failed.result()
}

/// Removes a directory after its contents; entries that cannot be removed are reported and counted.
async fn remove_tree(remote: &Remote, top: &Location, failed: &Tally) -> Result<(), Failure> {
    let note = |result| failed.note(result, crate::output::complain);
    // A directory is met twice: to list it, and when what it held is gone.
    let mut todo = vec![(top.clone(), false)];
    while let Some((place, emptied)) = todo.pop() {
        if emptied {
            note(remote.remove_directory(&place.path).await)?;
            continue;
        }
        todo.push((place.clone(), true));
        for entry in remote.list(&place.path).await? {
            match place.join(&entry.name) {
                // Of a link, only the link.
                Ok(child) if entry.directory => todo.push((child, entry.is_link())),
                Ok(child) => note(remote.remove_file(&child.path).await)?,
                Err(e) => note(Err(e.into()))?,
            }
        }
    }
    Ok(())
}
