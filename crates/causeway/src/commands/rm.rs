//! `causeway rm`.

use clap::Args;

use super::one_failed;
use crate::failure::Failure;
use crate::remote::{Remote, RemoteArgs};
use crate::transfer::target::one_share;
use crate::url::Location;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct RmArgs {
    /// Files, of one share
    #[arg(required = true, value_name = "URL")]
    places: Vec<String>,
    /// Directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) async fn run(args: RmArgs) -> Result<(), Failure> {
    let places = args.places.iter().map(|p| Location::parse(p)).collect::<Result<Vec<_>, _>>()?;
    for place in &places {
        place.file_name()?;
    }
    let remote = Remote::connect(&args.remote, one_share(&places)?).await?;
    let mut failed = 0;
    for place in &places {
        if !remote.stat(&place.path).await?.directory {
            remote.remove_file(&place.path).await?;
        } else if args.recursive {
            failed += remove_tree(&remote, place).await?;
        } else {
            return Err(Failure::IsDirectory { place: place.to_string() });
        }
    }
    remote.close().await;
    one_failed(failed)
}

/// Removes a directory, what is in it first; how many could not be removed.
async fn remove_tree(remote: &Remote, top: &Location) -> Result<u64, Failure> {
    let mut failed = 0;
    // A directory is met twice: to list it, and when what it held is gone.
    let mut todo = vec![(top.clone(), false)];
    while let Some((place, emptied)) = todo.pop() {
        if emptied {
            note(remote.remove_directory(&place.path).await, &mut failed)?;
            continue;
        }
        todo.push((place.clone(), true));
        for entry in remote.list(&place.path).await? {
            match place.join(&entry.name) {
                Ok(child) if entry.directory => todo.push((child, false)),
                Ok(child) => note(remote.remove_file(&child.path).await, &mut failed)?,
                Err(e) => note(Err(e.into()), &mut failed)?,
            }
        }
    }
    Ok(failed)
}

/// Says what failed and goes on, unless the connection is gone.
fn note(result: Result<(), Failure>, failed: &mut u64) -> Result<(), Failure> {
    match result {
        Err(e) if e.ends_everything() => Err(e),
        Err(e) => {
            *failed += 1;
            crate::output::complain(&e.to_string());
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
