//! `causeway event list` (`Get-WinEvent`): events of pools, the newest last.

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use env::Env;

use super::ControlArgs;
use crate::control::client::{ControlClient, segment};
use crate::control::events::Event;
use crate::failure::Failure;
use crate::output::{Output, Row, TableArgs, printable};

/// The time between two requests to the server.
const OFTEN: Duration = Duration::from_millis(500);

/// The number of events that `--follow` begins with, by default.
const BEFORE: usize = 10;

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum EventCommand {
    /// List the events of pools, the newest last: faults, disks, jobs, virtual disks
    #[command(visible_alias = "ls")]
    List(ListArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Show only events of this pool
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Show only events of the last TIME, such as 30s, 5m, 1h or 7d
    #[arg(long, value_name = "TIME", value_parser = age)]
    since: Option<u64>,
    /// Show only this many of the newest events [default: all that the server keeps, at most 1024; with --follow 10]
    #[arg(long, value_name = "NUMBER")]
    limit: Option<usize>,
    /// Show new events as they occur, until Ctrl-C
    #[arg(long, conflicts_with_all = ["wide", "columns"])]
    follow: bool,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    control: ControlArgs,
}

pub(super) async fn run(command: EventCommand, out: Output) -> Result<(), Failure> {
    let EventCommand::List(args) = command;
    let (client, env) = (args.control.client(), Env::real());
    let mut events = query_events(&client, args.pool.as_deref(), 0).await?;
    let newest = events.last().map_or(0, |e| e.number);
    if let Some(age) = args.since {
        let from = env.unix_time().as_secs().saturating_sub(age);
        events.retain(|e| e.time_unix_s >= from);
    }
    if let Some(limit) = args.limit.or(args.follow.then_some(BEFORE)) {
        events.drain(..events.len().saturating_sub(limit));
    }
    if !args.follow {
        return out.list(&events, &args.table);
    }
    follow(&client, &env, args.pool.as_deref(), newest, events, out).await
}

/// Prints some events, then new ones as they occur, until the server stops.
async fn follow(
    client: &ControlClient,
    env: &Env,
    pool: Option<&str>,
    mut newest: u64,
    mut events: Vec<Event>,
    out: Output,
) -> Result<(), Failure> {
    let mut columns = Columns::of(&events);
    if !out.json {
        writeln!(std::io::stdout().lock(), "{}", columns.heading())?;
    }
    loop {
        for event in &events {
            let line = if out.json {
                serde_json::to_string(event).map_err(std::io::Error::from)?
            } else {
                columns.line(&event.cells())
            };
            writeln!(std::io::stdout().lock(), "{line}")?;
        }
        env.sleep(OFTEN).await;
        events = query_events(client, pool, newest).await?;
        newest = events.last().map_or(newest, |e| e.number);
    }
}

async fn query_events(client: &ControlClient, pool: Option<&str>, after: u64) -> Result<Vec<Event>, Failure> {
    let pool = pool.map_or_else(String::new, |p| format!("&pool={}", segment(p)));
    Ok(client.get(&format!("/v1/events?after={after}{pool}")).await?)
}

/// A table whose rows arrive one by one: its columns become wider with the contents, never narrower.
struct Columns(Vec<usize>);

impl Columns {
    fn of(events: &[Event]) -> Columns {
        let mut columns = Columns(Event::COLUMNS.iter().map(|c| c.name().len()).collect());
        events.iter().for_each(|e| columns.widen(&e.cells()));
        columns
    }

    fn widen(&mut self, cells: &[String]) {
        self.0.iter_mut().zip(cells).for_each(|(width, cell)| *width = (*width).max(cell.chars().count()));
    }

    fn heading(&mut self) -> String {
        let names: Vec<String> = Event::COLUMNS.iter().map(|c| c.name().to_owned()).collect();
        let lines: Vec<String> = names.iter().map(|n| "-".repeat(n.len())).collect();
        format!("{}\n{}", self.line(&names), self.line(&lines))
    }

    fn line(&mut self, cells: &[String]) -> String {
        self.widen(cells);
        let cell = |(cell, width): (&String, &usize)| format!("{:<width$}", printable(cell));
        cells.iter().zip(&self.0).map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}

/// `30s`, `5m`, `1h`, `7d`.
fn age(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str = "write it like 30s, 5m, 1h or 7d";
    let (number, unit) = text.split_at_checked(text.len().wrapping_sub(1)).ok_or(WRONG)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(WRONG),
    };
    let number: u64 = number.parse().map_err(|_| WRONG)?;
    number.checked_mul(unit).ok_or(WRONG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::events::{EventKind, Happening};

    #[test]
    fn ages() {
        let good = [("30s", 30), ("5m", 300), ("1h", 3600), ("7d", 604_800)];
        good.iter().for_each(|(text, seconds)| assert_eq!(age(text), Ok(*seconds), "{text}"));
        for text in ["", "h", "5", "m5", "5 m", "-5m", "never", "99999999999999999999s", "µ"] {
            assert!(age(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rows_that_come_later_line_up_with_those_before() {
        let event = |number, pool: &str, object: &str| {
            let what = Happening::new(EventKind::DiskAdded, pool, object.to_owned(), "it is new".to_owned());
            Event { number, time_unix_s: 0, what }
        };
        let mut columns = Columns::of(&[event(1, "tank", "disk 0 (a)")]);
        let heading = "Time (UTC)           Severity     Pool  Event      Object      Message\n\
                       ----------           --------     ----  -----      ------      -------";
        assert_eq!(columns.heading(), heading);
        let line = columns.line(&event(2, "tank", "disk 1").cells());
        assert_eq!(line, "1970-01-01 00:00:00  Information  tank  DiskAdded  disk 1      it is new");
        let line = columns.line(&event(3, "tank\n", "disk 10 (abc)").cells());
        assert_eq!(
            line,
            "1970-01-01 00:00:00  Information  tank\u{FFFD}  DiskAdded  disk 10 (abc)  it is new"
        );
        let line = columns.line(&event(4, "tank", "disk 1").cells());
        assert_eq!(line, "1970-01-01 00:00:00  Information  tank   DiskAdded  disk 1         it is new");
    }
}
