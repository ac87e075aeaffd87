//! Spaces on a pool: disks that leave and return, power cuts, lost messages.

mod crashes;
mod disks;
mod histories;
mod jobs;
mod messages;
mod rounds;
mod slow;
mod supervision;
mod threads;
