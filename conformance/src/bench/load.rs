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
    /// Times that a thread of the server gave its processor back.
    pub switches: u64,
}

impl Cost {
    /// CPU per operation, in microseconds.
    pub fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.operations.max(1) as f64
    }

    pub fn switches_each(&self) -> f64 {
        self.switches as f64 / self.operations.max(1) as f64
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

/// Usage of the server's processes when a run began.
struct Begun {
    start: Instant,
    cpu: Duration,
    switches: u64,
}

impl Begun {
    fn now(server: &Processes) -> Result<Self> {
        Ok(Self {
            cpu: server.cpu()?,
            switches: server.switches()?,
            start: now(),
        })
    }

    fn cost(self, server: &Processes, mut latencies: Vec<Duration>) -> Result<Cost> {
        let wall = self.start.elapsed();
        Ok(Cost {
            operations: latencies.len(),
            wall,
            cpu: server.cpu()?.saturating_sub(self.cpu),
            switches: server.switches()?.saturating_sub(self.switches),
            p50: percentile(&mut latencies, 50),
            p99: percentile(&mut latencies, 99),
        })
    }
}

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
    let connections = connect(target, clients).await?;
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Begun::now(server)?;
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
                latencies.push(timed(&mut connection, number, &operation).await?);
            }
        }));
    }
    let mut latencies = Vec::with_capacity(count);
    for task in tasks {
        latencies.extend(task.await.context("a client panicked")??);
    }
    begun.cost(server, latencies)
}

async fn connect(target: &Target, clients: usize) -> Result<Vec<Connection>> {
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(target.connect().await?);
    }
    Ok(connections)
}

async fn timed(connection: &mut Connection, number: usize, operation: &Operation) -> Result<Duration> {
    let begun = now();
    operation(connection, number).await?;
    Ok(begun.elapsed())
}

/// A number of operations at a steady rate, by clients that take turns.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub clients: usize,
    /// Operations a second, of all clients together.
    pub rate: u32,
    pub count: usize,
}

/// Runs operations at a rate that the server keeps up with, so that it sleeps between them. A client that is late sends at once.
///
/// # Errors
/// The first operation of a client that fails ends the run once the others have ended.
pub async fn run_at(target: &Target, server: &Processes, pace: Pace, operation: Operation) -> Result<Cost> {
    let connections = connect(target, pace.clients).await?;
    let handle = tokio::runtime::Handle::current();
    let begun = Begun::now(server)?;
    let start = begun.start;
    let clients = connections.into_iter().enumerate().map(|(first, connection)| {
        let (handle, operation) = (handle.clone(), operation.clone());
        // A thread for each, since the timer of the executor has steps of a millisecond.
        #[expect(
            clippy::disallowed_methods,
            reason = "a load generator has no cluster to end with"
        )]
        tokio::task::spawn_blocking(move || paced(&handle, connection, start, (first, pace), &operation))
    });
    let clients: Vec<_> = clients.collect();
    let mut latencies = Vec::with_capacity(pace.count);
    for client in clients {
        latencies.extend(client.await.context("a client panicked")??);
    }
    begun.cost(server, latencies)
}

/// Sends every operation of one client when it is due.
fn paced(
    handle: &tokio::runtime::Handle,
    mut connection: Connection,
    start: Instant,
    (first, pace): (usize, Pace),
    operation: &Operation,
) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    for number in (first..pace.count).step_by(pace.clients) {
        let due = start + Duration::from_secs_f64(number as f64 / f64::from(pace.rate));
        std::thread::sleep(due.saturating_duration_since(now()));
        latencies.push(handle.block_on(timed(&mut connection, number, operation))?);
    }
    Ok(latencies)
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
