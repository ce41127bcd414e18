//! What a process has used, from `/proc`.

use anyhow::{Context, Result};
use std::time::Duration;

/// The processes that make up a server (upstream's are two).
#[derive(Debug, Clone)]
pub struct Processes(pub Vec<u32>);

/// Linux' `USER_HZ`, which is 100 on every architecture Knarr runs on.
const TICKS_PER_SECOND: u64 = 100;

impl Processes {
    /// CPU time used so far, user and system, to a hundredth of a second.
    ///
    /// # Errors
    /// A process is gone.
    pub fn cpu(&self) -> Result<Duration> {
        self.0.iter().map(|pid| cpu_of(*pid)).sum()
    }

    /// Resident memory now, in bytes.
    ///
    /// # Errors
    /// A process is gone.
    pub fn resident(&self) -> Result<u64> {
        self.0.iter().map(|pid| status_bytes(*pid, "VmRSS:")).sum()
    }

    /// The highest resident memory since [`Self::reset_peak`], in bytes.
    ///
    /// # Errors
    /// A process is gone.
    pub fn peak(&self) -> Result<u64> {
        self.0.iter().map(|pid| status_bytes(*pid, "VmHWM:")).sum()
    }

    /// Forgets the peak.
    ///
    /// # Errors
    /// A process is gone or belongs to somebody else.
    pub fn reset_peak(&self) -> Result<()> {
        for pid in &self.0 {
            std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
        }
        Ok(())
    }
}

/// Of all threads, those that ended too, which `schedstat` of the threads forgets.
fn cpu_of(pid: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = text.rsplit_once(')').context("an unreadable stat")?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

fn status_bytes(pid: u32, name: &str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .context("no such line in status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
