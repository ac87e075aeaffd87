//! The lives of one pool: opened, used, cut off, opened again; at the end everything is compared, on each
//! disk alone too.

use disk::sim::SlotId;
use disk::{DiskError, Image, PowerCut};
use env::Env;
use futures_util::future::{join, join_all, join3};
use pool::events::Found;
use pool::jobs::Progress;
use pool::{OpenError, UNIT};

use crate::admin::admin;
use crate::chaos::{a_cut, bring_back, chaos, plug, pull, resync};
use crate::load::{flush, read_all, user};
use crate::model::Value;
use crate::rig::{DISK_BYTES, Random, Rig, SLOW, Site, USED, WILD, look, open};
use crate::slow::slow;

pub struct End {
    pub images: Vec<Image>,
    /// Whether the cut that was asked for happened.
    pub cut: bool,
}

/// One seed. With `event`: one short life, cut off there, without other mishaps.
pub async fn run(seed: u64, event: Option<u64>) -> End {
    let mut random = Random(seed ^ 0x77);
    let (rig, mut site) = Rig::new(seed).await;
    let (lives, steps) = if event.is_some() { (1, 6) } else { (2 + random.below(4), 30) };
    let mut old: Vec<Image> = Vec::new();
    let mut cut = false;
    for life in 0..lives {
        if let Some(event) = event {
            rig.machine.cut_at(rig.machine.events() + event, a_cut(&mut random));
        } else if random.one_in(2) {
            rig.machine.cut_at(rig.machine.events() + random.below(400), a_cut(&mut random));
        }
        rig.note(|| format!("life {life}"));
        let users = 1 + random.below(3);
        let users =
            join_all((0..users).map(|_| user(&rig, &site, steps, Random(random.next()))).collect::<Vec<_>>());
        let mishaps = if event.is_some() { 0 } else { random.below(12) };
        // Some seeds only, with chance of its own, so that the others stay what they were.
        let chores = if event.is_none() && seed % WILD < SLOW && seed / 10 % 3 == 2 { 6 } else { 0 };
        let chores = admin(&rig, &site, chores, Random(seed ^ 0xad ^ life << 32));
        let slow = slow(&rig, if event.is_none() { 3 } else { 0 }, Random(seed ^ 0x510e ^ life << 32));
        join(join3(users, chaos(&rig, &site, mishaps, Random(random.next())), chores), slow).await;
        cut = !rig.machine.is_on();
        ends(&rig, site, &mut random).await;
        if rig.ruined.get() {
            return end(&rig, cut);
        }
        if event.is_none() {
            between(&rig, &mut old, &mut random).await;
        }
        if seed.is_multiple_of(3) && rig.liars.borrow().is_empty() {
            looks(&rig, life).await;
        }
        site = opens(&rig, &mut random).await;
        if random.one_in(2) || !rig.liars.borrow().is_empty() {
            read_all(&rig, &site).await;
        }
        cleanse(&rig, &site).await;
    }
    at_last(&rig, &site).await;
    end(&rig, cut)
}

fn end(rig: &Rig, cut: bool) -> End {
    End { images: (0..rig.machine.slots()).map(|n| rig.machine.image(SlotId(n))).collect(), cut }
}

