//! `causeway completions` and `causeway man`: files that packages install beside the program.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::failure::Failure;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// Name of the shell
    shell: Shell,
}

/// See the module.
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Directory for causeway.1, causeway-pool.1, …
    directory: PathBuf,
}

pub(super) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "causeway", &mut text);
    Ok(std::io::stdout().lock().write_all(&text)?)
}

pub(super) fn man(args: &ManArgs) -> Result<(), Failure> {
    let failed = |source| Failure::Local { path: args.directory.clone(), source };
    std::fs::create_dir_all(&args.directory).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &args.directory).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_each_command() {
        let to = tempfile::tempdir().expect("a directory");
        man(&ManArgs { directory: to.path().to_owned() }).expect("written");
        let page = |name: &str| std::fs::read_to_string(to.path().join(name)).expect("a page");
        let top = page("causeway.1");
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            assert!(page(&format!("causeway-{}.1", command.get_name())).contains(".SH SYNOPSIS"));
            assert!(top.contains(&format!("causeway\\-{}(1)", command.get_name())), "{}", command.get_name());
        }
        assert!(page("causeway-pool-create.1").contains("slab"));
    }
}
