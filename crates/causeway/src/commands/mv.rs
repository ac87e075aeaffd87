//! `causeway mv`: renames a file, or moves it to another directory, within a share.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;
use crate::remote::{Remote, RemoteArgs};
use crate::transfer::target::one_share;
use crate::url::Location;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct MvArgs {
    /// File or directory to rename or move
    #[arg(value_name = "URL")]
    from: String,
    /// New name, or existing directory to move it into
    #[arg(value_name = "NEW_URL")]
    to: String,
    /// Replace an existing file
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// The output with `--json`.
#[derive(JsonSchema, Serialize)]
pub(super) struct Moved {
    /// The old name.
    from: String,
    /// The new one.
    to: String,
}

pub(super) async fn run(args: MvArgs, out: Output) -> Result<(), Failure> {
    let places = [Location::parse(&args.from)?, Location::parse(&args.to)?];
    let name = places[0].file_name()?;
    let remote = Remote::connect(&args.remote, one_share(&places)?).await?;
    let is_directory = remote.find(&places[1].path).await?.is_some_and(|e| e.directory);
    let to = if is_directory { places[1].join(name)? } else { places[1].clone() };
    remote.rename(&places[0].path, &to.path, args.force).await?;
    remote.close().await;
    if out.json {
        out.document(&Moved { from: places[0].to_string(), to: to.to_string() })?;
    }
    Ok(())
}
