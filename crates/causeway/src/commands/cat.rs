//! `causeway cat`: files to standard output.

use std::io::Write;

use clap::Args;

use crate::failure::Failure;
use crate::remote::{Remote, RemoteArgs};
use crate::transfer::copy;
use crate::transfer::target::named;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct CatArgs {
    /// Files to print, all of one share
    #[arg(required = true, value_name = "URL")]
    places: Vec<String>,
    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) async fn run(args: CatArgs) -> Result<(), Failure> {
    let places = named(&args.places)?;
    let remote = Remote::connect(&args.remote, &places[0]).await?;
    let mut out = std::io::stdout().lock();
    for place in &places {
        let file = remote.open(&place.path).await?;
        copy::read_all(&file, 0..file.size(), |bytes| Ok(out.write_all(bytes)?)).await?;
        file.close().await;
    }
    out.flush()?;
    remote.close().await;
    Ok(())
}
