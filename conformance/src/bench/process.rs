//! Usage of a process, from `/proc`.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
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

    /// Open file descriptors now.
    ///
    /// # Errors
    /// A process is gone or belongs to another.
    pub fn descriptors(&self) -> Result<u64> {
        let count = |pid: &u32| Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64);
        self.0.iter().map(count).sum()
    }

    /// Threads now.
    ///
    /// # Errors
    /// A process is gone.
    pub fn threads(&self) -> Result<u64> {
        self.0.iter().map(|pid| status_number(*pid, "Threads:")).sum()
    }

    /// Times that a thread gave its processor back since it was started: to wait, and for another's sake. Threads that have
    /// ended are not counted.
    ///
    /// # Errors
    /// A process is gone.
    pub fn switches(&self) -> Result<u64> {
        let mut all = 0;
        for pid in &self.0 {
            for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
                let path = thread?.path().join("status");
                // It may end meanwhile.
                let text = std::fs::read_to_string(path).unwrap_or_default();
                all += lines_sum(&text, "voluntary_ctxt_switches:");
            }
        }
        Ok(all)
    }

    /// Ends them without a warning.
    ///
    /// # Errors
    /// A process belongs to another or is gone.
    #[expect(
        clippy::disallowed_methods,
        reason = "a load generator stands outside the product"
    )]
    pub fn kill(&self) -> Result<()> {
        let mut kill = std::process::Command::new("kill");
        kill.arg("-KILL").args(self.0.iter().map(u32::to_string));
        anyhow::ensure!(kill.status()?.success(), "not killed: {:?}", self.0);
        Ok(())
    }

    /// Forgets the peak.
    ///
    /// # Errors
    /// A process is gone or belongs to another.
    pub fn reset_peak(&self) -> Result<()> {
        for pid in &self.0 {
            std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
        }
        Ok(())
    }
}

pub(crate) const SERVER: &str = "server";
pub(crate) const AGENT: &str = "agent";
pub(super) const SHIMS: &str = "shims";

/// Programs of a cluster, by the beginning of their command lines. The order is that of the figures. A subcommand names
/// Knarr's own, since its file may have any name.
const PROGRAMS: [(&str, Beginning); 4] = [
    (SERVER, Beginning::Subcommand("server ")),
    (AGENT, Beginning::Subcommand("agent ")),
    ("containerd", Beginning::Name("containerd")),
    (SHIMS, Beginning::Name("containerd-shim-runc-v2")),
];

/// Beginning of a command line.
enum Beginning {
    /// The file's name.
    Name(&'static str),
    /// The first argument.
    Subcommand(&'static str),
}

impl Beginning {
    fn fits(&self, path: &str, arguments: &str) -> bool {
        match self {
            Self::Name(name) => path.rsplit('/').next() == Some(name),
            Self::Subcommand(name) => arguments.starts_with(name),
        }
    }
}

/// The running processes that have the directory, or something in it, among their arguments.
pub(crate) fn of_cluster(data_dir: &Path) -> Vec<(&'static str, Processes)> {
    let mut found: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if let Some(program) = program_of(pid, data_dir) {
            found.entry(program).or_default().push(pid);
        }
    }
    let named = found
        .into_iter()
        .map(|(program, pids)| (PROGRAMS[program].0, Processes(pids)));
    named.collect()
}

/// Index in [`PROGRAMS`] of a process, if it is the cluster's.
fn program_of(pid: u32, data_dir: &Path) -> Option<usize> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let (path, arguments) = line.split_once(' ')?;
    let mut words = arguments.split([' ', '=']);
    let is_ours = words.any(|word| Path::new(word).starts_with(data_dir));
    let program = PROGRAMS.iter().position(|(_, own)| own.fits(path, arguments));
    program.filter(|_| is_ours)
}

/// CPU time of all threads, those that ended too, which `schedstat` of the threads forgets.
fn cpu_of(pid: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = text.rsplit_once(')').context("an unreadable stat")?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

fn status_bytes(pid: u32, name: &str) -> Result<u64> {
    Ok(status_number(pid, name)? * 1024)
}

/// Sum of the numbers of lines whose name ends so.
fn lines_sum(text: &str, name: &str) -> u64 {
    let numbers = text.lines().filter_map(|line| line.split_once(name));
    numbers
        .filter_map(|(_, number)| number.trim().parse::<u64>().ok())
        .sum()
}

fn status_number(pid: u32, name: &str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .context("no such line in status")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_of_both_kinds_are_counted() {
        let text = "Threads:\t3\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(lines_sum(text, "voluntary_ctxt_switches:"), 42);
        let own = Processes(vec![std::process::id()]);
        assert!(own.switches().unwrap() > 0);
    }
}
