//! Samples of the processes, the tables of the hour, and the verdict.

use super::attacks::Outcome;
use super::tenants::{Period, Tenant};
use crate::bench::process::{self, Processes};
use anyhow::{Context, Result};
use machinery_runtime::Runtime;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Bounds of a passed hour.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of the tenants' requests under attack, in percent.
    pub errors_percent: f64,
    /// Memory afterwards is at most so many times that before, and a constant for what the tenants have stored.
    pub memory_factor: f64,
}

const MEMORY_CONSTANT: u64 = 96 << 20;
/// Memory may take so long to be given back, or a quarter of the time of the attacks where that is less.
const SETTLING: Duration = Duration::from_secs(60);

/// Memory, descriptors and threads of processes.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    bytes: u64,
    descriptors: u64,
    threads: u64,
}

impl Held {
    fn of(processes: &Processes) -> Result<Self> {
        Ok(Self {
            bytes: processes.resident().context("the process has ended")?,
            descriptors: processes.descriptors()?,
            threads: processes.threads()?,
        })
    }

    fn most(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.max(other.bytes),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Course {
    before: Held,
    peak: Held,
    after: Held,
}

/// The processes over the hour.
#[derive(Debug)]
pub(super) struct Samples {
    server: Processes,
    data_dir: Option<PathBuf>,
    of_server: Course,
    of_agent: Course,
}

impl Samples {
    pub(super) fn new(server: Processes, data_dir: Option<PathBuf>) -> Self {
        Self {
            server,
            data_dir,
            of_server: Course::default(),
            of_agent: Course::default(),
        }
    }

    /// Usage of the agent; zeros while it is being started again.
    fn agent(&self) -> Held {
        let data_dir = self.data_dir.as_deref();
        let all = data_dir.map(process::of_cluster).unwrap_or_default();
        let agent = all.iter().find(|(name, _)| *name == process::AGENT);
        agent
            .and_then(|(_, processes)| Held::of(processes).ok())
            .unwrap_or_default()
    }

    /// # Errors
    /// The server's process is gone.
    pub(super) fn sample(&mut self) -> Result<()> {
        self.of_server.peak = self.of_server.peak.most(Held::of(&self.server)?);
        self.of_agent.peak = self.of_agent.peak.most(self.agent());
        Ok(())
    }

    pub(super) fn note_before(&mut self) -> Result<()> {
        self.server.reset_peak()?;
        self.of_server.before = Held::of(&self.server)?;
        self.of_agent.before = self.agent();
        Ok(())
    }

    /// The kernel's own peak, which no sample can miss.
    pub(super) fn note_peak(&mut self) -> Result<()> {
        self.sample()?;
        let peak = self.server.peak()?;
        self.of_server.peak.bytes = self.of_server.peak.bytes.max(peak);
        Ok(())
    }

    /// The least within the time that giving back may take.
    pub(super) async fn note_after(&mut self, runtime: &Runtime, attacked: Duration) -> Result<()> {
        let end = runtime.monotonic() + SETTLING.min(attacked / 4);
        self.of_server.after = Held::of(&self.server)?;
        while runtime.monotonic() < end && self.of_server.after.bytes > self.of_server.before.bytes {
            runtime.sleep(Duration::from_secs(1)).await;
            let now = Held::of(&self.server)?;
            if now.bytes < self.of_server.after.bytes {
                self.of_server.after = now;
            }
        }
        self.of_agent.after = self.agent();
        Ok(())
    }
}

/// Result of the hour.
#[derive(Debug)]
pub struct Report {
    text: String,
    failures: Vec<String>,
}

impl Report {
    pub(super) fn new(
        samples: Samples,
        tenants: &[Tenant],
        attacks: Vec<Outcome>,
        is_ready: bool,
        limits: &Limits,
    ) -> Self {
        let mut report = Self {
            text: String::new(),
            failures: Vec::new(),
        };
        report.tenants(tenants, limits);
        report.compared(tenants);
        report.attacks(&attacks);
        report.processes(&samples, limits);
        if !is_ready {
            report
                .failures
                .push("the server is not ready afterwards".to_owned());
        }
        report
    }

    pub(super) fn add_failure(&mut self, failure: Option<anyhow::Error>) {
        self.failures
            .extend(failure.map(|failure| format!("{failure:#}")));
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Bounds that were not kept.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Writing to a string does not fail.
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{line}");
    }

    fn tenants(&mut self, tenants: &[Tenant], limits: &Limits) {
        self.line(format_args!(
            "| tenant | minute | phase | requests | retried | errors | p50 | p99 | event p99 | rollout p99 |"
        ));
        self.line(format_args!("|---|---|---|---|---|---|---|---|---|---|"));
        for tenant in tenants {
            let (mut requests, mut errors) = (0, 0);
            for (minute, period) in tenant.periods().iter().enumerate() {
                self.period(tenant.name, minute + 1, period);
                if period.phase == "attacked" {
                    requests += period.latencies.len() as u64 + period.errors;
                    errors += period.errors;
                }
            }
            let percent = errors as f64 * 100.0 / (requests.max(1)) as f64;
            if percent > limits.errors_percent {
                self.failures.push(format!(
                    "{}: {errors} of {requests} requests failed, {percent:.2} %, {} % are allowed",
                    tenant.name, limits.errors_percent
                ));
            }
            if requests == 0 {
                self.failures.push(format!("{} got no answer", tenant.name));
            }
        }
        for tenant in tenants {
            for error in tenant.errors() {
                self.line(format_args!("{}: {error}", tenant.name));
            }
        }
    }

    fn period(&mut self, name: &str, minute: usize, period: &Period) {
        let (p50, p99) = (part(&period.latencies, 50), part(&period.latencies, 99));
        let (events, rollouts) = (part(&period.events, 99), part(&period.rollouts, 99));
        let (phase, requests) = (period.phase, period.latencies.len());
        let (retried, errors) = (period.retried, period.errors);
        self.line(format_args!(
            "| {name} | {minute} | {phase} | {requests} | {retried} | {errors} | {p50} | {p99} | {events} | {rollouts} |"
        ));
    }

    /// The control: the same tenants before and after the attacks, on the same machine.
    fn compared(&mut self, tenants: &[Tenant]) {
        self.line(format_args!(
            "\n| tenant | alone p50 | alone p99 | attacked p50 | attacked p99 |"
        ));
        self.line(format_args!("|---|---|---|---|---|"));
        for tenant in tenants {
            let (mut alone, mut attacked) = (Vec::new(), Vec::new());
            for period in tenant.periods() {
                match period.phase {
                    "attacked" => attacked.extend(period.latencies),
                    _ => alone.extend(period.latencies),
                }
            }
            let figures = [(&alone, 50), (&alone, 99), (&attacked, 50), (&attacked, 99)];
            let [p50, p99, attacked_p50, attacked_p99] =
                figures.map(|(values, percent)| part(values, percent));
            let name = tenant.name;
            self.line(format_args!(
                "| {name} | {p50} | {p99} | {attacked_p50} | {attacked_p99} |"
            ));
        }
    }

    fn attacks(&mut self, attacks: &[Outcome]) {
        self.line(format_args!(
            "\n| attack | clients | begun | ended | refused or broken off |"
        ));
        self.line(format_args!("|---|---|---|---|---|"));
        for attack in attacks {
            self.line(format_args!(
                "| {} | {} | {} | {} | {} |",
                attack.name, attack.clients, attack.begun, attack.turns, attack.refused
            ));
        }
        self.line(format_args!(""));
        for attack in attacks {
            if let Some(refusal) = &attack.refusal {
                self.line(format_args!("{}: {refusal}", attack.name));
            }
        }
        if attacks.iter().all(|attack| attack.begun == 0) {
            let failure = "no attack ran: the time was too short";
            self.failures.push(failure.to_owned());
        }
    }

    fn processes(&mut self, samples: &Samples, limits: &Limits) {
        self.line(format_args!("\n| process | | before | peak | after |"));
        self.line(format_args!("|---|---|---|---|---|"));
        let mut rows = vec![("server", samples.of_server)];
        if samples.data_dir.is_some() {
            rows.push(("agent", samples.of_agent));
        }
        for (name, course) in rows {
            let all = [course.before, course.peak, course.after];
            let [before, peak, after] = all.map(|held| format!("{:.0} MB", held.bytes as f64 / 1e6));
            self.line(format_args!(
                "| {name} | resident | {before} | {peak} | {after} |"
            ));
            let [before, peak, after] = all.map(|held| held.descriptors);
            self.line(format_args!(
                "| {name} | descriptors | {before} | {peak} | {after} |"
            ));
            let [before, peak, after] = all.map(|held| held.threads);
            self.line(format_args!("| {name} | threads | {before} | {peak} | {after} |"));
        }
        if samples.data_dir.is_some() && samples.of_agent.peak.bytes == 0 {
            let failure = "the node's agent was never seen, so that nothing ended or measured it";
            self.failures.push(failure.to_owned());
        }
        let (before, after) = (samples.of_server.before.bytes, samples.of_server.after.bytes);
        let most = before as f64 * limits.memory_factor + MEMORY_CONSTANT as f64;
        if after as f64 > most {
            self.failures.push(format!(
                "the server holds {:.0} MB afterwards, {:.0} MB are allowed",
                after as f64 / 1e6,
                most / 1e6
            ));
        }
    }
}

/// The value that so many percent do not exceed.
fn part(values: &[Duration], percent: usize) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    match sorted.get(at) {
        Some(value) => format!("{:.1} ms", value.as_secs_f64() * 1e3),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_values() {
        let values: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(
            [part(&values, 50), part(&values, 99), part(&[], 99)],
            ["101.0 ms", "199.0 ms", "-"]
        );
    }
}
