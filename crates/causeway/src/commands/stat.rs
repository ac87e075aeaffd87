//! `causeway stat`: the attributes of a file.

use clap::Args;

use crate::failure::Failure;
use crate::output::{Output, human_bytes};
use crate::remote::{Remote, RemoteArgs};
use crate::url::Location;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct StatArgs {
    /// File or directory
    #[arg(value_name = "URL")]
    place: String,
    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) async fn run(args: StatArgs, out: Output) -> Result<(), Failure> {
    let place = Location::parse(&args.place)?;
    place.share()?;
    let remote = Remote::connect(&args.remote, &place).await?;
    let e = remote.stat(&place.path).await?;
    let (transport, why_not) = remote.transport();
    remote.close().await;
    let bytes = |n: u64| if n < 1024 { n.to_string() } else { format!("{n} ({})", human_bytes(n)) };
    let mut lines = vec![
        ("FullName", place.to_string()),
        ("Kind", if e.directory { "directory" } else { "file" }.to_owned()),
        ("Mode", e.mode()),
        ("Length", bytes(e.size)),
        ("AllocationSize", bytes(e.allocation)),
        ("CreationTime", e.created.to_string()),
        ("LastAccessTime", e.accessed.to_string()),
        ("LastWriteTime", e.written.to_string()),
        ("ChangeTime", e.changed.to_string()),
        ("Transport", transport.to_owned()),
    ];
    if let Some(why) = why_not {
        lines.push(("WhyNotRdma", why));
    }
    Ok(out.facts(&e, &lines)?)
}
