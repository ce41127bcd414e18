//! Calls to agents: few at a time to each node, none to one that is not ready, and none for long.

use super::calls::NodeCalls;
use crate::views::{self, NodeView};
use k8s_openapi::api::core::v1::Node;
use machinery_client::{ApiResource, Client, Informer};
use machinery_meta::ObjectKey;
use machinery_reconcile::WorkQueue;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time for a call; the agent removes folders in the background.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest path that is taken from a node.
const MAX_PATH_BYTES: usize = 4_096;
/// Longest answer that is read from a node.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Answer of a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The folder is there, at this path.
    Made(String),
    /// The folder is not there, or not any more.
    Gone,
    /// It is being removed.
    Removing,
    /// The disk is full.
    NoRoom(String),
}

/// A call that was not made, or not answered.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// There is no such node.
    NoNode,
    /// It is not ready, or enough calls to it wait: the next try is later.
    Later,
    Failed(String),
}

/// The nodes, and calls that wait for them.
pub(super) struct Nodes {
    client: Client,
    nodes: Informer<NodeView>,
    /// Claims and volumes that are to be reconciled.
    queue: WorkQueue<ObjectKey>,
    calls: Mutex<BTreeMap<String, NodeCalls>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Reply {
    path: Option<String>,
    gone: bool,
    removing: bool,
    no_room: Option<String>,
    error: Option<String>,
}

impl Nodes {
    pub(super) fn new(client: Client, nodes: Informer<NodeView>, queue: WorkQueue<ObjectKey>) -> Self {
        Self {
            client,
            nodes,
            queue,
            calls: Mutex::default(),
        }
    }

    /// The host name that a node's label says.
    pub(super) fn host_name(&self, node: &str) -> Option<String> {
        let node = self.nodes.get(&ObjectKey::cluster(node))?;
        let label = node.header.label("kubernetes.io/hostname");
        Some(label.unwrap_or_else(|| node.name()).to_owned())
    }

    /// Reports whether a call would only be put off, from what is known: nothing is read or written for it then. It is in line for
    /// a node that has enough calls.
    pub(super) fn puts_off(&self, node: &str, key: &ObjectKey) -> bool {
        let known = self.nodes.get(&ObjectKey::cluster(node));
        if known.is_some_and(|known| !is_ready(&known)) {
            return true;
        }
        !self.with_calls(node, |calls| calls.admits(key))
    }

    fn with_calls<T>(&self, node: &str, change: impl FnOnce(&mut NodeCalls) -> T) -> T {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let own = calls.entry(node.to_owned());
        let own = own.or_insert_with(|| NodeCalls::new(self.client.runtime()));
        let changed = change(own);
        if own.is_idle() {
            calls.remove(node);
        }
        changed
    }

    /// Makes the folder; one that is there stays as it is.
    pub(super) async fn make(&self, node: &str, volume: &str) -> Result<Answer, NoAnswer> {
        self.call(node, &format!("proxy/localVolumes/{volume}")).await
    }

    /// Removes the folder.
    pub(super) async fn remove(&self, node: &str, volume: &str) -> Result<Answer, NoAnswer> {
        self.call(node, &format!("proxy/localVolumes/{volume}/removal"))
            .await
    }

    async fn call(&self, node: &str, subresource: &str) -> Result<Answer, NoAnswer> {
        let known = self
            .nodes
            .get(&ObjectKey::cluster(node))
            .ok_or(NoAnswer::NoNode)?;
        if !is_ready(&known) {
            return Err(NoAnswer::Later);
        }
        let _call = Call::begin(self, node).ok_or(NoAnswer::Later)?;
        let (resource, key) = (ApiResource::of::<Node>(), ObjectKey::cluster(node));
        let body = serde_json::json!({});
        let called =
            self.client
                .create_subresource_within(&resource, &key, subresource, &body, MAX_ANSWER_BYTES);
        let answered = self.client.runtime().timeout(CALL_TIMEOUT, called).await;
        let failed = |why: String| NoAnswer::Failed(format!("node {node:?}: {why}"));
        let bytes = answered
            .map_err(|_| failed(format!("no answer within {} s", CALL_TIMEOUT.as_secs())))?
            .map_err(|error| failed(error.chain()))?;
        let reply: Reply = serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))?;
        reply.read(volume_of(subresource)).map_err(failed)
    }
}

impl Reply {
    /// Takes a path that ends with the name of the volume alone: where it lies is the agent's matter, and no other agent's
    /// (it mounts its own folder of that name).
    fn read(self, volume: &str) -> Result<Answer, String> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if let Some(why) = self.no_room {
            return Ok(Answer::NoRoom(why));
        }
        match self.path {
            Some(path) if is_folder_of(&path, volume) => Ok(Answer::Made(path)),
            Some(_) => Err("its path is not the plain, absolute one of the volume, or too long".to_owned()),
            None if self.gone => Ok(Answer::Gone),
            None if self.removing => Ok(Answer::Removing),
            None => Err("its answer has no message".to_owned()),
        }
    }
}

fn is_ready(node: &NodeView) -> bool {
    views::find(&node.conditions, "Ready").is_some_and(views::Condition::is_true)
}

/// The volume that a call is about.
fn volume_of(subresource: &str) -> &str {
    subresource.split('/').nth(2).unwrap_or_default()
}

fn is_folder_of(path: &str, volume: &str) -> bool {
    let mut parts = path
        .strip_prefix('/')
        .into_iter()
        .flat_map(|rest| rest.rsplit('/'));
    let is_own = parts.next() == Some(volume) && parts.all(|part| !["", ".", ".."].contains(&part));
    is_own && path.len() <= MAX_PATH_BYTES
}

/// One of a node's calls, for as long as it lives.
struct Call<'a> {
    nodes: &'a Nodes,
    node: String,
}

impl<'a> Call<'a> {
    fn begin(nodes: &'a Nodes, node: &str) -> Option<Self> {
        let begun = nodes.with_calls(node, NodeCalls::begin);
        begun.then(|| Self {
            nodes,
            node: node.to_owned(),
        })
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(next) = self.nodes.with_calls(&self.node, NodeCalls::end) {
            self.nodes.queue.add(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reply: &str, expected: Result<Answer, &str>) {
        let reply: Reply = serde_json::from_str(reply).unwrap();
        assert_eq!(
            reply.read(volume_of("proxy/localVolumes/b")),
            expected.map_err(str::to_owned)
        );
    }

    #[test]
    fn answers_of_nodes_are_not_taken_on_trust() {
        check(r#"{"path":"/a/b"}"#, Ok(Answer::Made("/a/b".to_owned())));
        let wrong = "its path is not the plain, absolute one of the volume, or too long";
        for path in [
            "b",
            "/",
            "/a",
            "/a/",
            "/a/b/",
            "/a/../b",
            "/./b",
            "//b",
            "/a/c/removal",
        ] {
            check(&format!(r#"{{"path":"{path}"}}"#), Err(wrong));
        }
        let long = format!(r#"{{"path":"/{}/b"}}"#, "a".repeat(MAX_PATH_BYTES));
        check(&long, Err(wrong));
        check(r#"{"noRoom":"full"}"#, Ok(Answer::NoRoom("full".to_owned())));
        check(r#"{"gone":true}"#, Ok(Answer::Gone));
        check(r#"{"removing":true}"#, Ok(Answer::Removing));
        check(r#"{"error":"why","path":"/a"}"#, Err("why"));
        check("{}", Err("its answer has no message"));
    }
}
