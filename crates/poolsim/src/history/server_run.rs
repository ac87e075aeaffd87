//! A run of the server, its end, and the time until the next one.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use disk::sim::SlotId;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join, join_all, join4};
use pool::OpenError;
use pool_seam::Owner;

use super::bed::{Server, TestBed, options};
use super::random::Random;
use super::{chaos, jobs, row_shapes, second_disk, users};
use crate::process::{Fences, ProcessState};
use crate::world::World;

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The power fails.
    PowerCut,
    /// The process ends; the disks lose nothing.
    Kill,
    /// The spaces are closed and the pool is exported.
    Close,
    /// Another process takes the pool, while this one still runs.
    TakenOver,
}

/// The previous process and its users, which may still run.
pub(super) struct PreviousServer<'a> {
    server: Rc<Server>,
    users: LocalBoxFuture<'a, ()>,
}

/// Runs the server until the end of its run.
pub(super) async fn run(
    bed: &TestBed,
    server: &Server,
    previous: Option<PreviousServer<'_>>,
    random: &mut Random,
) -> Ending {
    let ending = match random.below(8) {
        0..4 => Ending::PowerCut,
        4 | 5 => Ending::Kill,
        6 => Ending::Close,
        _ => Ending::TakenOver,
    };
    if ending == Ending::PowerCut && !random.one_in(4) {
        bed.machine.cut_at(bed.machine.events() + random.below(900), random.cut());
    }
    let killed = (ending == Ending::Kill).then(|| bed.env.now() + Duration::from_millis(random.below(400)));
    let mut of_spaces = Vec::new();
    for space in 0..server.spaces.len() {
        for _ in 0..1 + random.below(3) {
            let steps = 10 + random.below(30);
            of_spaces.push(users::user(bed, server, space, steps, random.fork()));
        }
    }
    let mishaps = if bed.shape.has_mishaps { random.below(14) } else { 0 };
    let chaos = chaos::chaos(bed, server, mishaps, random.fork());
    let chores = random.below(8);
    let jobs = jobs::jobs(bed, server, chores, random.fork());
    let shapes = async {
        if bed.shape.shapes_change {
            // Drawn last, so that the rest of the history is the same as without changes of the copies.
            let mut random = Random::new(bed.seed ^ bed.machine.events() << 32);
            row_shapes::changes(bed, server, random.below(6), random.fork()).await;
        }
    };
    let work = join4(join_all(of_spaces), chaos, jobs, shapes);
    let is_over = async {
        while bed.machine.is_on() && killed.is_none_or(|at| bed.env.now() < at) {
            bed.env.sleep(Duration::from_millis(2)).await;
        }
    };
    let (process, deposed_users) = match previous {
        Some(previous) => (Some(previous.server), previous.users),
        None => (None, std::future::pending().boxed_local()),
    };
    tokio::select! {
        biased;
        () = is_over => {}
        _ = work => {}
        () = deposed_users => {}
    }
    if let Some(previous) = process {
        previous.world.process.set(ProcessState::Ended);
    }
    bed.note(|| format!("it ends: {ending:?}"));
    ending
}

