//! Kubelets of all nodes: they renew leases, run pods to their ends, and write what they know again where others wrote over
//! it. A dead one does nothing until it returns, and then goes on as if nothing had been.

use crate::model::{ObjectVersion, ReferenceModel};
use crate::simulated_cluster::World;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_client::{ApiResource, Patch};
use machinery_meta::{ObjectKey, Uid};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const LEASES: &str = "kube-node-lease";
const RENEW_EVERY: Duration = Duration::from_secs(9);
const CPU: u64 = 4_000;
/// Longest times from being seen to ready, from there to the end of a pod that ends, and from a deletion to its end.
const START_MILLIS: u64 = 15_000;
const WORK_MILLIS: u64 = 40_000;
const STOP_MILLIS: u64 = 8_000;
/// One in so many pods that end fails, and one in so many that do not end by themselves.
const FAILS_ONE_IN: u64 = 4;
const EVICTED_ONE_IN: u64 = 20;

#[derive(Default)]
pub(crate) struct Kubelets {
    nodes: BTreeMap<String, Kubelet>,
    addresses: u64,
    /// Pods that a node takes.
    room: u64,
    /// Pods end well, as soon as they may.
    healed: bool,
}

#[derive(Default)]
struct Kubelet {
    dead_until: Duration,
    renewed: Option<Duration>,
    pods: BTreeMap<Uid, Run>,
}

/// Fate of a pod on its node.
struct Run {
    address: String,
    ready_at: Duration,
    /// The end, and whether it is a good one.
    end: Option<(Duration, bool)>,
    gone_at: Option<Duration>,
}

impl Kubelets {
    pub(crate) fn new(names: impl IntoIterator<Item = String>, room: u64) -> Self {
        Self {
            nodes: names.into_iter().map(|name| (name, Kubelet::default())).collect(),
            room,
            ..Self::default()
        }
    }

    pub(crate) fn kill(&mut self, name: &str, until: Duration) {
        if let Some(kubelet) = self.nodes.get_mut(name) {
            kubelet.dead_until = kubelet.dead_until.max(until);
        }
    }

    /// All return, and no pod fails any more.
    pub(crate) fn heal(&mut self) {
        self.healed = true;
        for kubelet in self.nodes.values_mut() {
            kubelet.dead_until = Duration::ZERO;
        }
    }

    pub(crate) async fn run(&mut self, world: &World, model: &ReferenceModel) {
        let now = world.runtime.monotonic();
        for (name, kubelet) in &mut self.nodes {
            if kubelet.dead_until <= now {
                kubelet.report(world, model, name, self.room).await;
                let pods = model.all("Pod").filter(|pod| pod.text("/spec/nodeName") == name);
                kubelet.pods.retain(|uid, _| model.by_uid(&uid.0).is_some());
                for pod in pods {
                    kubelet.sync(world, pod, &mut self.addresses, self.healed).await;
                }
            }
        }
    }
}

impl Kubelet {
    /// Registers the node where it is not there, renews its lease, and says that it is ready.
    async fn report(&mut self, world: &World, model: &ReferenceModel, name: &str, room: u64) {
        let now = world.runtime.monotonic();
        match model.get("Node", "", name) {
            None => world.create_node(name, CPU, room).await,
            Some(node) if node.condition("Ready") != "True" => {
                let body = json!({"status": {"conditions": [world.condition("Ready", true)]}});
                write::<Node>(world, &node.key, "status", body).await;
            }
            Some(_) => {}
        }
        if self.renewed.is_some_and(|last| now - last < RENEW_EVERY) {
            return;
        }
        self.renewed = Some(now);
        let time = world.runtime.now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let spec = json!({"holderIdentity": name, "renewTime": time, "leaseDurationSeconds": 40});
        if model.get("Lease", LEASES, name).is_some() {
            let key = ObjectKey::new(LEASES, name);
            return write::<Lease>(world, &key, "", json!({"spec": spec})).await;
        }
        let lease = json!({"metadata": {"name": name, "namespace": LEASES}, "spec": spec});
        drop(world.create::<Lease>(lease).await);
    }

