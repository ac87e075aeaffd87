//! `causeway mkdir`.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vfs::VfsPath;

use crate::failure::Failure;
use crate::output::Output;
use crate::remote::{Remote, RemoteArgs};
use crate::transfer::target::named;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct MkdirArgs {
    /// Directories to create, all of one share
    #[arg(required = true, value_name = "URL")]
    places: Vec<String>,
    /// Also create missing parent directories; existing directories are no error
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// The output with `--json`.
#[derive(JsonSchema, Serialize)]
pub(super) struct Created {
    /// The requested directories.
    created: Vec<String>,
}

pub(super) async fn run(args: MkdirArgs, out: Output) -> Result<(), Failure> {
    let places = named(&args.places)?;
    let remote = Remote::connect(&args.remote, &places[0]).await?;
    for place in &places {
        if args.parents {
            let mut path = VfsPath::root();
            for part in place.path.components() {
                path = path
                    .join(part)
                    .map_err(|source| crate::url::UrlError::Path { path: part.clone(), source })?;
                if !remote.find(&path).await?.is_some_and(|e| e.directory) {
                    remote.make_directory(&path).await?;
                }
            }
        } else {
            remote.make_directory(&place.path).await?;
        }
    }
    remote.close().await;
    if out.json {
        out.document(&Created { created: places.iter().map(ToString::to_string).collect() })?;
    }
    Ok(())
}
