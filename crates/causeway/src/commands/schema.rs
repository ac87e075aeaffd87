//! `causeway schema`: the output of `--json` as a JSON Schema (draft 2020-12) with a property for each command.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{bench, config, counters, disk, ls, mkdir, mv, rm, setup, space, top};
use crate::control::events::Event;
use crate::control::health::HealthReport;
use crate::control::storage::{
    DiskStatus, EnclosureStatus, JobStatus, PoolDetail, PoolStatus, Qualified, SpaceStatus,
};
use crate::control::types::{
    Changed, GroupStatus, OpenStatus, ServerStatus, SessionStatus, ShareAccess, ShareStatus, UserStatus,
};
use crate::failure::Failure;
use crate::output::{Failed, Output};
use crate::remote::{Entry, RemoteShare};
use crate::transfer::progress::Summary;

/// Commands that print [`Changed`].
const CHANGES: [&str; 43] = [
    "disk create-file",
    "disk identify",
    "disk retire",
    "disk return",
    "disk set",
    "group add",
    "group add-member",
    "group remove",
    "group remove-member",
    "job pause",
    "job resume",
    "job stop",
    "open close",
    "pool add-disk",
    "pool clear",
    "pool create",
    "pool destroy",
    "pool export",
    "pool import",
    "pool offline-disk",
    "pool optimize",
    "pool remove-disk",
    "pool rename",
    "pool replace-disk",
    "pool set",
    "reload",
    "session close",
    "share add",
    "share remove",
    "share set-acl",
    "space attach",
    "space create",
    "space destroy",
    "space detach",
    "space rename",
    "space repair",
    "space resize",
    "space set",
    "user add",
    "user disable",
    "user enable",
    "user passwd",
    "user remove",
];

pub(super) fn run(out: Output) -> Result<(), Failure> {
    Ok(out.document(&schema())?)
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

type Of = fn(&mut SchemaGenerator) -> Schema;

/// The schema of all commands.
fn schema() -> Value {
    let documents: [(&str, Of); 34] = [
        ("bench demo", of::<bench::DemoReport<'static>>),
        ("config check", of::<config::Checked<'static>>),
        ("config example", of::<config::Example>),
        ("counters", of::<counters::Sample<'static>>),
        ("counters --definitions", of::<Vec<counters::Definition>>),
        ("counters --replay", of::<Vec<counters::Series>>),
        ("disk list", of::<Vec<DiskStatus>>),
        ("disk qualify", of::<Qualified>),
        ("disk show", of::<disk::Shown>),
        ("enclosure list", of::<Vec<EnclosureStatus>>),
        ("event list", of::<Vec<Event>>),
        ("get", of::<Summary>),
        ("group list", of::<Vec<GroupStatus>>),
        ("health", of::<HealthReport>),
        ("job list", of::<Vec<JobStatus>>),
        ("ls", of::<ls::Listed>),
        ("mkdir", of::<mkdir::Created>),
        ("mv", of::<mv::Moved>),
        ("open list", of::<Vec<OpenStatus>>),
        ("pool list", of::<Vec<PoolStatus>>),
        ("pool show", of::<PoolDetail>),
        ("put", of::<Summary>),
        ("rm", of::<rm::Removed>),
        ("session list", of::<Vec<SessionStatus>>),
        ("setup", of::<setup::Report>),
        ("share get-acl", of::<Vec<ShareAccess>>),
        ("share list", of::<Vec<ShareStatus>>),
        ("shares", of::<Vec<RemoteShare>>),
        ("space list", of::<Vec<SpaceStatus>>),
        ("space show", of::<space::Shown>),
        ("stat", of::<Entry>),
        ("status", of::<ServerStatus>),
        ("top", of::<top::View>),
        ("user list", of::<Vec<UserStatus>>),
    ];
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut properties = Map::new();
    for (name, of) in documents {
        properties.insert(name.to_owned(), of(&mut generator).to_value());
    }
    for name in CHANGES {
        properties.insert(name.to_owned(), of::<Changed>(&mut generator).to_value());
    }
    properties.insert("error".to_owned(), of::<Failed<'static>>(&mut generator).to_value());
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The output of the commands of causeway with --json",
        "description": "A property for each command; `error` is the output of a failed command on standard error.",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "$defs": generator.take_definitions(true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Commands without a document: they print raw data, or run until they are stopped.
    const NONE: [&str; 7] = ["cat", "completions", "man", "serve", "schema", "bench", "bench listen"];

    #[test]
    fn docs_have_the_schema_of_this_program() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json-schema.json");
        let now = serde_json::to_string_pretty(&schema()).expect("JSON") + "\n";
        if std::env::var_os("CAUSEWAY_WRITE_SCHEMA").is_some() {
            std::fs::write(&path, &now).expect("written");
        }
        let kept = std::fs::read_to_string(&path).expect("docs/json-schema.json");
        assert!(
            kept == now,
            "docs/json-schema.json is of another version: causeway schema > docs/json-schema.json"
        );
    }

    #[test]
    fn every_command_has_a_schema() {
        let schema = schema();
        let mut leaves = Vec::new();
        let mut todo = vec![(String::new(), super::super::Cli::command())];
        while let Some((path, command)) = todo.pop() {
            let children: Vec<_> = command.get_subcommands().cloned().collect();
            let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
            if children.is_empty() {
                leaves.push(path.clone());
            }
            todo.extend(children.into_iter().map(|c| (join(c.get_name()), c)));
        }
        let known = |path: &String| schema["properties"].get(path).is_some() || NONE.contains(&path.as_str());
        let missing: Vec<_> = leaves.iter().filter(|path| !known(path)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