/// The end of a life: a power cut, an export, or the process just ends.
async fn ends(rig: &Rig, site: Site, random: &mut Random) {
    for n in 0..rig.machine.slots() {
        rig.machine.no_rules(SlotId(n));
    }
    let was_on = rig.machine.is_on();
    if was_on {
        match random.below(4) {
            0 => {
                rig.note(|| "export".into());
                flush(rig, &site).await;
                let quiet = site.path.quiesce().await.is_ok() && site.pool.export().await.is_ok();
                if !quiet && rig.is_strict() {
                    rig.fail("export");
                }
            }
            1 => rig.note(|| "the process ends".into()),
            _ => {
                let cut = a_cut(random);
                rig.note(|| format!("the power goes, {cut:?}"));
                rig.machine.cut(cut);
            }
        }
    }
    // Without power no server has any disk, and that counts too.
    let excused = rig.exceeded.get() || rig.model.borrow().is_open();
    if site.path.events.count(Found::Lost) > 0 && !excused && was_on {
        let lost: Vec<_> = site.path.events.newest().into_iter().filter(|f| f.found == Found::Lost).collect();
        rig.fail(&format!("units were called lost: {lost:?}"));
    }
    // A disk that returns and missed a write is behind, and no other may fail meanwhile.
    rig.look(&site);
    drop(site);
    rig.machine.restart();
    rig.sluggish.borrow_mut().clear();
    rig.returned.borrow_mut().clear();
    let lying = !rig.liars.borrow().is_empty();
    rig.model.borrow_mut().crashed(lying);
}

/// While the pool is closed: disks disappear, appear, and turn out to be old.
async fn between(rig: &Rig, old: &mut Vec<Image>, random: &mut Random) {
    if rig.exceeded.get() {
        return;
    }
    for n in 0..rig.machine.slots() {
        if !rig.has_budget(n) || rig.shape.promise() == 0 {
            continue;
        }
        if random.one_in(6) && !rig.pulled.borrow().contains(&n) {
            pull(rig, n, PowerCut::KeepAll);
        } else if random.one_in(6)
            && rig.is_wild()
            && let Some(image) = old.get(n)
        {
            rig.note(|| format!("disk {n} is as it was"));
            rig.liars.borrow_mut().insert(n);
            rig.spoil(n);
            rig.machine.roll_back(SlotId(n), image, 0, DISK_BYTES);
        }
    }
    if old.is_empty() || random.one_in(3) {
        *old = (0..rig.machine.slots()).map(|n| rig.machine.image(SlotId(n))).collect();
    }
    // Those that are behind, alone: refused, or right.
    let bad = rig.bad.borrow().clone();
    if !bad.is_empty() && rig.liars.borrow().is_empty() && random.one_in(4) {
        rig.note(|| format!("only {bad:?}"));
        let moment = now(rig);
        let alone = moment.cut(&Env::simulated(random.next()), PowerCut::KeepAll);
        for n in 0..alone.slots() {
            match bad.contains(&n) {
                true => alone.plug(SlotId(n)),
                false => alone.pull(SlotId(n), PowerCut::KeepAll),
            }
        }
        if let Ok(site) = open(&rig.env, &alone, false).await {
            let strict = rig.exceeded.replace(true);
            read_all(rig, &site).await;
            rig.exceeded.set(strict);
        }
    }
    for n in bad {
        if rig.pulled.borrow().contains(&n) && random.one_in(2) {
            plug(rig, n);
        }
    }
}

/// Opens it for reading only: reads return what the next opening may find, and the disks do not change. On a
/// machine of its own, so that the seed's history continues unchanged.
async fn looks(rig: &Rig, life: u64) {
    let env = Env::simulated(rig.seed ^ life << 32);
    let machine = now(rig).cut(&env, PowerCut::KeepAll);
    rig.pulled.borrow().iter().for_each(|n| machine.pull(SlotId(*n), PowerCut::KeepAll));
    let images = || (0..machine.slots()).map(|n| machine.image(SlotId(n))).collect::<Vec<_>>();
    let before = images();
    rig.note(|| "a look".into());
    match look(&env, &machine).await {
        Ok(site) => {
            for row in 0..rig.shape.rows {
                let first = row * rig.shape.row_units();
                let began = rig.model.borrow_mut().now();
                let found = match site.read(first, USED).await {
                    Ok(found) => found,
                    Err(_) if rig.exceeded.get() => continue,
                    Err(e) if rig.excuses(&e) => return,
                    Err(e) => rig.fail(&format!("a look at unit {first}: {e}")),
                };
                for (unit, value) in (first..).zip(found) {
                    let seen = rig.model.borrow_mut().read(unit, value, began, false);
                    seen.unwrap_or_else(|what| rig.fail(&format!("a look: {what}")));
                }
            }
            let refused = site.write(0, &[1], false).await;
            assert!(matches!(refused, Err(DiskError::ReadOnly { .. })), "{refused:?}");
        }
        // The next opening says whether it is right that it cannot be opened.
        Err(e) if rig.bad.borrow().is_empty() && !rig.exceeded.get() => rig.fail(&format!("a look: {e}")),
        Err(_) => {}
    }
    assert!(before == images(), "seed {}: a look has changed the disks", rig.seed);
}

