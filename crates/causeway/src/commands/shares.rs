//! `causeway shares`: the shares of a server (`net view`).

use clap::Args;

use crate::failure::Failure;
use crate::output::{Column, Output, Row, TableArgs};
use crate::remote::{RemoteArgs, RemoteShare, shares};
use crate::url::Location;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct SharesArgs {
    /// Server: smb://host
    #[arg(value_name = "URL")]
    place: String,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    remote: RemoteArgs,
}

impl Row for RemoteShare {
    const COLUMNS: &'static [Column] =
        &[Column::new("Name"), Column::new("Type").rank(1), Column::new("Description").wraps()];

    fn cells(&self) -> Vec<String> {
        vec![self.name.clone(), self.kind.to_owned(), self.comment.clone()]
    }
}

pub(super) async fn run(args: SharesArgs, out: Output) -> Result<(), Failure> {
    list(&args.remote, &Location::parse(&args.place)?, &args.table, out).await
}

/// Lists a server's shares.
pub(super) async fn list(
    remote: &RemoteArgs,
    place: &Location,
    table: &TableArgs,
    out: Output,
) -> Result<(), Failure> {
    out.list(&shares(remote, place).await?, table)
}
