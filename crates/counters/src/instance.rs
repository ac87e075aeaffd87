//! Instances: the counters of one share, session, connection or provider.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::block::add_values;
use crate::io::{Histogram, IoSource, IoSums, IoTally};
use crate::{Block, Cell, Set, Values};

/// One instance of a set.
pub struct Instance {
    name: String,
    /// Values of [`Set::labels`], in their order.
    labels: Vec<String>,
    /// Not listed, but still part of the sums.
    unlisted: AtomicBool,
    /// Cells that any thread may change; changes are rare.
    shared: Block,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    live: Vec<Arc<Block>>,
    io: IoMembers,
    /// The sums of blocks that have left.
    departed: DepartedSums,
}

/// The disks of an instance, the sums of disks that have left, and values counted elsewhere.
#[derive(Default)]
struct IoMembers {
    live: Vec<Arc<IoTally>>,
    departed: IoSums,
    source: Option<Source>,
}

type Source = Box<dyn Fn() -> IoSource + Send + Sync>;

/// The description of a disk instance: its name, labels and disks.
pub struct IoInstance {
    /// Its name.
    pub name: String,
    /// Values of [`Set::labels`].
    pub labels: Vec<String>,
    /// The disks.
    pub tallies: Vec<Arc<IoTally>>,
    /// Called by readers for values counted elsewhere.
    pub source: Source,
}

struct DepartedSums(Values);

impl Default for DepartedSums {
    fn default() -> DepartedSums {
        DepartedSums([0; crate::CELLS])
    }
}

impl Instance {
    fn new(name: String, labels: Vec<String>) -> Instance {
        let unlisted = AtomicBool::new(false);
        Instance { name, labels, unlisted, shared: Block::default(), members: Mutex::default() }
    }

    /// The instance name as Windows shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Values of [`Set::labels`], in their order.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Removes it from lists until [`Instances::permanent`] returns it again; its counts stay, also in sums.
    pub fn unlist(&self) {
        self.unlisted.store(true, Ordering::Relaxed);
    }

    /// Adds `block` to this instance, including its earlier counts.
    pub fn join(&self, block: &Arc<Block>) {
        self.members.lock().live.push(Arc::clone(block));
    }

    /// Removes `block`; its counts remain in the sum.
    pub fn leave(&self, block: &Arc<Block>) {
        let mut members = self.members.lock();
        if let Some(at) = members.live.iter().position(|b| Arc::ptr_eq(b, block)) {
            let gone = members.live.swap_remove(at);
            add_values(&mut members.departed.0, &gone.values());
        }
    }

    /// Adds to a cell of the instance itself, from any thread.
    pub fn add(&self, cell: Cell, n: u64) {
        self.shared.add_shared(cell, n);
    }

    /// Subtracts from a cell of the instance itself, from any thread.
    pub fn sub(&self, cell: Cell, n: u64) {
        self.shared.sub_shared(cell, n);
    }

    /// The current sums.
    pub fn values(&self) -> Values {
        let members = self.members.lock();
        let mut sum = members.departed.0;
        members.live.iter().for_each(|b| add_values(&mut sum, &b.values()));
        add_values(&mut sum, &self.shared.values());
        sum
    }

    /// The current sums of the disks, with the histograms of reads, writes and flushes.
    pub(crate) fn io(&self) -> (Values, [Histogram; 3]) {
        let members = self.members.lock();
        let mut sum = members.io.departed;
        members.io.live.iter().for_each(|t| sum.add(&t.sums()));
        let source = members.io.source.as_ref().map(|s| s()).unwrap_or_default();
        let whole = sum.whole(source);
        (whole.values, whole.latencies)
    }

    /// Replaces the disks of the instance; their earlier counts are included.
    fn take_io(&self, tallies: Vec<Arc<IoTally>>, source: Source) {
        let mut members = self.members.lock();
        let io = &mut members.io;
        let gone = std::mem::replace(&mut io.live, tallies);
        for tally in gone.iter().filter(|g| !io.live.iter().any(|l| Arc::ptr_eq(l, g))) {
            io.departed.add(&tally.sums());
        }
        io.source = Some(source);
    }
}

/// All instances of one set.
pub struct Instances {
    set: &'static Set,
    list: Mutex<BTreeMap<String, Arc<Instance>>>,
}

/// Removes its instance on drop.
pub struct InstanceGuard {
    instances: Arc<Instances>,
    instance: Arc<Instance>,
}

impl Instances {
    pub(crate) fn new(set: &'static Set) -> Instances {
        Instances { set, list: Mutex::default() }
    }

