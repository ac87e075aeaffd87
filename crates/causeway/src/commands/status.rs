//! `causeway status`: the state, the totals and the memory of the server.

use super::ControlArgs;
use crate::control::types::{Passes, ServerStatus};
use crate::failure::Failure;
use crate::output::{Output, human_bytes, human_seconds};

pub(super) async fn run(control: ControlArgs, out: Output) -> Result<(), Failure> {
    let s: ServerStatus = control.client().get("/v1/server").await?;
    let listeners: Vec<_> = s.listeners.iter().map(|l| format!("{} {}", l.transport, l.address)).collect();
    let memory = format!(
        "{} of {} used, {} reserved for control, {} requests waiting",
        human_bytes(s.memory.used),
        human_bytes(s.memory.budget),
        human_bytes(s.memory.reserve),
        s.memory.waiting
    );
    let moved = |all: u64, rdma: u64| format!("{}, of these {} by RDMA", human_bytes(all), human_bytes(rdma));
    let workers: Vec<_> = s
        .workers
        .iter()
        .map(|w| match w.stalls {
            0 => format!("{} connections", w.connections),
            n => format!("{} connections, {n} stalls (longest {} ms)", w.connections, w.longest_stall_ms),
        })
        .collect();
    let mut lines = vec![
        ("Name", s.name.clone()),
        ("Version", s.version.clone()),
        ("Process", s.pid.to_string()),
        ("Uptime", human_seconds(s.uptime_s)),
        ("Configuration", s.config.clone()),
        ("Listeners", listeners.join(", ")),
        ("Connections", format!("{} ({} since the start)", s.connections, s.totals.accepted)),
        ("Sessions", s.sessions.to_string()),
        ("OpenFiles", s.opens.to_string()),
        ("Requests", format!("{} ({} reads, {} writes)", s.totals.requests, s.totals.reads, s.totals.writes)),
        ("BytesRead", moved(s.totals.read_bytes, s.totals.read_bytes_rdma)),
        ("BytesWritten", moved(s.totals.written_bytes, s.totals.written_bytes_rdma)),
        ("PassesPerByte", passes(&s.passes)),
        ("PayloadMemory", memory),
    ];
    for worker in workers {
        lines.push(("Worker", worker));
    }
    Ok(out.facts(&s, &lines)?)
}

/// How often user space touched each payload byte, by reason.
fn passes(p: &Passes) -> String {
    let Some(per_byte) = p.per_byte else { return "no payload yet".to_owned() };
    let mut kinds = [
        ("copy", p.copy_bytes),
        ("place", p.place_bytes),
        ("crc", p.crc_bytes),
        ("mac", p.mac_bytes),
        ("cipher", p.cipher_bytes),
    ];
    kinds.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let all: u64 = kinds.iter().map(|(_, n)| n).sum();
    let share = |n: u64| per_byte * n as f64 / all.max(1) as f64;
    let parts: Vec<_> =
        kinds.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {:.2}", share(*n))).collect();
    if parts.is_empty() { "0.00".to_owned() } else { format!("{per_byte:.2} ({})", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_say_what_for() {
        let none = Passes::default();
        assert_eq!(passes(&none), "no payload yet");
        assert_eq!(passes(&Passes { per_byte: Some(0.0), ..none }), "0.00");
        let some = Passes { copy_bytes: 100, mac_bytes: 300, per_byte: Some(2.0), ..none };
        assert_eq!(passes(&some), "2.00 (mac 1.50, copy 0.50)");
    }
}