fn now(rig: &Rig) -> disk::sim::Moment {
    rig.machine.record();
    rig.machine.recorded().pop().expect("one for now")
}

/// The next life. What is too few to be sure of is accepted only if all that are missing are known to be behind, apart
/// from a record that was not acknowledged; then the loss of what such a disk has is accepted when it is back, too.
async fn opens(rig: &Rig, random: &mut Random) -> Site {
    if rig.exceeded.get() {
        let pulled: Vec<usize> = rig.pulled.borrow().iter().copied().collect();
        pulled.into_iter().for_each(|n| plug(rig, n));
    }
    let mut tries = 0;
    let site = loop {
        let accept = tries > 0;
        match open(&rig.env, &rig.machine, accept).await {
            Ok(site) => {
                if accept {
                    rig.given_up.borrow_mut().extend(rig.pulled.borrow().iter());
                }
                break site;
            }
            Err(e) => {
                rig.note(|| format!("opening, loss accepted: {accept}: {e}"));
                let here = rig.bad.borrow().is_empty();
                let whole = rig.pulled.borrow().is_empty() && rig.liars.borrow().is_empty();
                let few = matches!(e, OpenError::TooFewVoters { .. } | OpenError::NoMetadata { .. });
                // A power cut in a commit may have left its record, which was not acknowledged, on such a disk only.
                let given_up = rig.given_up.borrow();
                let is_given_up = |disk: &pool::DiskNumber| given_up.contains(&usize::from(disk.0));
                let ahead = matches!(&e, OpenError::Diverged(disks) if disks.iter().all(is_given_up));
                if tries > 2 || !ahead && (here || whole || !few) {
                    rig.fail(&format!("opening: {e}"));
                }
                if random.one_in(2) {
                    let pulled: Vec<usize> = rig.pulled.borrow().iter().copied().collect();
                    pulled.into_iter().for_each(|n| plug(rig, n));
                }
                tries += 1;
            }
        }
    };
    rig.note(|| "opened".into());
    rig.rebuilds.set(rig.shape.parity > 0);
    rig.look(&site);
    if rig.bad.borrow().len() > rig.shape.promise() {
        // What was one too many is behind, too: it gets what it missed before anything else happens.
        rig.exceeded.set(true);
        let bad: Vec<usize> = rig.bad.borrow().iter().copied().collect();
        for n in bad {
            bring_back(rig, &site, n).await;
        }
        resync(rig, &site).await;
    }
    rig.exceeded.set(rig.ruined.get() || rig.bad.borrow().len() > rig.shape.promise());
    site
}

/// After a lie everything is read and compared before the next disk may go.
async fn cleanse(rig: &Rig, site: &Site) {
    if rig.liars.borrow().is_empty() {
        return;
    }
    let liars: Vec<usize> = rig.liars.borrow().iter().copied().collect();
    for n in liars.into_iter().filter(|n| !rig.pulled.borrow().contains(n)) {
        if !site.pool.read(|s| s.is_present(pool::DiskNumber(n as u16))) {
            bring_back(rig, site, n).await;
        }
    }
    resync(rig, site).await;
    if let (Err(e), false) = (site.pool.scrub_metadata().await, rig.ruined.get()) {
        rig.fail(&format!("scrub of the metadata: {e}"));
    }
    if let (Err(e), false) = (site.space.scrub(&Progress::default()).await, rig.ruined.get()) {
        rig.fail(&format!("scrub: {e}"));
    }
    flush(rig, site).await;
    if rig.ruined.get() {
        // A disk that may have the only copy of something, and was put back to an older state, stays away:
        // what it had cannot be read.
        return;
    }
    if rig.pulled.borrow().is_empty() {
        rig.liars.borrow_mut().clear();
        for (unit, value) in values(rig, site, "after the scrub").await {
            rig.model.borrow_mut().settled(unit, value);
        }
    }
    rig.look(site);
}