    /// The set of these instances.
    pub fn set(&self) -> &'static Set {
        self.set
    }

    /// Returns the instance with this name; creates it if needed. It is never removed. `labels` are the
    /// values of [`Set::labels`].
    pub fn permanent(&self, name: &str, labels: &[&str]) -> Arc<Instance> {
        let mut list = self.list.lock();
        if let Some(i) = list.get(name) {
            i.unlisted.store(false, Ordering::Relaxed);
            return Arc::clone(i);
        }
        let labels = labels.iter().map(|l| (*l).to_owned()).collect();
        let instance = Arc::new(Instance::new(name.to_owned(), labels));
        list.insert(name.to_owned(), Arc::clone(&instance));
        instance
    }

    /// Creates an instance that is removed when the returned value is dropped. If the name exists, `#1` and
    /// so on is appended, as in Windows.
    pub fn open(self: &Arc<Self>, name: &str, labels: &[&str]) -> InstanceGuard {
        let mut list = self.list.lock();
        let free = (1..).map(|n| format!("{name}#{n}"));
        let name = std::iter::once(name.to_owned()).chain(free).find(|n| !list.contains_key(n));
        let name = name.unwrap_or_default(); // a free name always exists
        let labels = labels.iter().map(|l| (*l).to_owned()).collect();
        let instance = Arc::new(Instance::new(name.clone(), labels));
        list.insert(name, Arc::clone(&instance));
        InstanceGuard { instances: Arc::clone(self), instance }
    }

    /// Replaces the set of disk instances. An instance with an unchanged name and labels continues.
    pub fn replace_io(&self, wanted: Vec<IoInstance>) {
        let mut list = self.list.lock();
        list.retain(|name, i| wanted.iter().any(|w| w.name == *name && w.labels == i.labels));
        for IoInstance { name, labels, tallies, source } in wanted {
            let new = || Arc::new(Instance::new(name.clone(), labels));
            list.entry(name.clone()).or_insert_with(new).take_io(tallies, source);
        }
    }

    /// The sums of all instances, listed or not.
    pub(crate) fn sum(&self) -> Values {
        let mut sum = [0; crate::CELLS];
        let all: Vec<_> = self.list.lock().values().cloned().collect();
        all.iter().for_each(|i| add_values(&mut sum, &i.values()));
        sum
    }

    /// All instances by name, without those that [`Instance::unlist`] removed.
    pub fn list(&self) -> Vec<Arc<Instance>> {
        let list = self.list.lock();
        list.values().filter(|i| !i.unlisted.load(Ordering::Relaxed)).cloned().collect()
    }
}

impl InstanceGuard {
    /// The instance.
    pub fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }
}

impl Drop for InstanceGuard {
    fn drop(&mut self) {
        self.instances.list.lock().remove(&self.instance.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::SETS;

    const CELL: Cell = Cell(3);

    #[test]
    fn departed_blocks_are_counted_exactly_once() {
        let instances = Instances::new(SETS[0]);
        let share = instances.permanent("files", &["files"]);
        let blocks: Vec<Arc<Block>> = (0..3).map(|_| Arc::default()).collect();
        for (i, b) in blocks.iter().enumerate() {
            share.join(b);
            b.add(CELL, 10 + i as u64);
        }
        share.add(CELL, 5);
        assert_eq!(share.values()[3], 38);
        for b in &blocks {
            share.leave(b);
            share.leave(b);
            assert_eq!(share.values()[3], 38);
        }
        assert_eq!(instances.permanent("files", &["files"]).values()[3], 38, "it is the same instance");
        share.sub(CELL, 1);
        assert_eq!(share.values()[3], 37);
    }

    #[test]
    fn an_unlisted_instance_counts_in_the_sum_and_is_listed_again_under_its_name() {
        let instances = Instances::new(SETS[0]);
        let share = instances.permanent("files", &["files"]);
        share.add(CELL, 5);
        share.unlist();
        assert!(instances.list().is_empty());
        assert_eq!(instances.sum()[3], 5);
        instances.permanent("files", &["files"]).add(CELL, 1);
        assert_eq!(instances.list().iter().map(|i| i.values()[3]).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn disks_that_leave_an_instance_still_count_and_other_instances_go() {
        let env = env::Env::simulated(1);
        let instances = Instances::new(&crate::sets::io::POOLS);
        let [a, b] = [(); 2].map(|()| IoTally::new(&env));
        let wanted = |name: &str, tallies: &[&Arc<IoTally>]| IoInstance {
            name: name.to_owned(),
            labels: vec![name.to_owned()],
            tallies: tallies.iter().map(|t| Arc::clone(t)).collect(),
            source: Box::new(IoSource::default),
        };
        let reads = |tally: &Arc<IoTally>, n| (0..n).for_each(|_| tally.begin(crate::IoKind::Read).done(1));
        let counted = || {
            let list = instances.list();
            let reads = |i: &Arc<Instance>| crate::io::ended(&i.io().0, crate::IoKind::Read);
            list.iter().map(|i| (i.name().to_owned(), reads(i))).collect::<Vec<_>>()
        };
        reads(&a, 2);
        instances.replace_io(vec![wanted("tank", &[&a, &b]), wanted("lake", &[])]);
        reads(&b, 3);
        assert_eq!(counted(), [("lake".to_owned(), 0), ("tank".to_owned(), 5)]);
        instances.replace_io(vec![wanted("tank", &[&a])]);
        instances.replace_io(vec![wanted("tank", &[&a])]);
        reads(&a, 1);
        assert_eq!(counted(), [("tank".to_owned(), 6)]);
    }

    #[test]
    fn passing_instances_go_and_names_do_not_clash() {
        let instances = Arc::new(Instances::new(SETS[0]));
        let names = || instances.list().iter().map(|i| i.name().to_owned()).collect::<Vec<_>>();
        let (a, b) = (instances.open("x", &["1"]), instances.open("x", &["2"]));
        assert_eq!(names(), ["x", "x#1"]);
        drop(a);
        let c = instances.open("x", &["3"]);
        assert_eq!((names(), c.instance().labels()), (vec!["x".into(), "x#1".into()], &["3".to_owned()][..]));
        drop((b, c));
        assert!(names().is_empty());
    }
}
