//! What each unit may be: now, and after what was not flushed is gone. Naive on purpose.
//!
//! A write that is over is *dead* when one that began after it was acknowledged, or a read has shown another
//! value since: no read that begins then may give it. What was dead when a flush began is *gone* when it has
//! succeeded: no crash brings it back. After a crash the first read decides for ever.

use std::collections::BTreeMap;

/// A unit is known by the number that fills it; 0 is zeros.
pub type Value = u64;

#[derive(Default)]
pub struct Model {
    units: BTreeMap<u64, Unit>,
    clock: u64,
    life: u32,
    next: Value,
}

struct Unit {
    writes: Vec<Write>,
    /// A crash met a write in flight while a disk was lying: nothing is promised (docs, "What this does not give").
    open: bool,
    /// When the last flush began that ended well.
    flushed: u64,
}

struct Write {
    value: Value,
    begin: u64,
    end: u64,
    life: u32,
    dead: Option<u64>,
    gone: bool,
}

/// A write that is under way: a unit, and when it began.
pub struct Token(u64, u64);

/// What was dead when a flush began.
pub struct Flushing(Vec<(u64, u64)>, u64);

impl Default for Unit {
    fn default() -> Unit {
        let zeros = Write { value: 0, begin: 0, end: 0, life: 0, dead: None, gone: false };
        Unit { writes: vec![zeros], open: false, flushed: 0 }
    }
}

impl Model {
    pub fn fresh(&mut self) -> Value {
        self.next += 1;
        self.next
    }

    pub fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub fn begins(&mut self, unit: u64, value: Value) -> Token {
        let (begin, life) = (self.now(), self.life);
        let u = self.units.entry(unit).or_default();
        u.writes.push(Write { value, begin, end: u64::MAX, life, dead: None, gone: false });
        Token(unit, begin)
    }

    /// It is over. `acknowledged`: and it succeeded, which counts; `durable`: it was a write-through one.
    pub fn ended(&mut self, token: &Token, acknowledged: bool, durable: bool) {
        let now = self.now();
        let Some(u) = self.units.get_mut(&token.0) else { return };
        let mine = u.writes.iter_mut().find(|w| w.begin == token.1).expect("it began");
        mine.end = mine.end.min(now);
        if !acknowledged {
            return;
        }
        for w in u.writes.iter_mut().filter(|w| w.end < token.1) {
            w.dead.get_or_insert(now);
            w.gone |= durable;
        }
        if durable && u.open {
            u.writes
                .iter_mut()
                .filter(|w| w.end >= token.1 && w.begin < token.1)
                .for_each(|w| w.gone = false);
            u.open = false;
        }
    }

    pub fn flush_begins(&mut self) -> Flushing {
        let at = self.now();
        let dead = self.units.iter().flat_map(|(n, u)| {
            u.writes.iter().filter(|w| w.dead.is_some() && !w.gone).map(|w| (*n, w.begin))
        });
        Flushing(dead.collect(), at)
    }

    pub fn flushed(&mut self, flushing: &Flushing) {
        for (unit, begin) in &flushing.0 {
            let u = self.units.get_mut(unit).expect("it was there");
            u.writes.iter_mut().filter(|w| w.begin == *begin).for_each(|w| w.gone = true);
        }
        for u in self.units.values_mut() {
            u.flushed = u.flushed.max(flushing.1);
        }
    }

    /// A read that began at `began` gave a value. `counts`: its disk cannot take it back.
    pub fn read(&mut self, unit: u64, value: Value, began: u64, counts: bool) -> Result<(), String> {
        let (now, life) = (self.now(), self.life);
        let u = self.units.entry(unit).or_default();
        if u.open {
            // One that rotted is believed where none matches (the same place).
            return match u.writes.iter().any(|w| w.value == value) || value == Value::MAX {
                true => Ok(()),
                false => Err(format!("unit {unit} is {value}, which was never written")),
            };
        }
        let may = |w: &Write| w.dead.is_none_or(|at| at > began);
        let found: Vec<(u64, u32)> =
            u.writes.iter().filter(|w| w.value == value && may(w)).map(|w| (w.begin, w.life)).collect();
        let Some(&(begin, of)) = found.first() else {
            let allowed: Vec<Value> = u.writes.iter().filter(|w| may(w)).map(|w| w.value).collect();
            let known: Vec<_> =
                u.writes.iter().map(|w| (w.value, w.begin, w.end, w.life, w.dead, w.gone)).collect();
            return Err(format!(
                "unit {unit} is {value}, not one of {allowed:?}; {known:?}, read began {began}"
            ));
        };
        if counts {
            for w in u.writes.iter_mut().filter(|w| w.value != value) {
                if w.end < began || (found.len() == 1 && w.end < begin) {
                    w.dead.get_or_insert(now);
                    // What is older than a crash is durable once it was read.
                    w.gone |= found.len() == 1 && of < life && w.life < life;
                }
            }
        }
        Ok(())
    }

    /// What was not flushed may be gone from the last disk that had it.
    pub fn lost(&mut self) {
        let writes = self.units.values_mut().flat_map(|u| &mut u.writes);
        writes.filter(|w| !w.gone).for_each(|w| w.dead = None);
    }

    /// The machine, or the process, has ended. `lying`: one disk's older contents may pass for what was in flight.
    pub fn crashed(&mut self, lying: bool) {
        let now = self.now();
        self.life += 1;
        for u in self.units.values_mut() {
            // A flush is about what was acknowledged before it began.
            u.open |= lying && u.writes.iter().any(|w| w.end >= u.flushed);
            u.writes.iter_mut().for_each(|w| w.end = w.end.min(now));
        }
        self.lost();
    }

    /// A disk begins to lie: of what was in flight at an earlier crash, and is not decided, it may have the
    /// only copy that anybody can tell from rot.
    pub fn lies(&mut self) {
        let life = self.life;
        for u in self.units.values_mut() {
            let undecided = u.writes.iter().filter(|w| !w.gone && w.life < life).count() > 1;
            u.open |= undecided;
        }
    }

    /// Whether there is a unit of which nothing is promised.
    pub fn is_open(&self) -> bool {
        self.units.values().any(|u| u.open)
    }

    /// Nothing is in doubt any more: what was read is what is.
    pub fn settled(&mut self, unit: u64, value: Value) {
        let (now, life) = (self.now(), self.life);
        let u = self.units.entry(unit).or_default();
        if u.open {
            u.open = false;
            u.flushed = now;
            if !u.writes.iter().any(|w| w.value == value) {
                u.writes.push(Write { value, begin: now, end: now, life, dead: None, gone: false });
            }
            u.writes
                .iter_mut()
                .for_each(|w| (w.gone, w.dead) = (w.value != value, (w.value != value).then_some(0)));
            u.writes.iter_mut().filter(|w| w.value == value).for_each(|w| (w.gone, w.dead) = (false, None));
        }
    }
}
