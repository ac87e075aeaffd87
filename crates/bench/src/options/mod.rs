//! Command lines: DiskSPD's ([`parse`]) and SQLIO's ([`sqlio::parse`]), and DiskSPD's XML profiles ([`xml`]).
//!
//! **What it is.** Pure functions from arguments to a [`Profile`]. [`ParseContext`] passes in external facts:
//! how to read a file, and the seed for `-z` without a number. Options that DiskSPD refuses are refused, and
//! the message shows the valid form; options that it accepts without effect cause a warning.
//!
//! **Differences.** A number followed by letters (`-t4x`) is refused, while DiskSPD uses the number. Options
//! that exist only in Windows (events, ETW, drive letters) are refused, and the message names the equivalent.
//! `-x` is accepted, although all I/O completes in the same way here. `/` begins a path, not an option.
//! `-Rjson` is an extension.

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

/// External facts for parsing a command line.
pub struct ParseContext<'a> {
    /// Reads a file (`-X`, SQLIO's `-F`).
    pub read: &'a dyn Fn(&str) -> io::Result<String>,
    /// The seed for `-z` without a number.
    pub seed: u32,
}

/// A parsed command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The run.
    pub profile: Profile,
    /// Warnings about accepted options with little or no effect.
    pub warnings: Vec<String>,
    /// How options of another tool were translated.
    pub mappings: Vec<String>,
}

/// Why a command line was refused.
#[derive(Debug, Error)]
pub enum OptionError {
    /// An invalid value.
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
    /// An unknown option.
    #[error(
        "{0}: there is no such option; -? lists all options; write a path that begins with a dash as ./-name"
    )]
    Unknown(String),
    /// An option after a target.
    #[error("{0}: write options before the targets")]
    AfterTarget(String),
    /// A feature that exists only in Windows.
    #[error("{option}: {why}")]
    NotHere {
        /// The option.
        option: String,
        /// The reason, and the equivalent.
        why: &'static str,
    },
    /// Contradicting options.
    #[error("{0}")]
    Conflict(&'static str),
    /// An option that is not allowed with `-X`.
    #[error(
        "{0}: an XML profile (-X) contains this setting; only -W -d -C -R -v -z and targets can be combined with it"
    )]
    WithXml(String),
    /// The target is missing.
    #[error(
        "name at least one target: a file, a block device, \\\\server\\share\\path or smb://server/share/path"
    )]
    NoTarget,
    /// A Windows path.
    #[error("{path}: {why}")]
    Path {
        /// The path.
        path: String,
        /// The valid form.
        why: &'static str,
    },
    /// An inconsistent distribution (`-rd`).
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
    /// A value above a limit.
    #[error("{what}: {value} exceeds the limit of {most}")]
    TooMuch {
        /// The limited quantity.
        what: &'static str,
        /// The requested value.
        value: u64,
        /// The limit.
        most: u64,
    },
    /// A file that could not be read.
    #[error("{path}: {source}")]
    Read {
        /// The path.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// An invalid profile.
    #[error("{path}: {source}")]
    Xml {
        /// The file.
        path: String,
        /// The cause.
        source: xml::XmlError,
    },
    /// An invalid line of SQLIO's parameter file.
    #[error("{path}, line {line}: {why}")]
    ParameterFile {
        /// The file.
        path: String,
        /// Line number, from 1.
        line: usize,
        /// The problem, and the valid form.
        why: &'static str,
    },
}

/// Parses a command line of DiskSPD, without the program's name.
///
/// # Errors
/// See [`OptionError`].
pub fn parse(args: &[String], context: &ParseContext<'_>) -> Result<Parsed, OptionError> {
    let mut parsed = diskspd::parse(args, context)?;
    parsed.profile.command_line = args.join(" ");
    parsed.warnings.extend(validate(&parsed.profile)?);
    Ok(parsed)
}

#[cfg(test)]
mod tests;
