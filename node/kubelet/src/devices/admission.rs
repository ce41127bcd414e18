//! A pod's turn at the devices that it requests.
//!
//! Pods are admitted beside one another. One that has been given devices may still be rejected, and until that is known it
//! holds the turns of its resources: pods that ask for the same ones wait, and are not refused for what the node is about to
//! get back. Turns are taken in the order of the resources' names, so that no two pods wait for each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::sync::OwnedMutexGuard;

use super::PLUGINS_MAX;
use super::claims::{Claim, requests};
use super::manager::DeviceManager;
use crate::pods::uid;

/// The turn of a pod. Dropped, the pod loses what it was given meanwhile, and then the next pod is admitted.
#[derive(Debug)]
pub(crate) struct Admission<'a> {
    devices: &'a DeviceManager,
    /// Uid of the pod.
    pod: String,
    /// Resources whose turns it holds.
    resources: BTreeSet<String>,
    /// Containers that were given devices meanwhile, and of which resource.
    given: Vec<(String, String)>,
    _turns: Vec<OwnedMutexGuard<()>>,
}

impl Admission<'_> {
    /// The pod is admitted, and keeps its devices.
    pub(crate) fn keep(mut self) {
        self.given.clear();
    }

    /// Reports whether the pod has the turn of a resource.
    pub(super) fn holds(&self, resource: &str) -> bool {
        self.resources.contains(resource)
    }

    /// The pod was given devices.
    pub(super) fn given(&mut self, claim: Claim<'_>) {
        self.given
            .push((claim.container.to_owned(), claim.resource.to_owned()));
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.devices.take_back(&self.pod, &self.given);
    }
}

impl DeviceManager {
    /// Waits for the turn of a pod at all that these containers request of plugins.
    pub(crate) async fn begin_admission(&self, pod: &Pod, containers: &[&Container]) -> Admission<'_> {
        let resources: BTreeSet<String> = {
            let state = self.state.lock();
            let requested = containers.iter().flat_map(|container| requests(container));
            let of_plugins = requested.filter(|(resource, _)| state.has(resource));
            of_plugins.map(|(resource, _)| resource.to_owned()).collect()
        };
        let mut turns = Vec::new();
        for resource in &resources {
            turns.push(self.turn(resource).lock_owned().await);
        }
        Admission {
            devices: self,
            pod: uid(pod).to_owned(),
            resources,
            given: Vec::new(),
            _turns: turns,
        }
    }

    fn turn(&self, resource: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock();
        if turns.len() >= PLUGINS_MAX {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(resource.to_owned()).or_default().clone()
    }
}
