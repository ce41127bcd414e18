//! Clients that send at a steady rate, as real ones do: a request finds the server asleep, and waking it costs more than the
//! request. Threads of the server that give their processor back are counted beside its CPU.

use super::load::{self, Cost, Pace};
use super::scenarios::{Bench, PODS, namespace, pod};
use anyhow::Result;
use bytes::Bytes;
use http::Method;
use std::sync::Arc;

/// Requests a second.
const RATES: [u32; 3] = [100, 1_000, 5_000];
/// Connections that share a rate.
const MANY: usize = 16;
const SECONDS: u32 = 15;
const NAMESPACE: &str = "bench-rates";
const CREATED: &str = "/api/v1/namespaces/bench-rates/pods";

impl Bench {
    /// Needs the pods of the creates.
    pub(super) async fn rates(&mut self) -> Result<()> {
        for rate in RATES {
            self.gets_at(rate, 1, false).await?;
        }
        for rate in RATES {
            self.gets_at(rate, 1, true).await?;
        }
        self.gets_at(1_000, MANY, false).await?;
        self.saturated_get().await?;
        namespace(&self.target, NAMESPACE).await?;
        for rate in [100, 1_000] {
            self.creates_at(rate).await?;
        }
        Ok(())
    }

    async fn gets_at(&mut self, rate: u32, clients: usize, http2: bool) -> Result<()> {
        let (target, protocol) = match http2 {
            true => (self.target.over_http2(), "HTTP/2"),
            false => (self.target.clone(), "HTTP/1.1"),
        };
        let cost = load::run_at(&target, &self.server, pace(rate, clients), self.get()).await?;
        let work = format!("GET a pod, {rate}/s, {protocol}, {}", connections(clients));
        self.add_rate(&work, &cost);
        Ok(())
    }

    /// One client as fast as it can, to compare with.
    async fn saturated_get(&mut self) -> Result<()> {
        let cost = load::run(&self.target, &self.server, 1, self.sizes.gets, self.get()).await?;
        self.add_rate("GET a pod, HTTP/1.1, one connection without a pause", &cost);
        Ok(())
    }

    async fn creates_at(&mut self, rate: u32) -> Result<()> {
        let create: load::Operation = Arc::new(move |client, number| {
            // Names of another rate's are taken.
            let body = pod(rate as usize * 1_000_000 + number);
            Box::pin(async move { client.send_json(Method::POST, CREATED, body).await.map(drop) })
        });
        let cost = load::run_at(&self.target, &self.server, pace(rate, 1), create).await?;
        let work = format!("create a 1.5 KB pod, {rate}/s, HTTP/1.1, one connection");
        self.add_rate(&work, &cost);
        Ok(())
    }

    fn get(&self) -> load::Operation {
        let pods = self.sizes.pods;
        Arc::new(move |client, number| {
            let path = format!("{PODS}/pod-{}", number % pods);
            Box::pin(async move { client.call(Method::GET, &path, &[], Bytes::new()).await.map(drop) })
        })
    }

    fn add_rate(&mut self, work: &str, cost: &Cost) {
        let text = format!(
            "{:.0} µs CPU, {:.1} switches, {:.0}/s, p50 {:.2} ms, p99 {:.2} ms",
            cost.cpu_micros(),
            cost.switches_each(),
            cost.per_second(),
            cost.p50.as_secs_f64() * 1e3,
            cost.p99.as_secs_f64() * 1e3
        );
        self.add(work, text);
    }
}

fn pace(rate: u32, clients: usize) -> Pace {
    let count = (rate * SECONDS) as usize;
    Pace { clients, rate, count }
}

fn connections(clients: usize) -> String {
    match clients {
        1 => "one connection".to_owned(),
        many => format!("{many} connections"),
    }
}
