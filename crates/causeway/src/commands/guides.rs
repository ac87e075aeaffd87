//! Checks that the commands in the documents exist in this program.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;

use super::Cli;

/// README.md and all of docs/.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).expect("docs").map(|e| e.expect("an entry").path());
    docs.filter(|p| p.extension().is_some_and(|e| e == "md")).chain([root.join("README.md")]).collect()
}

/// The `causeway` commands in a line, each as its words.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut current: Option<Vec<String>> = None;
    for word in shlex::split(line.trim_start_matches("$ ")).unwrap_or_default() {
        let ends = matches!(word.as_str(), "|" | "&&" | "||" | ";" | ">" | "&") || word.starts_with(">");
        if ends {
            found.extend(current.take());
        } else if let Some(words) = &mut current {
            words.push(word);
        } else if word == "causeway" {
            current = Some(vec![word]);
        }
    }
    found.extend(current);
    found
}

/// Whether a command has placeholders or an ellipsis, so that it cannot be checked.
fn is_sketch(words: &[String]) -> bool {
    let is_placeholder = |w: &String| w.chars().all(|c| c.is_ascii_uppercase());
    words.get(1).is_some_and(is_placeholder)
        || words
            .iter()
            .any(|w| w.contains('…') || w.contains("...") || w.starts_with('[') || w.starts_with('<'))
}

#[test]
fn every_command_in_a_document_exists() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    let mut check = |at: &str, words: Vec<String>, whole: bool| {
        if is_sketch(&words) {
            return;
        }
        seen += 1;
        if let Err(e) = Cli::try_parse_from(&words) {
            let is_part = matches!(
                e.kind(),
                ErrorKind::MissingRequiredArgument
                    | ErrorKind::MissingSubcommand
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                    | ErrorKind::InvalidValue // a document may name an option without its value
            );
            if !matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) && (whole || !is_part)
            {
                wrong.push(format!(
                    "{at}: {}\n    {}",
                    words.join(" "),
                    e.to_string().lines().next().unwrap_or_default()
                ));
            }
        }
    };
    for path in documents() {
        let text = fs::read_to_string(&path).expect("a document");
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut in_block = false;
        for (number, line) in text.lines().enumerate() {
            let at = format!("{name}:{}", number + 1);
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
            } else if in_block
                && (line.starts_with("causeway ")
                    || line.starts_with("$ causeway ")
                    || line.contains("causeway ") && line.contains(" && "))
            {
                commands(line).into_iter().for_each(|words| check(&at, words, true));
            } else if !in_block {
                let inline = line.split('`').skip(1).step_by(2).filter(|code| code.starts_with("causeway "));
                inline.flat_map(commands).for_each(|words| check(&at, words, false));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 150, "only {seen} were found");
}

#[test]
fn commands_are_found_in_lines() {
    let all =
        commands("$ printf 'x' | causeway user add 'a b' && causeway reload > /dev/null # causeway top");
    assert_eq!(all, [vec!["causeway", "user", "add", "a b"], vec!["causeway", "reload"]]);
}
