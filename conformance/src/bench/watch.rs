//! A watch as a client reads it, event by event.

use super::connection::{Connection, Target};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::Value;

/// Event of one object.
#[derive(Debug, Deserialize)]
pub(crate) struct Event {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) object: Value,
}

impl Event {
    pub(crate) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// An open watch on a connection of its own.
#[derive(Debug)]
pub(crate) struct Watch {
    body: Incoming,
    unread: Vec<u8>,
    _open: Connection,
}

impl Watch {
    /// Begins with everything that is there, as a watch without a revision does.
    pub(crate) async fn open(target: &Target, collection: &str) -> Result<Self> {
        let mut client = target.connect().await?;
        let path = format!("{collection}?watch=true");
        let response = client.open(Method::GET, &path, &[], Bytes::new()).await?;
        ensure!(response.status().is_success(), "{path}: {}", response.status());
        Ok(Self {
            body: response.into_body(),
            unread: Vec::new(),
            _open: client,
        })
    }

    /// The next event. Every event ends in a line feed, and JSON has none inside.
    pub(crate) async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Ok(serde_json::from_slice(&line)?);
            }
            let frame = self.body.frame().await.context("the watch ended")??;
            if let Some(data) = frame.data_ref() {
                self.unread.extend_from_slice(data);
            }
        }
    }
}
