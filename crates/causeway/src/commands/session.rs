//! `causeway session list|close` (`Get-SmbSession`, `Close-SmbSession`).

use clap::Subcommand;

use super::{ControlArgs, ListArgs};
use crate::control::client::segment;
use crate::control::types::{Changed, SessionStatus};
use crate::failure::Failure;
use crate::output::Output;

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum SessionCommand {
    /// List sessions: user, client address, transport
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// End a session and close its files
    Close {
        /// SessionId, as in session list
        id: String,
        #[command(flatten)]
        control: ControlArgs,
    },
}

pub(super) async fn run(command: SessionCommand, out: Output) -> Result<(), Failure> {
    match command {
        SessionCommand::List(ListArgs { table, control }) => {
            let sessions: Vec<SessionStatus> = control.client().get("/v1/sessions").await?;
            out.list(&sessions, &table)
        }
        SessionCommand::Close { id, control } => {
            let path = format!("/v1/sessions/{}", segment(&id));
            let changed: Changed = control.client().delete(&path).await?;
            Ok(out.done(&changed, &changed.done)?)
        }
    }
}