    async fn sync(&mut self, world: &World, pod: &ObjectVersion, addresses: &mut u64, healed: bool) {
        let now = world.runtime.monotonic();
        let run = self.pods.entry(pod.uid.clone()).or_insert_with(|| {
            *addresses += 1;
            Run::new(world, pod, *addresses, healed)
        });
        if pod.is_deleting() {
            let gone_at = run
                .gone_at
                .get_or_insert_with(|| now + millis(world, STOP_MILLIS));
            if *gone_at > now && !healed {
                return;
            }
            if !pod.is_ended_pod() {
                run.end.get_or_insert((now, false));
                run.write(world, pod, now).await;
            }
            return world.pod_has_ended(pod).await;
        }
        if healed && let Some((_, is_good)) = &mut run.end {
            *is_good = true;
        }
        // An end stands, whichever component wrote it.
        if !pod.is_ended_pod() {
            run.write(world, pod, now).await;
        }
    }
}

impl Run {
    fn new(world: &World, pod: &ObjectVersion, number: u64, healed: bool) -> Self {
        let ready_at = world.runtime.monotonic() + millis(world, START_MILLIS);
        let ends = pod.text("/spec/restartPolicy") != "Always";
        let end_at = ready_at + millis(world, WORK_MILLIS);
        let is_good = healed || !world.once_in(FAILS_ONE_IN);
        let is_evicted = !healed && world.once_in(EVICTED_ONE_IN);
        let end = match ends {
            true => Some((end_at, is_good)),
            false => is_evicted.then_some((end_at, false)),
        };
        Self {
            address: format!("10.1.{}.{}", number / 250, number % 250 + 1),
            ready_at,
            end,
            gone_at: None,
        }
    }

    /// Phase and readiness that the node knows.
    fn state(&self, now: Duration) -> (&'static str, bool) {
        match self.end {
            Some((at, true)) if at <= now => ("Succeeded", false),
            Some((at, false)) if at <= now => ("Failed", false),
            _ => ("Running", self.ready_at <= now),
        }
    }

    /// Writes the pod's status where it is another than the node knows.
    async fn write(&self, world: &World, pod: &ObjectVersion, now: Duration) {
        let (phase, ready) = self.state(now);
        let is_ready = pod.condition("Ready") == "True";
        if pod.text("/status/phase") == phase && is_ready == ready && !pod.condition("Ready").is_empty() {
            return;
        }
        let conditions = ["Initialized", "Ready", "ContainersReady"]
            .map(|kind| condition(world, kind, ready || kind == "Initialized"));
        let status = json!({"phase": phase, "podIP": self.address, "podIPs": [{"ip": self.address}], "conditions": conditions});
        let body = json!({"metadata": {"uid": pod.uid.0}, "status": status});
        write::<Pod>(world, &pod.key, "status", body).await;
    }
}

fn condition(world: &World, kind: &str, holds: bool) -> Value {
    let status = if holds { "True" } else { "False" };
    json!({"type": kind, "status": status, "lastTransitionTime": world.now()})
}

fn millis(world: &World, longest: u64) -> Duration {
    Duration::from_millis(world.dice(longest))
}

/// Changes an object; one that is gone, or another one by now, is left alone.
async fn write<K: k8s_openapi::Resource<Scope: 'static>>(
    world: &World,
    key: &ObjectKey,
    subresource: &str,
    body: Value,
) {
    let resource = ApiResource::of::<K>();
    let sent = world
        .client
        .patch(&resource, key, subresource, &Patch::Strategic, &body)
        .await;
    match sent {
        Err(error) if !error.is_not_found() && !error.is_conflict() => {
            panic!("patching {key} with {body}: {error}")
        }
        _ => {}
    }
}
