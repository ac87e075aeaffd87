//! The result: a table, the savings of remote invalidation, and the limits of this repetition; or all as JSON.

use std::io::{self, Write};

use bench::demo::{Comparison, PerIo, Row, comparisons};
use schemars::JsonSchema;
use serde::Serialize;

use super::DemoArgs;
use crate::failure::Failure;
use crate::output::{self, Column, Output, table, wrapped};

const LEGEND: [&str; 5] = [
    "Queue: I/Os in flight.",
    "Client, Server: processor time of each process for an I/O, in microseconds.",
    "WR: RDMA work requests that the client posts for an I/O (register, send, local invalidate).",
    "Pool: mean time of an I/O of a virtual disk. Disk: number of disk I/Os for each of them, and the mean time of one. \
     Published: figures of others, measured on other machines.",
    "-BN bypasses the server's page cache if the file system supports O_DIRECT: each read then waits for the disk. -BYRT on a \
     directory reads from the cache.",
];

/// All results.
#[derive(JsonSchema, Serialize)]
pub(in crate::commands) struct Report<'a> {
    tool: &'static str,
    version: &'static str,
    /// How long each demonstration was measured.
    seconds: f64,
    threads: u32,
    processors: usize,
    /// Whether the files are sparse.
    sparse: bool,
    /// Whether the local server was used.
    own_server: bool,
    /// The number of rows of a complete run.
    planned: usize,
    #[schemars(with = "Vec<serde_json::Value>")]
    rows: &'a [Row],
    #[schemars(with = "Vec<serde_json::Value>")]
    remote_invalidation: Vec<Comparison>,
}

#[derive(Serialize)]
struct Line<'a>(&'a Row);

impl output::Row for Line<'_> {
    const COLUMNS: &'static [Column] = &[
        Column::new("Demonstration").wraps(),
        Column::new("Transport"),
        Column::right("IOPS"),
        Column::right("MB/s"),
        Column::right("Mean ms").rank(1),
        Column::right("P99 ms").rank(1),
        Column::right("Queue").rank(5),
        Column::right("Client").rank(2),
        Column::right("Server").rank(3),
        Column::right("WR").rank(4),
        Column::right("Pool ms").rank(6),
        Column::right("Disk I/O").rank(7),
        Column::right("Disk ms").rank(7),
        Column::new("Published (on another machine)").wraps().rank(8),
    ];

    fn cells(&self) -> Vec<String> {
        let r = self.0;
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            r.demonstration.to_owned(),
            r.transport.name().to_owned(),
            grouped(r.iops),
            grouped(r.mb_per_s),
            format!("{:.2}", r.mean_ms),
            format!("{:.2}", r.p99_ms),
            format!("{:.0}", r.queue_depth),
            format!("{:.1}", r.client_cpu_us),
            or_dash(r.server_cpu_us.map(|n| format!("{n:.1}"))),
            or_dash(r.work_requests.map(|w| format!("{:.2}", w.total))),
            or_dash(r.pool.map(|p| format!("{:.2}", p.mean_ms))),
            or_dash(r.pool.map(|p| format!("{:.2}", p.disk_reads))),
            or_dash(r.pool.map(|p| format!("{:.2}", p.disk_mean_ms))),
            r.published.to_owned(),
        ]
    }
}

/// The table as text.
pub(super) fn painted(rows: &[Row]) -> String {
    table(&rows.iter().map(Line).collect::<Vec<_>>())
}

/// A number with commas, without decimals.
pub(super) fn grouped(n: f64) -> String {
    let digits = format!("{n:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl<'a> Report<'a> {
    pub(super) fn new(args: &DemoArgs, rows: &'a [Row], planned: usize) -> Report<'a> {
        Report {
            tool: "causeway bench demo",
            version: env!("CARGO_PKG_VERSION"),
            seconds: args.measured().as_secs_f64(),
            threads: args.threads(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            sparse: args.sparse,
            own_server: args.target.is_none(),
            planned,
            rows,
            remote_invalidation: comparisons(rows),
        }
    }

    /// Prints the report to standard output.
    ///
    /// # Errors
    /// Standard output's.
    pub(super) fn print(&self, out: Output) -> Result<(), Failure> {
        if out.json {
            return Ok(out.document(self)?);
        }
        let text = self.text();
        Ok(io::stdout().lock().write_all(text.as_bytes())?)
    }

    fn text(&self) -> String {
        let (rows, seconds, threads) = (self.rows.len(), self.seconds, self.threads);
        let mut text = format!("{}\n\n", painted(self.rows));
        LEGEND.iter().for_each(|line| text += &format!("{}\n", wrapped(line, "  ")));
        text += &format!("{seconds} s each, {threads} threads, {} processors", self.processors);
        text += if self.own_server { " that client and server share.\n" } else { ".\n" };
        if self.sparse {
            text += "The files are sparse: reads return blocks that were never written, without disk I/O.\n";
        }
        if rows < self.planned {
            text += &format!("Stopped early: {rows} of {} rows are complete.\n", self.planned);
        }
        for c in &self.remote_invalidation {
            text += &format!(
                "\nRemote invalidation, {}, work requests of the client for an I/O:\n",
                c.demonstration
            );
            for (what, of, iops) in
                [("without", &c.without, c.iops_without), ("with   ", &c.with, c.iops_with)]
            {
                let line = format!("  {what}  {}  {} IOPS", sum(of), grouped(iops));
                text += &format!("{}\n", wrapped(&line, "           "));
            }
        }
        let mut told: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in self.rows.iter().filter(|_| self.own_server) {
            match told.iter_mut().find(|t| t.0 == row.lacks) {
                Some((_, names)) if names.contains(&row.demonstration) => {}
                Some((_, names)) => names.push(row.demonstration),
                None => told.push((row.lacks, vec![row.demonstration])),
            }
        }
        if !told.is_empty() {
            text += "\nDifferences from the published demonstrations:\n";
        }
        for (lacks, names) in told {
            text += &format!("{}\n", wrapped(&format!("  {}: {lacks}", names.join("; ")), "    "));
        }
        text
    }
}

fn sum(w: &PerIo) -> String {
    format!(
        "register {:.2} + send {:.2} + local invalidate {:.2} = {:.2}",
        w.register, w.send, w.local_invalidate, w.total
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        for (n, text) in [(0.4, "0"), (999.0, "999"), (1000.0, "1,000"), (1_234_567.8, "1,234,568")] {
            assert_eq!(grouped(n), text);
        }
    }
}
