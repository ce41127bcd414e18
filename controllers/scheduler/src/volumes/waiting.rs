//! Pods on their nodes whose claims are being bound: no binding in flight, nothing but an entry here.

use super::reservation::Reservation;
use crate::pod::PodInfo;
use machinery_meta::ObjectKey;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// A pod and its reservation, of which everything is written.
#[derive(Debug)]
pub(crate) struct WaitingPod {
    pub(crate) pod: Arc<PodInfo>,
    pub(crate) node: Box<str>,
    pub(crate) reservation: Reservation,
    /// Beginning of the wait.
    pub(crate) since: Duration,
    pub(crate) ends: Ends,
}

/// Times at which a pod waits no more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    /// For its volumes, where it waits for some.
    pub(crate) volumes: Option<Duration>,
    /// For conditions of its devices.
    pub(crate) devices: Option<Duration>,
}

impl Ends {
    fn first(self) -> Option<Duration> {
        [self.volumes, self.devices].into_iter().flatten().min()
    }
}

/// Pods by key, by the claims that they wait for, and by the time at which they wait no more.
#[derive(Debug, Default)]
pub(crate) struct WaitingPods {
    pods: BTreeMap<ObjectKey, WaitingPod>,
    of_claim: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    ends: BTreeSet<(Duration, ObjectKey)>,
}

impl WaitingPods {
    pub(crate) fn insert(
        &mut self,
        pod: &Arc<PodInfo>,
        node: &str,
        reservation: Reservation,
        since: Duration,
        ends: Ends,
    ) {
        let key = &pod.key;
        self.remove(key);
        for claim in reservation.claims() {
            self.of_claim
                .entry(claim.clone())
                .or_default()
                .insert(key.clone());
        }
        self.ends.extend(ends.first().map(|end| (end, key.clone())));
        let waiting = WaitingPod {
            pod: Arc::clone(pod),
            node: node.into(),
            reservation,
            since,
            ends,
        };
        self.pods.insert(key.clone(), waiting);
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<WaitingPod> {
        let waiting = self.pods.remove(key)?;
        for claim in waiting.reservation.claims() {
            if let Some(pods) = self.of_claim.get_mut(claim) {
                pods.remove(key);
                if pods.is_empty() {
                    self.of_claim.remove(claim);
                }
            }
        }
        if let Some(end) = waiting.ends.first() {
            self.ends.remove(&(end, key.clone()));
        }
        Some(waiting)
    }

    /// The pod's volumes are bound: it waits for its devices alone.
    pub(crate) fn volumes_are_bound(&mut self, key: &ObjectKey) {
        let Some(own) = self.pods.get_mut(key) else {
            return;
        };
        let before = own.ends.first();
        own.ends.volumes = None;
        let after = own.ends.first();
        if let Some(end) = before {
            self.ends.remove(&(end, key.clone()));
        }
        self.ends.extend(after.map(|end| (end, key.clone())));
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&WaitingPod> {
        self.pods.get(key)
    }

    /// Pods that wait for the claim.
    pub(crate) fn of_claim(&self, claim: &ObjectKey) -> Vec<ObjectKey> {
        self.of_claim.get(claim).into_iter().flatten().cloned().collect()
    }

    /// Pods that wait on the node.
    pub(crate) fn on_node(&self, node: &str) -> Vec<ObjectKey> {
        let all = self.pods.values().filter(|own| *own.node == *node);
        all.map(|own| own.pod.key.clone()).collect()
    }

    /// The next time at which one waits no more.
    pub(crate) fn next_end(&self) -> Option<Duration> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// A pod that has waited long enough.
    pub(crate) fn overdue(&self, now: Duration) -> Option<ObjectKey> {
        let (end, key) = self.ends.first()?;
        (*end <= now).then(|| key.clone())
    }
}
