//! `causeway top`: the load of shares, sessions, SMB Direct connections, RDMA, pools, virtual disks and disks, like
//! Performance Monitor and Watch-Cluster.
//!
//! `sample` requests the state of the server, `view` computes values from two samples, `draw` draws a frame of a view.
//! The latter two are pure; only `terminal` and the loop here wait.

mod columns;
mod draw;
#[cfg(test)]
mod fixture;
mod sample;
mod state;
mod terminal;
mod view;
mod why;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use crossterm::event::{Event, EventStream};
use env::Env;
use futures_util::StreamExt;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::ControlArgs;
use crate::control::client::{ControlClient, ControlError};
use crate::failure::Failure;
use crate::output::Output;
use sample::{Sample, take};
use state::{Action, State};
use terminal::{Screen, Stop};
pub(super) use view::View;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    #[command(flatten)]
    control: ControlArgs,
    /// Seconds between two samples, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// Print one frame as text with all columns after one interval, then exit; --json prints it as JSON
    #[arg(long)]
    once: bool,
}

/// Seconds between two samples at least and at most.
const INTERVAL_RANGE_S: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

pub(super) async fn run(args: TopArgs, out: Output) -> Result<(), Failure> {
    if !INTERVAL_RANGE_S.contains(&args.interval) {
        return Err(Failure::Usage("--interval takes 0.1 to 3600 seconds"));
    }
    let (client, env) = (args.control.client(), Env::real());
    let mut state = State::new(Duration::from_secs_f64(args.interval));
    if args.once || out.json {
        let before = take(&client, &env).await?;
        env.sleep(state.interval).await;
        let now = take(&client, &env).await?;
        if out.json {
            return Ok(out.document(&View::new(Some(&before), &now))?);
        }
        return Ok(io::stdout().write_all(draw::whole(&before, &now, &mut state).as_bytes())?);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "causeway top needs a terminal: pass --once for one frame as text, or --json",
        ));
    }
    let mut stop = Stop::new()?;
    let screen = Screen::enter()?;
    let result = watch(&client, &env, state, &mut stop).await;
    drop(screen);
    result
}

/// The latest samples, and the time of the last response.
struct Answers {
    before: Option<Sample>,
    now: Option<Sample>,
    /// The newest sample; not shown while the view is paused.
    newest: Option<Sample>,
    last: Instant,
}

async fn watch(client: &ControlClient, env: &Env, mut state: State, stop: &mut Stop) -> Result<(), Failure> {
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    let mut events = EventStream::new();
    let mut answers = Answers { before: None, now: None, newest: None, last: env.now() };
    let mut asked = env.now();
    // Keys are processed during a request to the server.
    let mut asking = Some(Box::pin(take(client, env)));
    loop {
        state.lost_s = (env.now() - answers.last).as_secs();
        terminal.draw(|f| {
            let area = f.area();
            draw::frame(answers.before.as_ref(), answers.now.as_ref(), &mut state, area, f.buffer_mut());
        })?;
        tokio::select! {
            answer = async { asking.as_mut().expect("checked").await }, if asking.is_some() => {
                asking = None;
                answers.take(answer, &mut state, env.now());
            }
            () = env.sleep_until(asked + state.pause()), if asking.is_none() => {
                asked = env.now();
                asking = Some(Box::pin(take(client, env)));
            }
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) if state.key(key) == Action::Quit => return Ok(()),
                Some(Ok(_)) => {} // a key or a new size: drawn again above
                Some(Err(e)) => return Err(e.into()),
                None => return Ok(()),
            },
            () = stop.wait() => return Ok(()),
        }
    }
}

impl Answers {
    fn take(&mut self, answer: Result<Sample, ControlError>, state: &mut State, now: Instant) {
        match answer {
            Ok(sample) => {
                self.last = now;
                state.lost = None;
                let before = self.newest.replace(sample);
                if !state.paused || self.now.is_none() {
                    (self.before, self.now) = (before, self.newest.clone());
                }
            }
            Err(e) => state.lost = Some(Failure::from(e).advice()),
        }
    }
}
