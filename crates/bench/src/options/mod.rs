//! Command lines: DiskSPD's ([`parse`]) and SQLIO's ([`sqlio::parse`]), and DiskSPD's XML profiles ([`xml`]).
//!
//! **What it is.** Pure functions from arguments to a [`Profile`]. External facts are passed in as [`World`]:
//! how to read a file and the value of `-z` without a number. Options that DiskSPD refuses are refused with
//! the valid form; options that it accepts without effect cause a warning.
//!
//! **What differs.** A number with letters after it is refused where DiskSPD takes the number (`-t4x`). Options that
//! exist only in Windows (events, ETW, drive letters) are refused with what does the same here. `-x` is accepted:
//! I/O completes in one way here. `/` does not begin an option: it begins a path. `-Rjson` is ours.

mod affinity;
mod cache;
mod diskspd;
mod distribution;
mod sample;
mod size;
pub mod sqlio;
mod validate;
pub mod xml;

use std::io;

use thiserror::Error;

use crate::profile::Profile;

pub use sample::USAGE;
pub use validate::{OUTSTANDING_MAX, validate};

/// The external facts for a command line.
pub struct World<'a> {
    /// Reads a file (`-X`, SQLIO's `-F`).
    pub read: &'a dyn Fn(&str) -> io::Result<String>,
    /// The seed for `-z` without one.
    pub seed: u32,
}

/// A command line understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The run.
    pub profile: Profile,
    /// Accepted options with little or no effect.
    pub warnings: Vec<String>,
    /// How words of another tool were taken.
    pub mappings: Vec<String>,
}

/// Why a command line is refused.
#[derive(Debug, Error)]
pub enum OptionError {
    /// A value that cannot be understood.
    #[error("{option}{value}: {why}")]
    Value {
        /// The option.
        option: String,
        /// The text after it.
        value: String,
        /// The problem, and the valid form.
        why: &'static str,
    },
    /// A number out of range.
    #[error("{option}{value}: write a number from {least} to {most}")]
    Range {
        /// The option.
        option: String,
        /// The text after it.
        value: String,
        /// The smallest.
        least: u32,
        /// The largest.
        most: u32,
    },
    /// No such option.
    #[error(
        "{0}: there is no such option; -? lists all options; write a path that begins with a dash as ./-name"
    )]
    Unknown(String),
    /// An option after a target.
    #[error("{0}: write options before the targets")]
    AfterTarget(String),
    /// Something of Windows.
    #[error("{option}: {why}")]
    NotHere {
        /// It.
        option: String,
        /// Why not, and what does the same.
        why: &'static str,
    },
    /// Options that do not go together.
    #[error("{0}")]
    Conflict(&'static str),
    /// An option that does not go with `-X`.
    #[error(
        "{0}: an XML profile (-X) contains this setting; only -W -d -C -R -v -z and targets can be combined with it"
    )]
    WithXml(String),
    /// No target.
    #[error(
        "name at least one target: a file, a block device, \\\\server\\share\\path or smb://server/share/path"
    )]
    NoTarget,
    /// A path of Windows.
    #[error("{path}: {why}")]
    Path {
        /// It.
        path: String,
        /// The valid form.
        why: &'static str,
    },
    /// A distribution (`-rd`) that does not add up.
    #[error("-rd: {0}")]
    Distribution(String),
    /// A template without a path.
    #[error("target {0} is a template: name the path for it after the options")]
    Template(String),
    /// A write buffer smaller than a block.
    #[error("-Z: the write buffer of {buffer} bytes is smaller than a block of {block} bytes")]
    WriteBuffer {
        /// Bytes of the buffer.
        buffer: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// More than a run may have.
    #[error("{what}: {value} exceeds the limit of {most}")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How much was asked.
        value: u64,
        /// How much there may be.
        most: u64,
    },
    /// A file that could not be read.
    #[error("{path}: {source}")]
    Read {
        /// It.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A profile that is none.
    #[error("{path}: {source}")]
    Xml {
        /// The file.
        path: String,
        /// Why.
        source: xml::XmlError,
    },
    /// A line of SQLIO's parameter file.
    #[error("{path}, line {line}: {why}")]
    ParameterFile {
        /// The file.
        path: String,
        /// From 1.
        line: usize,
        /// The problem, and the valid form.
        why: &'static str,
    },
}

/// Understands a command line of DiskSPD, without the program's name.
///
/// # Errors
/// See [`OptionError`].
pub fn parse(args: &[String], world: &World<'_>) -> Result<Parsed, OptionError> {
    let mut parsed = diskspd::parse(args, world)?;
    parsed.profile.command_line = args.join(" ");
    parsed.warnings.extend(validate(&parsed.profile)?);
    Ok(parsed)
}

#[cfg(test)]
mod tests;
