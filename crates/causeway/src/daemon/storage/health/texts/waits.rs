//! Texts for disks that a job fills or empties: what the job waits for, and the command that helps.

use pool::Usage;
use pool::health::FaultObject;
use pool::jobs::{DelayReason, JobState, Kind, Subject};

use super::{FaultTexts, number_of};
use crate::output::{human_bytes, quoted};

const JOBS: &str = "causeway job list";

impl FaultTexts<'_> {
    /// The texts for a disk that still has data and is retired or to be removed.
    pub(super) fn retired_or_removed(
        &self,
        bytes: u64,
        waits: Option<&DelayReason>,
        object: &FaultObject,
    ) -> (&'static str, String, Vec<String>) {
        let what = human_bytes(bytes);
        let (pool, number) = (quoted(&self.state.name), number_of(object));
        let removed = self.is_being_removed(object);
        let begin = match removed {
            true => format!("causeway pool remove-disk {pool} {number}"),
            false => format!("causeway disk retire {pool}/{number}"),
        };
        let (text, action) = match waits {
            None => {
                (format!(": {what} are being moved to other disks; no action is needed"), JOBS.to_owned())
            }
            Some(why) => {
                let (text, action) =
                    self.waits(why, self.job(Kind::Drain, object), "no job is running", begin);
                (format!(", and {what} are not being moved to other disks: {text}"), action)
            }
        };
        let what = if removed { "It is to be removed from the pool" } else { "It is retired" };
        ("PhysicalDisk.Retired", format!("{what}{text}"), vec![action])
    }

    /// The texts for an empty disk that is retired or to be removed.
    pub(super) fn empty(&self, object: &FaultObject) -> (&'static str, String, Vec<String>) {
        let (pool, number) = (quoted(&self.state.name), number_of(object));
        let remove = format!("causeway pool remove-disk {pool} {number}");
        let text = "It is retired and empty. Remove it from the pool, or use it again";
        let (text, actions) = match self.is_being_removed(object) {
            true => ("It is to be removed from the pool, and is empty", vec![remove]),
            false => (text, vec![remove, format!("causeway disk set {pool}/{number} --usage auto-select")]),
        };
        ("PhysicalDisk.Retired", text.to_owned(), actions)
    }

    /// Whether a disk is to be removed from the pool, not only emptied.
    fn is_being_removed(&self, object: &FaultObject) -> bool {
        let FaultObject::Disk(disk) = object else { return false };
        self.state.disks.get(disk).is_some_and(|r| r.usage == Usage::Leaving)
    }

    /// The texts for a disk that has missed writes.
    pub(super) fn stale_disk(
        &self,
        bytes: u64,
        waits: Option<&DelayReason>,
        object: &FaultObject,
    ) -> (&'static str, String, Vec<String>) {
        let what = format!("{} of missed writes are", human_bytes(bytes));
        let (text, actions) = match waits {
            None => (format!("{what} being copied to it; no action is needed"), vec![JOBS.to_owned()]),
            Some(why) => {
                let job = self.job(Kind::Resync, object);
                let (text, action) = self.waits(why, job, "no job copies them", JOBS.to_owned());
                let away = matches!(why, DelayReason::DisksAbsent(_));
                let actions = if away { self.return_commands() } else { vec![action] };
                (format!("{what} not being copied to it: {text}"), actions)
            }
        };
        ("PhysicalDisk.Resyncing", text, actions)
    }

    /// Why the job waits, and the command that helps; without a job, returns `none` and `begin`.
    fn waits(
        &self,
        why: &DelayReason,
        job: Option<&JobState>,
        none: &str,
        begin: String,
    ) -> (String, String) {
        match (why, job) {
            (_, None) => (none.to_owned(), begin),
            (DelayReason::Paused, Some(job)) => {
                ("its job is paused".to_owned(), format!("causeway job resume {}", job.id.0))
            }
            (why, Some(_)) => (why.to_string(), JOBS.to_owned()),
        }
    }

    /// The job of a kind for a disk.
    fn job(&self, kind: Kind, object: &FaultObject) -> Option<&JobState> {
        let FaultObject::Disk(disk) = object else { return None };
        self.jobs.iter().find(|j| j.kind == kind && j.subject == Subject::Disk(*disk))
    }
}
