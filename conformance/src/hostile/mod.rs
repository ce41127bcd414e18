//! The hostile hour: two well-behaved tenants at work on a server while others attack it by every way there is.
//!
//! [`tenants`] create, read, list, patch, delete and watch in a namespace each, and each has a Deployment; every answer is
//! timed. [`attacks`] holds the attacks, a row each, all of them under way at once, from addresses of their own, as a third
//! tenant with the rights of an editor in a namespace, or anonymous. [`figures`] samples the processes and makes the tables
//! and the verdict: no more errors than allowed, memory that comes back, no restart.
//!
//! Everything here knows only the API and the processes; it ends what it began.

pub mod attacks;
mod devices;
pub mod figures;
mod fixture;
pub mod tenants;
mod tokens;
mod traps;

use crate::bench::connection::Target;
use crate::bench::server::Server;
use anyhow::{Context, Result};
use attacks::{Orders, Outcome};
use figures::{Limits, Report, Samples};
use fixture::Fixture;
use machinery_runtime::Runtime;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tenants::Tenant;
use tokens::TokenWebhook;
use tokio::io::AsyncWriteExt;

/// The tenants alone before the attacks, and after them: a tenth of the time each, within these bounds.
const ALONE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));

/// Programs to run, limits, and times.
#[derive(Debug)]
pub struct Options {
    /// The server's command line.
    pub command: Vec<String>,
    pub kubeconfig: PathBuf,
    pub data_dir: PathBuf,
    /// The server has a node, whose agent and container runtime are killed at times.
    pub node: bool,
    /// Of the attacks.
    pub duration: Duration,
    /// Only these attacks; all where there are none.
    pub only: Vec<String>,
    /// Each attack has this part of its clients; one has all.
    pub part: usize,
    /// Nice value by which the attackers give way to other processes of this machine.
    pub nice: u8,
    /// Longest wait of a tenant for an answer.
    pub patience: Duration,
    pub limits: Limits,
}

/// Starts the server, runs the hour and ends the server.
///
/// # Errors
/// The server does not start, or what the tenants need cannot be made.
pub async fn run(options: Options) -> Result<Report> {
    let runtime = Runtime::real();
    let kubeconfig = options.kubeconfig.with_extension("tokens");
    let webhook = TokenWebhook::start(&runtime, fixture::WEBHOOK_USER, kubeconfig).await?;
    let command = [options.command.clone(), webhook.flags()].concat();
    let (server, admin, _) = Server::start(command, options.kubeconfig.clone()).await?;
    let place = Fixture::prepare(&runtime, &admin, &webhook, options.node).await?;
    let mut samples = Samples::new(server.processes(), options.node.then(|| options.data_dir.clone()));
    let scope = runtime.child_scope();
    let tenants: Vec<Tenant> = fixture::TENANTS
        .into_iter()
        .map(|name| Tenant::begin(scope.runtime(), name, place.tenant(name), options.patience))
        .collect();
    let alone = (options.duration / 10).clamp(ALONE.0, ALONE.1);
    watch(&runtime, &mut samples, &tenants, "alone", alone).await?;
    samples.note_before()?;
    let attackers = Attackers::start(&orders(&place, &options), options.nice).await?;
    watch(&runtime, &mut samples, &tenants, "attacked", options.duration).await?;
    let attacks = attackers.end().await?;
    samples.note_peak()?;
    watch(&runtime, &mut samples, &tenants, "after", alone).await?;
    samples.note_after(&runtime, options.duration).await?;
    let is_ready = is_ready(&admin).await;
    let failures = match options.node {
        true => fixture::waited_for_pods(&runtime, &admin).await.err(),
        false => None,
    };
    scope.stopped().await;
    let mut report = Report::new(samples, &tenants, attacks, is_ready, &options.limits);
    report.add_failure(failures);
    Ok(report)
}

fn orders(place: &Fixture, options: &Options) -> Orders {
    Orders {
        kubeconfig: options.kubeconfig.clone(),
        token: place.attacker_token(),
        pod: place.pod.clone(),
        has_extension: place.has_extension(),
        data_dir: options.node.then(|| options.data_dir.clone()),
        seconds: options.duration.as_secs(),
        only: options.only.clone(),
        part: options.part,
    }
}

/// The attackers' process.
struct Attackers(tokio::process::Child);

impl Attackers {
    /// This program again, as the attacker. Its input has a token, which every process could see in its arguments.
    async fn start(orders: &Orders, nice: u8) -> Result<Self> {
        let mut command = tokio::process::Command::new("nice");
        command
            .args(["-n", &nice.to_string()])
            .arg(std::env::current_exe()?);
        command.arg("--attack").stdin(Stdio::piped());
        command.stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().context("starting the attackers")?;
        let mut input = process.stdin.take().context("the attackers' input")?;
        input.write_all(&serde_json::to_vec(orders)?).await?;
        Ok(Self(process))
    }

    async fn end(self) -> Result<Vec<Outcome>> {
        let ended = self.0.wait_with_output().await?;
        serde_json::from_slice(&ended.stdout).context("reading the report of the attackers")
    }
}

/// Lets time pass in minutes, at the end of each of which the tenants' figures are taken.
async fn watch(
    runtime: &Runtime,
    samples: &mut Samples,
    tenants: &[Tenant],
    phase: &'static str,
    duration: Duration,
) -> Result<()> {
    const MINUTE: Duration = Duration::from_secs(60);
    let end = runtime.monotonic() + duration;
    while runtime.monotonic() < end {
        let next = end.min(runtime.monotonic() + MINUTE);
        while runtime.monotonic() < next {
            samples.sample()?;
            runtime.sleep(Duration::from_millis(500)).await;
        }
        tenants.iter().for_each(|tenant| tenant.end_period(phase));
    }
    Ok(())
}

async fn is_ready(admin: &Target) -> bool {
    let Ok(mut client) = admin.connect().await else {
        return false;
    };
    let asked = client.call(http::Method::GET, "/readyz", &[], bytes::Bytes::new());
    asked.await.is_ok()
}
