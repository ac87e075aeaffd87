//! The health that a disk reports (SMART, NVMe), read with smartctl.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use env::Env;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// How long smartctl may take: a failing drive may not answer.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The health that a disk reports.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub(super) struct Smart {
    /// Whether the disk reports that it is healthy; none if it does not report it.
    pub(super) passed: Option<bool>,
    /// In words: `Passed, 34 °C, 12034 hours, 3 % of its endurance used, 0 media errors`.
    pub(super) text: String,
}

/// Reallocated and pending sectors, among ATA's attributes.
const REALLOCATED: u64 = 5;
const PENDING: u64 = 197;

/// Reads the health of a disk with the rights of the caller; `None` for a disk that is a file.
pub(super) async fn query_smart(path: &Path) -> Option<Smart> {
    let device = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
    if !device {
        return None;
    }
    Some(match output(path).await {
        Ok(json) => read(&json),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            unknown("smartctl is not installed: install the package smartmontools")
        }
        Err(e) => unknown(&format!("smartctl: {e}")),
    })
}

async fn output(path: &Path) -> io::Result<Vec<u8>> {
    let start = |program| {
        let mut command = Command::new(program);
        command.args(["--json", "--health", "--attributes"]).arg(path);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    };
    // The PATH of many users lacks /usr/sbin.
    let child = start("smartctl").or_else(|_| start("/usr/sbin/smartctl"))?;
    let process = rustix::process::Pid::from_child(&child);
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output());
    let env = Env::real();
    tokio::select! {
        out = ended => Ok(out.map_err(io::Error::other)??.stdout),
        () = env.sleep(TIME_LIMIT) => {
            // A process that waits for the drive in the kernel ends when the drive answers.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            Err(io::Error::other("no answer in 10 s: the drive may be failing"))
        }
    }
}

/// Reads the output of smartctl.
fn read(json: &[u8]) -> Smart {
    let report: Value = match serde_json::from_slice(json) {
        Ok(report) => report,
        Err(e) => {
            return unknown(&format!("smartctl's answer cannot be read ({e}): version 7 or newer is needed"));
        }
    };
    let Some(passed) = report.pointer("/smart_status/passed").and_then(Value::as_bool) else {
        let said = report.pointer("/smartctl/messages/0/string").and_then(Value::as_str);
        return unknown(said.unwrap_or("the drive does not report its health"));
    };
    let number = |at| report.pointer(at).and_then(Value::as_u64);
    let attribute = |id| {
        let mut table = report.pointer("/ata_smart_attributes/table")?.as_array()?.iter();
        table.find(|a| a["id"].as_u64() == Some(id))?["raw"]["value"].as_u64()
    };
    let facts = [
        (number("/temperature/current"), " °C"),
        (number("/power_on_time/hours"), " hours"),
        (number("/nvme_smart_health_information_log/percentage_used"), " % of its endurance used"),
        (number("/nvme_smart_health_information_log/media_errors"), " media errors"),
        (attribute(REALLOCATED), " reallocated sectors"),
        (attribute(PENDING), " pending sectors"),
    ];
    let known = facts.into_iter().filter_map(|(n, what)| Some(format!(", {}{what}", n?)));
    let verdict = if passed { "Passed" } else { "FAILED: replace the disk" };
    Smart { passed: Some(passed), text: verdict.to_owned() + &known.collect::<String>() }
}

fn unknown(why: &str) -> Smart {
    Smart { passed: None, text: format!("unknown: {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_of_both_kinds_are_read() {
        let nvme = br#"{"smartctl":{"exit_status":0},"smart_status":{"passed":true,"nvme":{"value":0}},
            "temperature":{"current":34},"power_on_time":{"hours":12034},
            "nvme_smart_health_information_log":{"percentage_used":3,"media_errors":0,"critical_warning":0}}"#;
        assert_eq!(read(nvme).text, "Passed, 34 °C, 12034 hours, 3 % of its endurance used, 0 media errors");
        let ata = br#"{"smart_status":{"passed":false},"ata_smart_attributes":{"table":[
            {"id":5,"name":"Reallocated_Sector_Ct","raw":{"value":812,"string":"812"}},
            {"id":197,"name":"Current_Pending_Sector","raw":{"value":7,"string":"7"}}]}}"#;
        assert_eq!(read(ata).text, "FAILED: replace the disk, 812 reallocated sectors, 7 pending sectors");
    }

    #[test]
    fn why_nothing_is_known_is_said() {
        let refused = br#"{"smartctl":{"messages":[{"string":"Smartctl open device: /dev/sda failed: Permission denied"}]}}"#;
        assert!(read(refused).text.starts_with("unknown: Smartctl open device: /dev/sda failed"));
        assert!(read(b"{}").text.contains("does not report"));
        assert!(read(b"smartctl 6.6").text.contains("version 7 or newer"));
    }
}
