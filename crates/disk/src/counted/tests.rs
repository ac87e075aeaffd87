use std::time::Duration;

use arena::{Arena, IoBuf};
use counters::{IoInstance, IoSource, PHYSICAL_DISKS, Registry};
use env::Env;

use super::*;
use crate::conformance::{CompletionRecorder, bytes, read_now, write_now};
use crate::sim::Machine;
use crate::{IoRange, MemoryDisk, MemoryOptions, Op};

const SIZE: u64 = 4 << 20;

/// Over a disk that completes immediately and one that does not, by futures and by callbacks; no I/O stays
/// outstanding.
#[tokio::test(start_paused = true)]
async fn conforms() {
    let arena = Arena::new(32 << 20).expect("a small mapping");
    let env = Env::simulated(1);
    let tally = IoTally::new(&env);
    for shuffle in [None, Some(Duration::from_millis(5))] {
        crate::conformance::run(&arena, || {
            let machine = Machine::new(&env, 1);
            let slot = machine.add(&MemoryOptions::new("d0", SIZE));
            if let Some(longest) = shuffle {
                machine.shuffle(slot, longest);
            }
            let counted = Counted::new(machine.open(slot).expect("it is there"), Arc::clone(&tally));
            async move { counted as Arc<dyn Disk> }
        })
        .await;
    }
    env.sleep(Duration::from_secs(1)).await;
    let counted = values(&env, &tally);
    assert_eq!(counted("queue_length"), 0);
    assert!(counted("reads") > 100 && counted("errors") > 0);
}

#[tokio::test]
async fn each_io_is_counted_once_in_either_form() {
    let env = Env::simulated(1);
    let tally = IoTally::new(&env);
    let disk = Counted::new(MemoryDisk::new(&MemoryOptions::new("m", SIZE)), Arc::clone(&tally));
    let c = Ctx::default();
    write_now(&*disk, &c, 0, bytes(1, 8192)).expect("written");
    read_now(&*disk, 0, 4096).expect("read");
    disk.flush(&c).wait().await.expect("flushed");
    write_now(&*disk, &c, SIZE, bytes(1, 4096)).expect_err("beyond its end");
    let recorder = Arc::<CompletionRecorder<Written>>::default();
    for (which, offset) in [(0, 4096), (1, SIZE)] {
        let who: Arc<CompletionRecorder<Written>> = Arc::clone(&recorder);
        let then = Callback::new(who, which, IoRange::new(Op::Write, offset, 4096));
        disk.write_then(&c, offset, Sg::from_iter([IoBuf::from(bytes(1, 4096))]), then);
    }
    let who: Arc<CompletionRecorder<Written>> = Arc::clone(&recorder);
    drop(Callback::new(who, 2, IoRange::whole(Op::Write)).counted(tally.begin(IoKind::Write), 4096));
    assert_eq!(recorder.completions.lock().len(), 3);
    let counted = values(&env, &tally);
    let names = ["reads", "writes", "flushes", "read_bytes", "written_bytes", "errors", "queue_length"];
    assert_eq!(names.map(counted), [1, 5, 1, 4096, 12288, 3, 0]);
}

/// The values of a tally, by metric.
fn values(env: &Env, tally: &Arc<IoTally>) -> impl Fn(&str) -> u64 + use<> {
    // Concurrent tests of this program have their own instances.
    let name = format!("{:p}", Arc::as_ptr(tally));
    let wanted = IoInstance {
        name: name.clone(),
        labels: ["p", "0", "/d"].map(str::to_owned).to_vec(),
        tallies: vec![Arc::clone(tally)],
        source: Box::new(IoSource::default),
    };
    static ONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _one = ONE.lock();
    PHYSICAL_DISKS.replace_io(vec![wanted]);
    let snapshot = Registry::new(env.clone()).snapshot();
    let set = counters::find("PhysicalDisk")[0];
    move |metric| snapshot.value(set, &name, metric).expect("a metric")
}
