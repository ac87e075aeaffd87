//! The command line: the commands, and the file for each.

mod activity;
mod bench;
mod cat;
mod config;
mod copying;
mod counters;
mod disk;
mod enclosure;
mod event;
mod get;
pub(crate) mod group;
#[cfg(test)]
mod guides;
mod health;
mod job;
mod ls;
mod manual;
mod mkdir;
mod mv;
mod open;
mod pool;
mod put;
mod reload;
mod rm;
mod schema;
mod serve;
mod session;
mod setup;
mod share;
mod shares;
mod space;
mod stat;
mod status;
mod top;
mod user;

use std::cell::Cell;
use std::future::Future;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::default_control;
use crate::control::client::ControlClient;
use crate::failure::Failure;
use crate::output::{Output, TableArgs};

/// Files over SMB 3.1.1 and SMB Direct: server and client.
#[derive(Debug, Parser)]
#[command(name = "causeway", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    /// Print JSON instead of tables
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// The output form.
    pub fn output(&self) -> Output {
        Output { json: self.json }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a first configuration with a share and a user, and print the next steps
    Setup(setup::SetupArgs),
    /// Run the server
    Serve(serve::ServeArgs),
    /// Check a configuration, or print an example
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Add, list and remove shares; set their permissions
    #[command(subcommand)]
    Share(share::ShareCommand),
    /// Add, list, change and remove users
    #[command(subcommand)]
    User(user::UserCommand),
    /// Add, list and remove groups of users, and change their members
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// List and close sessions
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// List and close open files
    #[command(subcommand)]
    Open(open::OpenCommand),
    /// List, examine and configure disks
    #[command(subcommand)]
    Disk(disk::DiskCommand),
    /// List the enclosures of disks
    #[command(subcommand)]
    Enclosure(enclosure::EnclosureCommand),
    /// Create, list, open, change and destroy storage pools
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Create, list, attach, change and destroy the virtual disks of pools
    #[command(subcommand, visible_alias = "virtual-disk")]
    Space(space::SpaceCommand),
    /// Show, pause and stop the background jobs of pools: resync, repair, scrub
    #[command(subcommand)]
    Job(job::JobCommand),
    /// List the events of pools: faults, disks, jobs, virtual disks
    #[command(subcommand)]
    Event(event::EventCommand),
    /// Show the faults of pools and the commands that repair them; exit code 1 if a fault needs action
    Health(ControlArgs),
    /// Show the state of the server
    Status(ControlArgs),
    /// Show performance counters
    Counters(counters::CountersArgs),
    /// Show the load of shares, sessions, SMB Direct connections, pools and disks continuously
    Top(top::TopArgs),
    /// Make the server read its users and shares again, like SIGHUP
    Reload(ControlArgs),
    /// List a directory of a server
    Ls(ls::LsArgs),
    /// Copy files from a server
    Get(get::GetArgs),
    /// Copy files to a server
    Put(put::PutArgs),
    /// Print files of a server
    Cat(cat::CatArgs),
    /// Remove files of a server
    Rm(rm::RmArgs),
    /// Create directories on a server
    Mkdir(mkdir::MkdirArgs),
    /// Rename or move a file of a server
    Mv(mv::MvArgs),
    /// Show the attributes of a file of a server
    Stat(stat::StatArgs),
    /// List the shares of a server
    Shares(shares::SharesArgs),
    /// Generate I/O load on files, block devices, shares and fabrics, with DiskSPD's options
    Bench(bench::BenchArgs),
    /// Print completions for a shell
    Completions(manual::CompletionsArgs),
    /// Print the JSON Schema of the output of each command with --json
    Schema,
    /// Write the manual pages
    #[command(hide = true)]
    Man(manual::ManArgs),
}

/// Executes the command line.
///
/// # Errors
/// See [`Failure`].
pub fn run(cli: Cli) -> Result<(), Failure> {
    let out = cli.output();
    match cli.command {
        Command::Setup(args) => block_on(setup::run(args, out)),
        Command::Serve(args) => serve::run(args),
        Command::Config(command) => block_on(config::run(command, out)),
        Command::Share(command) => block_on(share::run(command, out)),
        Command::User(command) => block_on(user::run(command, out)),
        Command::Group(command) => block_on(group::run(command, out)),
        Command::Session(command) => block_on(session::run(command, out)),
        Command::Open(command) => block_on(open::run(command, out)),
        Command::Disk(command) => block_on(disk::run(command, out)),
        Command::Enclosure(command) => block_on(enclosure::run(command, out)),
        Command::Pool(command) => block_on(pool::run(command, out)),
        Command::Space(command) => block_on(space::run(command, out)),
        Command::Job(command) => block_on(job::run(command, out)),
        Command::Event(command) => block_on(event::run(command, out)),
        Command::Health(control) => block_on(health::run(control, out)),
        Command::Status(control) => block_on(status::run(control, out)),
        Command::Counters(args) => block_on(counters::run(args, out)),
        Command::Top(args) => block_on(top::run(args, out)),
        Command::Reload(control) => block_on(reload::run(control, out)),
        Command::Ls(args) => block_on(ls::run(args, out)),
        Command::Get(args) => block_on(get::run(args, out)),
        Command::Put(args) => block_on(put::run(args, out)),
        Command::Cat(args) => block_on(cat::run(args)),
        Command::Rm(args) => block_on(rm::run(args, out)),
        Command::Mkdir(args) => block_on(mkdir::run(args, out)),
        Command::Mv(args) => block_on(mv::run(args, out)),
        Command::Stat(args) => block_on(stat::run(args, out)),
        Command::Shares(args) => block_on(shares::run(args, out)),
        Command::Bench(args) => bench::run(args, out),
        Command::Completions(args) => manual::completions(&args),
        Command::Schema => schema::run(out),
        Command::Man(args) => manual::man(&args),
    }
}

/// The running server to use.
#[derive(Debug, Args)]
struct ControlArgs {
    /// Control socket of the server [default: /run/causeway/control.sock for root, else
    /// $XDG_RUNTIME_DIR/causeway/control.sock]
    #[arg(long, value_name = "SOCKET", env = "CAUSEWAY_CONTROL")]
    control: Option<PathBuf>,
}

impl ControlArgs {
    fn client(&self) -> ControlClient {
        ControlClient::new(&self.control.clone().unwrap_or_else(default_control))
    }
}

/// The running server, and the columns of a listing.
#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    control: ControlArgs,
}

/// The running server, and the width of its listings.
#[derive(Debug, Args)]
struct ShowArgs {
    /// Show all columns of the tables, even on a narrow terminal
    #[arg(long)]
    wide: bool,
    #[command(flatten)]
    control: ControlArgs,
}

/// Makes a path absolute, because the server has another working directory.
fn absolute(path: PathBuf) -> Result<PathBuf, Failure> {
    std::path::absolute(&path).map_err(|source| Failure::Local { path, source })
}

/// Runs a command's future on this thread.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// The number of files of a tree whose copy or removal failed.
#[derive(Debug, Default)]
struct Tally(Cell<u64>);

impl Tally {
    /// Counts and prints a failure; returns it if the next file would fail too.
    fn note(&self, result: Result<(), Failure>, say: impl Fn(&Failure)) -> Result<(), Failure> {
        match result {
            Err(e) if !e.ends_everything() => {
                self.0.update(|n| n + 1);
                say(&e);
                Ok(())
            }
            other => other,
        }
    }

    /// An error if any file failed.
    fn result(&self) -> Result<(), Failure> {
        match self.0.get() {
            0 => Ok(()),
            failed => Err(Failure::Some(failed)),
        }
    }
}
