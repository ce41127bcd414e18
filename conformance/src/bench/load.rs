//! A piece of work done N times by C clients, and what it cost.

use super::connection::{Connection, Target};
use super::process::Processes;
use anyhow::{Context, Result};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Cost of one run.
#[derive(Debug, Clone)]
pub struct Cost {
    pub operations: usize,
    pub wall: Duration,
    /// Of the server's processes.
    pub cpu: Duration,
    pub p50: Duration,
    pub p99: Duration,
}

impl Cost {
    /// CPU per operation, in microseconds.
    pub fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.operations.max(1) as f64
    }

    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.wall.as_secs_f64()
    }
}

/// One operation on a client's connection; the number distinguishes the operations.
pub type Operation = Arc<
    dyn for<'a> Fn(&'a mut Connection, usize) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>
        + Send
        + Sync,
>;

/// Runs `count` operations by `clients` clients, each on its own connection, opened before the clock starts.
///
/// # Errors
/// The first operation that fails ends the run.
pub async fn run(
    target: &Target,
    server: &Processes,
    clients: usize,
    count: usize,
    operation: Operation,
) -> Result<Cost> {
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(target.connect().await?);
    }
    let next = Arc::new(AtomicUsize::new(0));
    let cpu_before = server.cpu()?;
    let start = now();
    let mut tasks = Vec::new();
    for mut connection in connections {
        let (next, operation) = (next.clone(), operation.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "a load generator has no cluster to end with"
        )]
        tasks.push(tokio::spawn(async move {
            let mut latencies = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<_, anyhow::Error>(latencies);
                }
                let begun = now();
                operation(&mut connection, number).await?;
                latencies.push(begun.elapsed());
            }
        }));
    }
    let mut latencies = Vec::with_capacity(count);
    for task in tasks {
        latencies.extend(task.await.context("a client panicked")??);
    }
    let wall = start.elapsed();
    let cpu = server.cpu()?.saturating_sub(cpu_before);
    Ok(Cost {
        operations: count,
        wall,
        cpu,
        p50: percentile(&mut latencies, 50),
        p99: percentile(&mut latencies, 99),
    })
}

/// The length that so many of a hundred stay below.
pub(super) fn percentile(lengths: &mut [Duration], percent: usize) -> Duration {
    lengths.sort_unstable();
    let found = lengths.get(lengths.len() * percent / 100);
    found.copied().unwrap_or_default()
}

/// The wall clock of a measurement.
#[expect(clippy::disallowed_methods, reason = "measuring is what this is for")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