/// Ends a run and begins the next one.
pub(super) async fn start_next<'a>(
    bed: &'a TestBed,
    server: Server,
    ending: Ending,
    random: &mut Random,
) -> (Server, Option<PreviousServer<'a>>) {
    let world = match ending {
        Ending::TakenOver if bed.machine.is_on() => return take_over(bed, server, random).await,
        Ending::PowerCut | Ending::TakenOver => {
            server.world.process.set(ProcessState::Ended);
            bed.machine.cut(random.cut());
            server.world
        }
        Ending::Kill => {
            server.world.process.set(ProcessState::Ended);
            // The kernel completes outstanding I/O before the process is gone. It has no fences of its own.
            bed.env.sleep(Duration::from_millis(20)).await;
            server.world
        }
        Ending::Close => {
            close(bed, &server).await;
            server.world.process.set(ProcessState::Ended);
            server.world
        }
    };
    let is_off = !bed.machine.is_on();
    if is_off {
        bed.machine.restart();
    }
    bed.models.iter().for_each(|model| model.borrow_mut().crashed());
    change_disks_between_runs(bed, random);
    // A machine that was switched off has lost its fences.
    let mut fences = is_off.then(|| Fences::new(bed.shape.is_fenced));
    let mut cut = random.one_in(4).then(|| (random.below(80), random.cut()));
    let server = loop {
        let next = world.next_process(fences.take());
        if let Some((after, cut)) = cut {
            bed.machine.cut_at(bed.machine.events() + after, cut);
        }
        let process = next.process.clone();
        // Ready when the power has failed: an opening without power does not end by itself.
        let is_off = async {
            while bed.machine.is_on() {
                bed.env.sleep(Duration::from_millis(50)).await;
            }
        };
        let opened = tokio::select! {
            biased;
            opened = open(bed, next) => opened,
            () = is_off => Err("the power failed".into()),
        };
        match opened {
            Ok(server) if bed.machine.is_on() => break server,
            Err(error) if bed.machine.is_on() => bed.fail(&format!("opening: {error}")),
            Ok(_) | Err(_) => {}
        }
        bed.note(|| "the power fails again".into());
        process.set(ProcessState::Ended);
        bed.machine.restart();
        fences = Some(Fences::new(bed.shape.is_fenced));
        cut = None;
    };
    if cut.is_some() {
        // The planned power cut has not happened yet: cancel it.
        bed.machine.cut_at(u64::MAX, disk::PowerCut::KeepAll);
    }
    begin(bed, &server, random).await;
    (server, None)
}

async fn open(bed: &TestBed, world: World) -> Result<Server, String> {
    let opened = world.try_open(false).await.map_err(|error: OpenError| error.to_string())?;
    bed.note(|| format!("opened, missing {:?}, stale {:?}", opened.missing, opened.stale));
    bed.own_all(world, opened.pool).await.map_err(|error| format!("owning: {error}"))
}

/// The steps of a run before its users start.
async fn begin(bed: &TestBed, server: &Server, random: &mut Random) {
    bed.note(|| "owned".into());
    bed.learn_disks(server);
    jobs::restore_sizes(bed, server).await;
    if bed.shape.removes_second_disk && random.one_in(2) {
        second_disk::take_offline(bed, server, random).await;
    }
    match random.below(4) {
        0 => users::read_all(bed, server).await,
        1 => {
            chaos::repair_all(bed, server).await;
            users::read_all(bed, server).await;
        }
        2 => chaos::repair_all(bed, server).await,
        _ => {}
    }
}

/// Closes all spaces, which makes every write durable, and exports the pool.
async fn close(bed: &TestBed, server: &Server) {
    for (owned, model) in server.spaces.iter().zip(&bed.models) {
        let began = model.borrow_mut().time();
        match owned.space.close().wait().await {
            Ok(state) => {
                assert!(state.is_closed);
                model.borrow_mut().flushed(began);
            }
            Err(_) if chaos::is_over(bed, server) => return,
            Err(error) => bed.fail(&format!("closing: {error}")),
        }
    }
    if let (Err(error), false) = (server.pool.export().await, chaos::is_over(bed, server)) {
        bed.fail(&format!("export: {error}"));
    }
}

/// Changes the disks while no process has opened the pool: disks return, disappear, or are rolled back.
fn change_disks_between_runs(bed: &TestBed, random: &mut Random) {
    let pulled: Vec<usize> = bed.pulled.borrow().iter().copied().collect();
    for slot in pulled {
        if !random.one_in(4) {
            chaos::plug(bed, slot);
        }
    }
    for slot in 0..bed.machine.slots() {
        if bed.may_become_bad(slot) && !bed.pulled.borrow().contains(&slot) && bed.number(slot).is_some() {
            match random.below(12) {
                0 => chaos::pull(bed, slot, random),
                1 | 2 => roll_back(bed, slot, random),
                3..7 if bed.shape.removes_second_disk => roll_back(bed, slot, random),
                _ => {}
            }
        }
    }
}

