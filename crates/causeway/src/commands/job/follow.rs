//! `causeway job list --follow`: a bar for each job on a terminal; elsewhere the list is printed repeatedly, with
//! `--json` one line each time.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use env::Env;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::control::client::ControlClient;
use crate::control::storage::JobStatus;
use crate::failure::Failure;
use crate::output::{Output, human_bytes, printable, table};

/// The time between two requests: on a terminal, and elsewhere.
const OFTEN: Duration = Duration::from_millis(250);
const SELDOM: Duration = Duration::from_secs(2);

/// One line of a terminal; on a narrow one the reason is cut.
const BAR: &str = "{prefix:24!} {bar:10} {percent:>3} %  {wide_msg}";

/// Shows jobs until no job runs.
pub(super) async fn run(client: &ControlClient, out: Output) -> Result<(), Failure> {
    let env = Env::real();
    let mut bars =
        (!out.json && std::io::stderr().is_terminal() && std::io::stdout().is_terminal()).then(Bars::new);
    loop {
        let jobs: Vec<JobStatus> = client.get("/v1/jobs").await?;
        match &mut bars {
            Some(bars) => bars.show(&jobs),
            None if out.json => {
                let mut to = std::io::stdout().lock();
                serde_json::to_writer(&mut to, &jobs).map_err(std::io::Error::from)?;
                writeln!(to)?;
            }
            None => writeln!(std::io::stdout().lock(), "{}\n", table(&jobs))?,
        }
        if jobs.is_empty() {
            return Ok(());
        }
        env.sleep(if bars.is_some() { OFTEN } else { SELDOM }).await;
    }
}

/// The bars of the running jobs.
struct Bars {
    screen: MultiProgress,
    bars: BTreeMap<u64, ProgressBar>,
    seen: bool,
}

impl Bars {
    fn new() -> Bars {
        let screen = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        Bars { screen, bars: BTreeMap::new(), seen: false }
    }

    fn show(&mut self, jobs: &[JobStatus]) {
        for job in jobs {
            self.seen = true;
            let bar = self.bars.entry(job.id).or_insert_with(|| {
                let bar = self.screen.add(ProgressBar::new(1));
                if let Ok(style) = ProgressStyle::with_template(BAR) {
                    bar.set_style(style.progress_chars("##-"));
                }
                bar.set_prefix(printable(&format!("{} {} {}", job.id, job.name, job.object)));
                bar
            });
            // A bar of length 0 would be drawn full.
            bar.set_length(job.bytes_total.max(1));
            bar.set_position(job.bytes_processed);
            bar.set_message(printable(&message(job)));
        }
        let ended: Vec<u64> =
            self.bars.keys().copied().filter(|id| jobs.iter().all(|j| j.id != *id)).collect();
        for id in ended {
            if let Some(bar) = self.bars.remove(&id) {
                let _ = self.screen.println(format!("{} has ended", bar.prefix()));
                bar.finish_and_clear();
            }
        }
        if jobs.is_empty() && !self.seen {
            let _ = self.screen.println("no job is running");
        }
    }
}

/// Rate, remaining time, remaining bytes, and the reason for a reduced rate, which may be cut at the end.
fn message(job: &JobStatus) -> String {
    let mut parts = Vec::new();
    if job.state == "Running" {
        parts.push(job.rate_text());
        parts.extend(job.eta_s.map(|_| job.left_text()));
    }
    parts.push(format!("{} left", human_bytes(job.bytes_left)));
    parts.extend(job.reason.clone());
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_bar_says() {
        let job = JobStatus {
            id: 3,
            name: "Resync".to_owned(),
            object: "tank, disk 2".to_owned(),
            pool: "tank".to_owned(),
            elapsed_s: 4,
            state: "Running".to_owned(),
            percent_complete: 25,
            bytes_processed: 1 << 30,
            bytes_total: 4 << 30,
            bytes_left: 3 << 30,
            bytes_per_s: 100 << 20,
            eta_s: Some(31),
            reason: None,
        };
        assert_eq!(message(&job), "100 MiB/s, 00:00:31, 3 GiB left");
        let why = Some("paced: 99th percentile of client latency is 31 ms, target 20 ms".to_owned());
        let paced = JobStatus { reason: why, ..job.clone() };
        let said = "100 MiB/s, 00:00:31, 3 GiB left, paced: 99th percentile of client latency is 31 ms, target 20 ms";
        assert_eq!(message(&paced), said);
        let paused =
            JobStatus { state: "Suspended".to_owned(), reason: Some("paused by command".to_owned()), ..job };
        assert_eq!(message(&paused), "3 GiB left, paused by command");
    }
}
