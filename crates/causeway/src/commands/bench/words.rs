//! Separates Causeway's options (two dashes) from DiskSPD's (one dash, or none).

use clap::Command;

/// Splits a command line. Causeway's options take their value with `=` or as the next word; after `--` every word is a
/// target.
pub(super) fn split(words: Vec<String>, ours: &Command) -> (Vec<String>, Vec<String>) {
    let (mut own, mut rest) = (Vec::new(), Vec::new());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--" {
            rest.extend(words.by_ref());
        } else if let Some(name) = word.strip_prefix("--") {
            let takes = !name.contains('=') && takes_value(ours, name);
            own.push(word);
            if takes {
                own.extend(words.next());
            }
        } else {
            rest.push(word);
        }
    }
    (own, rest)
}

fn takes_value(ours: &Command, name: &str) -> bool {
    ours.get_arguments().any(|a| a.get_long() == Some(name) && a.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn both_kinds_in_any_order() {
        let ours = Command::new("x")
            .arg(Arg::new("pid").long("pid"))
            .arg(Arg::new("verify").long("verify").action(clap::ArgAction::SetTrue));
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (own, rest) = split(words("-b4K --pid 7 -d1 --verify --pid=8 file -- --odd -x"), &ours);
        assert_eq!(own, words("--pid 7 --verify --pid=8"));
        assert_eq!(rest, words("-b4K -d1 file --odd -x"));
        let (own, rest) = split(words("--pid"), &ours);
        assert_eq!((own.len(), rest.len()), (1, 0));
    }
}
