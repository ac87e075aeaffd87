//! Spaces on a pool: absent and returning disks, power cuts, lost messages.

mod crashes;
mod disks;
mod histories;
mod jobs;
mod messages;
mod rounds;
mod slow;
mod supervision;
mod threads;
