//! `-S`: the caches that I/O may use, collected over the whole command line to detect contradictions.

use super::OptionError;
use crate::profile::{CacheMode, Target};

/// The combined effect of `-S` and `-h` so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CacheFlags {
    mode: Option<CacheMode>,
    write_through: bool,
    mapped: bool,
}

impl CacheFlags {
    /// Processes `-S<letters>`.
    pub(super) fn add(&mut self, letters: &str) -> Result<(), OptionError> {
        // Bare -S is -Su.
        let letters = if letters.is_empty() { "u" } else { letters };
        for letter in letters.chars() {
            match letter {
                'b' => self.mode(
                    CacheMode::Cached,
                    "-Sb: another -S already chooses the cache; keep one of b, r, u, h",
                )?,
                'r' => {
                    self.mode(
                        CacheMode::NoLocalCache,
                        "-Sr: another -S already chooses the cache; keep one of b, r, u, h",
                    )?;
                }
                'u' => {
                    if self.mapped {
                        return Err(OptionError::Conflict(
                            "-Su: a mapping (-Sm) is the cache; leave one out",
                        ));
                    }
                    self.mode(
                        CacheMode::Unbuffered,
                        "-Su: another -S already chooses the cache; keep one of b, r, u, h",
                    )?;
                }
                'h' => self.unbuffered_write_through()?,
                'm' => {
                    if self.mapped {
                        return Err(OptionError::Conflict("-Sm: given twice; leave one out"));
                    }
                    if self.mode == Some(CacheMode::Unbuffered) {
                        return Err(OptionError::Conflict(
                            "-Sm: a mapping is the cache, and -Su or -Sh forbids it; leave one out",
                        ));
                    }
                    self.mapped = true;
                }
                'w' => {
                    if self.write_through {
                        return Err(OptionError::Conflict(
                            "-Sw: write-through is already set (-Sh is -Suw); leave one out",
                        ));
                    }
                    self.write_through = true;
                }
                _ => {
                    return Err(OptionError::Value {
                        option: "-S".to_owned(),
                        value: letters.to_owned(),
                        why: "the letters are b, h, m, r, u, w",
                    });
                }
            }
        }
        Ok(())
    }

    /// Processes `-Sh` or the old `-h`.
    pub(super) fn unbuffered_write_through(&mut self) -> Result<(), OptionError> {
        if self.mode.is_some() || self.write_through || self.mapped {
            return Err(OptionError::Conflict("-Sh is -Suw and contradicts another -S: leave one out"));
        }
        self.mode = Some(CacheMode::Unbuffered);
        self.write_through = true;
        Ok(())
    }

    fn mode(&mut self, mode: CacheMode, conflict: &'static str) -> Result<(), OptionError> {
        if self.mode.replace(mode).is_some() {
            return Err(OptionError::Conflict(conflict));
        }
        Ok(())
    }

    pub(super) fn apply(self, target: &mut Target) {
        target.cache = self.mode.unwrap_or_default();
        target.write_through = self.write_through;
        target.mapped = self.mapped;
    }
}
