//! `causeway health` (`Get-HealthFault`): the tree of pools, the faults, and the commands that repair them.

use super::ControlArgs;
use crate::control::health::{FaultStatus, HealthNode, HealthReport, WARNING};
use crate::failure::Failure;
use crate::output::{Output, coloured, has_colours, human_time, printable, wrapped};

pub(super) async fn run(control: ControlArgs, out: Output) -> Result<(), Failure> {
    let report: HealthReport = control.client().get("/v1/health").await?;
    out.done(&report, &text(&report, has_colours()))?;
    let grave = report.faults.iter().filter(|f| f.perceived_severity >= WARNING).count();
    match grave {
        0 => Ok(()),
        1 => Err(Failure::Faults("1 fault needs action".to_owned())),
        n => Err(Failure::Faults(format!("{n} faults need action"))),
    }
}

/// The tree, then the faults.
fn text(report: &HealthReport, colours: bool) -> String {
    let mut lines = Vec::new();
    for pool in &report.pools {
        lines.push(line(pool, colours));
        branches(&pool.children, "", &mut lines, colours);
    }
    if report.pools.is_empty() {
        lines.push("there are no pools".to_owned());
    }
    for fault in &report.faults {
        lines.push(String::new());
        lines.extend(faulty(fault, colours));
    }
    if report.faults.is_empty() {
        lines.extend([String::new(), "nothing is wrong".to_owned()]);
    }
    lines.join("\n")
}

fn branches(nodes: &[HealthNode], before: &str, lines: &mut Vec<String>, colours: bool) {
    for (n, node) in nodes.iter().enumerate() {
        let (twig, more) = if n + 1 == nodes.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        lines.push(format!("{before}{twig}{}", line(node, colours)));
        branches(&node.children, &format!("{before}{more}"), lines, colours);
    }
}

fn line(node: &HealthNode, colours: bool) -> String {
    let kind = match node.kind.as_str() {
        "Pool" => "pool ",
        "VirtualDisk" => "virtual disk ",
        "Enclosure" => "enclosure ",
        "Node" => "node ",
        "Rack" => "rack ",
        _ => "",
    };
    let status = match (node.operational_status.as_str(), node.health_status.as_str()) {
        ("OK", "Healthy") => coloured("OK", colours),
        (operational, health) => {
            format!("{} ({})", coloured(operational, colours), coloured(health, colours))
        }
    };
    let can_lose = node.can_lose.as_ref().map_or_else(String::new, |c| format!(", can lose: {c}"));
    format!("{kind}{}: {status}{can_lose}", printable(&node.name))
}

fn faulty(fault: &FaultStatus, colours: bool) -> Vec<String> {
    let since = fault.since_unix_s.map_or_else(String::new, |s| format!(", since {}", human_time(s as i64)));
    let severity = coloured(fault.severity_text(), colours);
    let mut lines = vec![
        format!("{severity}: {}  [{}{since}]", object(fault), fault.fault_type),
        wrapped(&format!("  {}", printable(&fault.reason)), "  "),
    ];
    if fault.faulting_object_location != fault.faulting_object_description {
        let place = format!("  where:  {}", printable(&fault.faulting_object_location));
        lines.push(wrapped(&place, "          "));
    }
    let follows = |f: &FaultStatus| {
        wrapped(&format!("  effect: {}: {}", object(f), printable(&f.reason)), "          ")
    };
    // The fault of an absent domain lists its disks already; a line for each disk would hide the consequences.
    let named = |f: &&FaultStatus| f.fault_type == AWAY && !fault.fault_type.starts_with("PhysicalDisk.");
    lines.extend(fault.consequences.iter().filter(|f| !named(f)).map(follows));
    lines.extend(fault.recommended_actions.iter().map(|a| format!("  do:     {}", printable(a))));
    lines
}

/// A disk that is not in service because it is absent.
const AWAY: &str = "PhysicalDisk.LostCommunication";

fn object(fault: &FaultStatus) -> String {
    printable(&fault.faulting_object_description)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kind: &str, name: &str, status: &str, children: Vec<HealthNode>) -> HealthNode {
        HealthNode {
            kind: kind.to_owned(),
            name: name.to_owned(),
            operational_status: status.to_owned(),
            health_status: if status == "OK" { "Healthy" } else { "Warning" }.to_owned(),
            can_lose: (kind == "Pool").then(|| "1 enclosure or 2 disks now".to_owned()),
            children,
        }
    }

    #[test]
    fn a_tree_and_its_faults() {
        let shelf =
            node("Enclosure", "shelf", "OK", vec![node("PhysicalDisk", "disk 0 (x)", "OK", Vec::new())]);
        let children = vec![shelf, node("VirtualDisk", "vm", "Degraded", Vec::new())];
        let mut report =
            HealthReport { pools: vec![node("Pool", "tank", "OK", children)], faults: Vec::new() };
        let tree = "pool tank: OK, can lose: 1 enclosure or 2 disks now\n\
                    ├─ enclosure shelf: OK\n\
                    │  └─ disk 0 (x): OK\n\
                    └─ virtual disk vm: Degraded (Warning)\n";
        assert_eq!(text(&report, false), format!("{tree}\nnothing is wrong"));
        let fault = FaultStatus {
            fault_id: "1".to_owned(),
            fault_type: "PhysicalDisk.LostCommunication".to_owned(),
            perceived_severity: 5,
            reason: "It went away.".to_owned(),
            faulting_object_description: "disk 1 (y)".to_owned(),
            faulting_object_location: "pool tank, disk 1".to_owned(),
            recommended_actions: vec!["causeway pool import tank".to_owned()],
            consequences: Vec::new(),
            since_unix_s: Some(0),
        };
        let follows =
            FaultStatus { faulting_object_description: "virtual disk vm".to_owned(), ..fault.clone() };
        report.faults = vec![FaultStatus { consequences: vec![follows], ..fault }];
        let told = "Warning: disk 1 (y)  [PhysicalDisk.LostCommunication, since 1970-01-01 00:00:00]\n  It went away.\n  \
                    where:  pool tank, disk 1\n  effect: virtual disk vm: It went away.\n  do:     causeway pool import tank";
        assert_eq!(text(&report, false), format!("{tree}\n{told}"));
        // An enclosure has one line, not one for each of its disks.
        let fault = report.faults.remove(0);
        let vm =
            FaultStatus { fault_type: "VirtualDisks.LastCopy".to_owned(), ..fault.consequences[0].clone() };
        let disks = vec![FaultStatus { consequences: Vec::new(), ..fault.clone() }; 12];
        let consequences = disks.into_iter().chain([vm]).collect();
        let away = "StorageEnclosure.LostCommunication".to_owned();
        report.faults = vec![FaultStatus { fault_type: away, consequences, ..fault }];
        assert_eq!(text(&report, false).matches("  effect: ").count(), 1, "{}", text(&report, false));
        assert_eq!(text(&HealthReport::default(), false), "there are no pools\n\nnothing is wrong");
    }
}
