//! The server as a whole, in one process: memory, channels, replay from a seed, beginnings and ends.

mod binding;
mod budget;
mod compound;
mod counters;
mod folder;
mod inline;
mod lifecycle;
mod logons;
mod persistent;
mod piped;
mod raw;
mod replay;
mod sequence;
mod slow;
mod stalling;
mod threads;
mod unbuffered;
mod world;