fn roll_back(bed: &TestBed, slot: usize, random: &mut Random) {
    let images = bed.images.borrow();
    let Some((image, is_damaged)) = random.pick(&images).and_then(|images| images.get(&slot)) else { return };
    bed.note(|| format!("disk {slot} is set back, to a damaged image: {is_damaged}"));
    bed.mark_bad(slot);
    bed.corrupted.borrow_mut().insert(slot);
    match is_damaged {
        true => bed.rolled_back.borrow_mut().remove(&slot),
        false => bed.rolled_back.borrow_mut().insert(slot),
    };
    bed.machine.replace(SlotId(slot), &options(slot), image.clone());
    if let Some(delay) = bed.shape.delay {
        bed.machine.shuffle(SlotId(slot), delay);
    }
}

/// Another process takes the pool from this one, whose users continue.
async fn take_over<'a>(
    bed: &'a TestBed,
    server: Server,
    random: &mut Random,
) -> (Server, Option<PreviousServer<'a>>) {
    let (server, is_deposed) = (Rc::new(server), Rc::new(Cell::new(false)));
    let stalls = bed.shape.is_fenced && random.one_in(2);
    bed.note(|| format!("another process takes the pool; this one stalls: {stalls}"));
    let mut users = deposed_users(bed, &server, &is_deposed, random);
    // A process with the same number would count as the owner itself, and would take the pool without waiting.
    let number = 100 + random.below(1000) as u32;
    let world = server.world.another_process(number + u32::from(number == server.world.host.process));
    let pause = Duration::from_millis(random.below(1500));
    let opening = async {
        bed.env.sleep(pause).await;
        if stalls {
            server.world.process.set(ProcessState::Stalled);
        }
        loop {
            match world.try_open(true).await {
                // The present owner wrote its claim to a returned disk meanwhile: try again.
                Err(OpenError::Raced { .. }) => {}
                opened => return opened,
            }
        }
    };
    let opened = tokio::select! {
        biased;
        opened = opening => opened,
        () = &mut users => unreachable!("they go on"),
    };
    let opened = opened.unwrap_or_else(|error| bed.fail(&format!("taking the pool: {error}")));
    bed.note(|| "taken".into());
    is_deposed.set(true);
    let owning = bed.own_all(world, opened.pool);
    let owned = tokio::select! {
        biased;
        owned = owning => owned,
        () = &mut users => unreachable!("they go on"),
    };
    let owned = owned.unwrap_or_else(|error| bed.fail(&format!("owning: {error}")));
    bed.models.iter().for_each(|model| model.borrow_mut().crashed());
    let (process, pause) = (server.world.process.clone(), Duration::from_millis(random.below(400)));
    let resumes = async move {
        bed.env.sleep(pause).await;
        if stalls {
            bed.note(|| "the previous one resumes".into());
            process.set(ProcessState::Running);
        }
    };
    let users = join(resumes, users).map(drop).boxed_local();
    let mut previous = PreviousServer { server, users };
    let begin = begin(bed, &owned, random);
    tokio::select! {
        biased;
        () = begin => {}
        () = &mut previous.users => unreachable!("they go on"),
    }
    (owned, Some(previous))
}

fn deposed_users<'a>(
    bed: &'a TestBed,
    server: &Rc<Server>,
    is_deposed: &Rc<Cell<bool>>,
    random: &mut Random,
) -> LocalBoxFuture<'a, ()> {
    let all: Vec<_> = (0..2 * server.spaces.len())
        .map(|n| {
            let (server, is_deposed, random) = (Rc::clone(server), Rc::clone(is_deposed), random.fork());
            async move { users::deposed_user(bed, &server, n / 2, &is_deposed, random).await }
        })
        .collect();
    join_all(all).map(drop).boxed_local()
}