async fn values(rig: &Rig, site: &Site, what: &str) -> Vec<(u64, Value)> {
    let mut all = Vec::new();
    for row in 0..rig.shape.rows {
        let first = row * rig.shape.row_units();
        match site.read(first, USED).await {
            Ok(values) => all.extend((first..).zip(values)),
            Err(e) if rig.excuses(&e) => return Vec::new(),
            Err(e) => {
                let row =
                    site.pool.read(|s| s.rows.get(&(site.space.id(), pool::RowNumber(row as u32))).cloned());
                rig.fail(&format!("{what}: unit {first}: {e}; {row:x?}"))
            }
        }
    }
    all
}

/// All disks are there, well and up to date; then all but as many as it needs are not.
async fn at_last(rig: &Rig, site: &Site) {
    rig.note(|| "at last".into());
    let bad: Vec<usize> = rig.bad.borrow().iter().copied().collect();
    for n in bad {
        bring_back(rig, site, n).await;
    }
    cleanse(rig, site).await;
    if rig.ruined.get() {
        return;
    }
    resync(rig, site).await;
    if !rig.bad.borrow().is_empty() || !rig.liars.borrow().is_empty() {
        rig.fail(&format!("disks {:?} are still behind", rig.bad.borrow()));
    }
    let behind = site.pool.read(|s| {
        let rows = s.rows.iter().flat_map(|(row, r)| r.slabs.iter().map(move |c| (row.1, *c)));
        rows.filter(|(_, c)| c.missed != 0).collect::<Vec<_>>()
    });
    if !behind.is_empty() {
        rig.fail(&format!("still behind: {behind:x?}"));
    }
    if site.pool.read(|s| s.moves().count()) != 0 {
        rig.fail("slabs that neither move nor stay");
    }
    read_all(rig, site).await;
    flush(rig, site).await;
    let first = values(rig, site, "at last").await;
    if rig.ruined.get() {
        return;
    }
    assert_eq!(first.len() as u64, rig.shape.rows * USED);
    if site.path.quiesce().await.is_err() {
        rig.fail("it does not become quiet");
    }
    rig.note(|| votes(site));
    let slots = rig.machine.slots();
    for last in 0..slots {
        let here = |n: usize| (n + slots - last) % slots >= rig.shape.promise();
        let alone = now(rig).cut(&Env::simulated(rig.seed), PowerCut::LoseAll);
        (0..slots).filter(|n| !here(*n)).for_each(|n| alone.pull(SlotId(n), PowerCut::LoseAll));
        let what = format!("with disks {:?} only", (0..slots).filter(|n| here(*n)).collect::<Vec<_>>());
        let site = match open(&rig.env, &alone, true).await {
            Ok(site) => site,
            Err(e) => rig.fail(&format!("{what}: {e}")),
        };
        rig.note(|| format!("{what}: {}", votes(&site)));
        let found = values(rig, &site, &what).await;
        if let Some((a, b)) = first.iter().zip(&found).find(|(a, b)| a != b) {
            rig.fail(&format!("{what}: unit {} ({} KiB) is {}, was {}", a.0, a.0 * UNIT / 1024, b.1, a.1));
        }
    }
}

fn votes(site: &Site) -> String {
    let disks = |s: &pool::State| s.disks.iter().map(|(d, r)| (d.0, r.presence)).collect::<Vec<_>>();
    site.pool.read(|s| format!("voters {:?}, disks {:?}", s.voters, disks(s)))
}
