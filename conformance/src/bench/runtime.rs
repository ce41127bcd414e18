//! Cost of a pod in the container runtime without any of us: another program drives it, this module sums up.

use super::load::percentile;
use super::scenarios::milliseconds;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The program (`node-cri`'s `start_pods`) and what it is to use.
#[derive(Debug, Clone)]
pub struct Direct {
    pub program: PathBuf,
    /// The runtime's.
    pub socket: PathBuf,
    /// The group its sandboxes lie in.
    pub cgroup_parent: String,
}

/// Milliseconds that each step of one pod took.
#[derive(Debug, Deserialize)]
struct Steps {
    sandbox: f64,
    create: f64,
    start: f64,
}

/// Of all pods.
#[derive(Debug)]
pub(super) struct Outcome(Vec<Steps>);

impl Direct {
    /// Starts as many pods by as many clients, and takes them down.
    #[expect(
        clippy::disallowed_methods,
        reason = "a load generator stands outside the product"
    )]
    pub(super) fn start(&self, pods: usize, clients: usize) -> Result<Outcome> {
        let mut command = Command::new(&self.program);
        command.arg(&self.socket).arg(&self.cgroup_parent);
        command.args([pods.to_string(), clients.to_string()]);
        let output = command.stderr(Stdio::inherit()).output();
        let output = output.with_context(|| format!("starting {}", self.program.display()))?;
        ensure!(
            output.status.success(),
            "{}: {}",
            self.program.display(),
            output.status
        );
        Ok(Outcome(serde_json::from_slice(&output.stdout)?))
    }
}

impl Outcome {
    fn percentile(&self, percent: usize, of: impl Fn(&Steps) -> f64) -> Duration {
        let lengths = self
            .0
            .iter()
            .map(|steps| Duration::from_secs_f64(of(steps) / 1e3));
        percentile(&mut lengths.collect::<Vec<_>>(), percent)
    }

    fn whole(steps: &Steps) -> f64 {
        steps.sandbox + steps.create + steps.start
    }

    pub(super) fn p50(&self) -> Duration {
        self.percentile(50, Self::whole)
    }

    pub(super) fn text(&self) -> String {
        let p50 = |of: fn(&Steps) -> f64| milliseconds(self.percentile(50, of));
        format!(
            "p50 {}, p99 {} (p50 of sandbox {}, create {}, start {})",
            p50(Self::whole),
            milliseconds(self.percentile(99, Self::whole)),
            p50(|steps| steps.sandbox),
            p50(|steps| steps.create),
            p50(|steps| steps.start),
        )
    }
}
