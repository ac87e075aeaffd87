//! `causeway ls` (`Get-ChildItem`).

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Column, Output, Row, TableArgs};
use crate::remote::{Entry, Remote, RemoteArgs};
use crate::url::Location;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// Directory or file; its last name may contain * (any characters) and ? (one character). Quote it, so that
    /// the shell does not expand it: 'smb://host/share/*.iso'
    #[arg(value_name = "URL", verbatim_doc_comment)]
    place: String,
    /// Include hidden files
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// A line of the listing.
#[derive(JsonSchema, Serialize)]
#[serde(transparent)]
pub(super) struct Line(Entry);

impl Row for Line {
    const COLUMNS: &'static [Column] = &[
        Column::new("Mode").rank(2),
        Column::new("LastWriteTime").rank(1),
        Column::right("Length"),
        Column::new("Name").wraps(),
    ];

    fn cells(&self) -> Vec<String> {
        let e = &self.0;
        let length = if e.directory { String::new() } else { e.size.to_string() };
        vec![e.mode(), e.written.to_string(), length, e.name.clone()]
    }
}

/// What is printed: the entries of a directory, or the shares of a server.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "for the schema")]
pub(super) enum Listed {
    Entries(Vec<Line>),
    Shares(Vec<crate::remote::RemoteShare>),
}

/// FILE_ATTRIBUTE_HIDDEN (MS-FSCC 2.6).
const HIDDEN: u32 = 0x2;

pub(super) async fn run(args: LsArgs, out: Output) -> Result<(), Failure> {
    let (place, pattern) = Location::parse_pattern(&args.place)?;
    if place.share.is_none() {
        return super::shares::list(&args.remote, &place, &args.table, out).await;
    }
    let remote = Remote::connect(&args.remote, &place).await?;
    let mut entries = match pattern {
        Some(pattern) => remote.list_matching(&place.path, &pattern).await?,
        None => {
            let entry = remote.stat(&place.path).await?;
            if entry.directory { remote.list(&place.path).await? } else { vec![entry] }
        }
    };
    remote.close().await;
    entries.retain(|e| args.all || e.attributes & HIDDEN == 0);
    entries.sort_by_cached_key(|e| (!e.directory, e.name.to_lowercase()));
    out.list(&entries.into_iter().map(Line).collect::<Vec<_>>(), &args.table)
}
