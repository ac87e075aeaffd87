//! `causeway reload`: the server reads users and shares again.

use super::ControlArgs;
use crate::control::types::Changed;
use crate::failure::Failure;
use crate::output::Output;

pub(super) async fn run(control: ControlArgs, out: Output) -> Result<(), Failure> {
    let changed: Changed = control.client().post("/v1/reload", &()).await?;
    out.done(&changed, &changed.done)?;
    for note in &changed.notes {
        crate::output::complain(note);
    }
    Ok(())
}
