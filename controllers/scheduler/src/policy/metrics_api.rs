//! Live usage of nodes from the metrics API (`metrics.k8s.io`), fetched while a policy requests it.

use crate::usage::Sample;
use jiff::Timestamp;
use machinery_client::client::decode;
use machinery_client::{Client, ClientError};
use machinery_meta::Quantity;
use machinery_runtime::{Runtime, Watched};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const NODES: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
/// Samples are made about as often.
const FETCH_EVERY: Duration = Duration::from_secs(15);
/// Pause after a failure.
const TRY_AGAIN: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    timestamp: Timestamp,
    usage: Usage,
}

#[derive(Deserialize)]
struct Metadata {
    name: Box<str>,
}

#[derive(Deserialize)]
struct Usage {
    cpu: Box<str>,
    memory: Box<str>,
}

/// Fetches while `wanted` says so, until its receiver is gone.
pub(crate) async fn follow(
    client: Client,
    runtime: Runtime,
    wanted: Arc<Watched<bool>>,
    samples: mpsc::Sender<Vec<Sample>>,
) {
    loop {
        wanted.wait_for(|wanted| *wanted).await;
        let pause = match fetch(&client, &runtime).await {
            Ok(fetched) => {
                if samples.send(fetched).await.is_err() {
                    return;
                }
                FETCH_EVERY
            }
            Err(error) => {
                tracing::debug!(error = %error.chain(), "usage of nodes cannot be fetched");
                TRY_AGAIN
            }
        };
        runtime.sleep(pause).await;
    }
}

async fn fetch(client: &Client, runtime: &Runtime) -> Result<Vec<Sample>, ClientError> {
    let body = client.get_path(NODES, &[]).await?;
    let list: List = decode("the usage of nodes", &body)?;
    let clocks = (runtime.now(), runtime.monotonic());
    Ok(list.items.iter().map(|item| sample(item, clocks)).collect())
}

/// The sample on the scheduler's clock; one from the future is of now.
fn sample(item: &Item, (now, monotonic): (Timestamp, Duration)) -> Sample {
    let age = Duration::try_from(now.duration_since(item.timestamp)).unwrap_or_default();
    let amount = |text: &str| text.parse::<Quantity>().ok();
    Sample {
        node: item.metadata.name.clone(),
        milli_cpu: amount(&item.usage.cpu).map_or(0, |own| own.millis()),
        memory: amount(&item.usage.memory).map_or(0, |own| own.units()),
        taken_at: monotonic.saturating_sub(age),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_as_the_server_writes_it() {
        let text = r#"{"kind":"NodeMetricsList","items":[{"metadata":{"name":"n"},"window":"10s",
            "timestamp":"2026-11-28T04:00:00Z","usage":{"cpu":"250500000n","memory":"2048Ki"}}]}"#;
        let list: List = serde_json::from_str(text).unwrap();
        let later: Timestamp = "2026-11-28T04:00:09Z".parse().unwrap();
        let read = sample(&list.items[0], (later, Duration::from_secs(20)));
        let expected = Sample {
            node: "n".into(),
            milli_cpu: 251,
            memory: 2 << 20,
            taken_at: Duration::from_secs(11),
        };
        assert_eq!(read, expected);
        let before: Timestamp = "2026-11-28T03:59:00Z".parse().unwrap();
        let read = sample(&list.items[0], (before, Duration::from_secs(20)));
        assert_eq!(read.taken_at, Duration::from_secs(20), "its clock is ahead");
    }
}
