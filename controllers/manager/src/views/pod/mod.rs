//! Fields of a pod that controllers read.

mod wire;

use crate::views::device_claims::{self, DeviceClaim, DeviceClaims};
use crate::views::{created, find, time};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use machinery_client::{Index, IndexName, LongList, Object, Projection};
use machinery_meta::ObjectHeader;
use machinery_semantics::endpoints::{NamedPort, sort_named};
use machinery_semantics::pod_status;
use serde::Deserialize;
use wire::{Pod, Spec, Volume};

/// Phase of a pod's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
pub enum Phase {
    /// Not all containers have started.
    #[default]
    Pending,
    /// They have.
    Running,
    /// All ended well.
    Succeeded,
    /// All ended, one badly.
    Failed,
    /// Its node has not reported.
    #[serde(other)]
    Unknown,
}

/// The projection of a pod.
#[derive(Debug, Clone, Default)]
pub struct PodView {
    /// `status.phase`.
    pub phase: Phase,
    /// `Ready` is true.
    pub ready: bool,
    /// Time since which it is ready.
    pub ready_since: Option<Timestamp>,
    /// Its `Ready` condition, whatever it says.
    pub readiness: Option<Readiness>,
    /// `status.startTime`.
    pub started: Option<Timestamp>,
    /// Requests for cpu and memory.
    pub requests: Requests,
    /// Time of creation.
    pub created: Timestamp,
    /// `spec.nodeName`, empty while unassigned.
    pub node: Box<str>,
    /// The node it is for: its own, or while unassigned the one that its required affinity names. Empty for any.
    pub target_node: Box<str>,
    /// `controller.kubernetes.io/pod-deletion-cost`.
    pub deletion_cost: i32,
    /// The largest restart count of its containers.
    pub restarts: i32,
    /// The largest restart count of its sidecars.
    pub sidecar_restarts: i32,
    /// The restarts of all its containers together, those that run first among them.
    pub restarts_together: i32,
    /// `status.podIPs`.
    pub ips: Box<[Box<str>]>,
    /// `spec.hostname`.
    pub hostname: Box<str>,
    /// `spec.subdomain`.
    pub subdomain: Box<str>,
    /// Named ports of containers and sidecars.
    pub ports: Box<[NamedPort]>,
    /// `spec.tolerations`.
    pub tolerations: LongList<Toleration>,
    /// `batch.kubernetes.io/job-completion-index`.
    pub completion_index: Option<u32>,
    /// `batch.kubernetes.io/job-index-failure-count`.
    pub index_failures: i32,
    /// `batch.kubernetes.io/job-index-ignored-failure-count`.
    pub index_ignored_failures: i32,
    /// Its node has evicted it: it has failed, for the reason `Evicted`.
    pub evicted: bool,
    /// `metadata.deletionGracePeriodSeconds`.
    pub deletion_grace_seconds: Option<i64>,
    /// Fields that a failure policy reads, once the pod has failed or is being disrupted.
    pub ending: Option<Box<Ending>>,
    /// Time since which it is to be disrupted (`DisruptionTarget`), unless the kubelet ends it or it has ended.
    pub disrupted_since: Option<Timestamp>,
    /// It has scheduling gates.
    pub gated: bool,
    /// Time at which its last container ended, once all have.
    pub finished_at: Option<Timestamp>,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_seconds: i64,
    /// The claims its volumes are bound by, those made for it included.
    pub claims: Box<[PodClaim]>,
    /// One of its containers runs, or is about to: a pod that goes without one is done.
    pub runs: bool,
    /// Its claims of devices, where it has some.
    pub device_claims: Option<Box<DeviceClaims>>,
}

/// The claim of a pod's volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodClaim {
    /// Its name, in the pod's namespace.
    pub name: Box<str>,
    /// The volume is a generic ephemeral one, whose claim belongs to the pod.
    pub is_made_for_pod: bool,
}

/// The `Ready` condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// It is false, and not only unknown.
    pub is_false: bool,
    /// Time at which it changed.
    pub since: Option<Timestamp>,
}

/// Requests for the resources that are measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    /// `spec.resources.requests`, where the pod has some for itself.
    pub of_pod: Option<Amounts>,
    /// Of each container and sidecar, by name.
    pub of_containers: Box<[(Box<str>, Amounts)]>,
}

/// Amounts in thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    cpu: Option<i64>,
    memory: Option<i64>,
}

impl Amounts {
    /// The amount of a resource; of others than cpu and memory there is none.
    pub fn of(&self, resource: &str) -> Option<i64> {
        match resource {
            "cpu" => self.cpu,
            "memory" => self.memory,
            _ => None,
        }
    }
}

/// The way a pod ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ending {
    /// Its containers with a non-zero exit code.
    pub exit_codes: Vec<(Box<str>, i32)>,
    /// Its conditions, as type and status.
    pub conditions: Vec<(Box<str>, Box<str>)>,
}

impl PodView {
    /// Pods on a node.
    pub const NODE: IndexName = IndexName("node");
    /// Pods without a controller, by namespace.
    pub const ORPHANS: IndexName = IndexName("orphans");

    /// Pods that name a claim of devices, or for which it was made, by `namespace/name`.
    pub const DEVICE_CLAIM: IndexName = IndexName("device claim");
    /// Pods that name a template of such claims, by `namespace/name`.
    pub const DEVICE_TEMPLATE: IndexName = IndexName("device claim template");

    /// Reports whether some of its claims are made for it.
    pub fn has_ephemeral(&self) -> bool {
        self.claims.iter().any(|claim| claim.is_made_for_pod)
    }

    /// Its containers have ended for good.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Ready for at least so many seconds.
    pub fn is_available(&self, min_ready_seconds: i32, now: Timestamp) -> bool {
        self.ready && self.available_at(min_ready_seconds).is_some_and(|at| at <= now)
    }

    /// Time at which a ready pod becomes available.
    pub fn available_at(&self, min_ready_seconds: i32) -> Option<Timestamp> {
        pod_status::available_at(self.ready_since, min_ready_seconds)
    }
}

/// Reports whether a pod still counts for its controller: not finished, not being deleted.
pub fn is_active(pod: &Object<PodView>) -> bool {
    !pod.is_terminal() && !pod.header.is_deleting()
}

impl Projection for PodView {
    const INDEXES: &'static [Index<Self>] = &[
        Index::NAMESPACE,
        Index::CONTROLLER,
        Index {
            name: Self::NODE,
            values: |pod, each| each(&pod.node),
        },
        Index {
            name: Self::ORPHANS,
            values: |pod, each| {
                if pod.header.controller().is_none() {
                    each(pod.namespace());
                }
            },
        },
        Index {
            name: Self::DEVICE_CLAIM,
            values: |pod, each| {
                let claims = pod.device_claims.iter().flat_map(|own| own.names());
                claims.for_each(|name| each(&format!("{}/{name}", pod.namespace())));
            },
        },
        Index {
            name: Self::DEVICE_TEMPLATE,
            values: |pod, each| {
                let claims = pod.device_claims.iter().flat_map(|own| &own.claims);
                let templates = claims.filter_map(DeviceClaim::template);
                templates.for_each(|name| each(&format!("{}/{name}", pod.namespace())));
            },
        },
    ];

    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let pod: Pod = machinery_client::json::from_slice(json)?;
        let (spec, status) = (pod.spec, pod.status);
        let readiness = find(&status.conditions, "Ready");
        let ready = readiness.filter(|condition| condition.is_true());
        let annotation = |name: &str| pod.metadata.annotations.get(name).map(String::as_str);
        let ends = |phase: Phase| matches!(phase, Phase::Failed | Phase::Succeeded);
        Ok(Self {
            phase: status.phase,
            ready: ready.is_some(),
            ready_since: ready.and_then(|ready| time(ready.last_transition_time.as_deref())),
            readiness: readiness.map(|own| Readiness {
                is_false: own.status == "False",
                since: time(own.last_transition_time.as_deref()),
            }),
            started: time(status.start_time.as_deref()),
            requests: spec.requests(),
            created: created(header),
            deletion_cost: annotation("controller.kubernetes.io/pod-deletion-cost")
                .and_then(|cost| cost.parse().ok())
                .unwrap_or(0),
            restarts: status
                .container_statuses
                .iter()
                .map(|own| own.restart_count)
                .max()
                .unwrap_or(0),
            sidecar_restarts: status.sidecar_restarts(&spec),
            restarts_together: status
                .init_container_statuses
                .iter()
                .chain(&status.container_statuses)
                .fold(0, |sum, own| sum.saturating_add(own.restart_count)),
            completion_index: annotation("batch.kubernetes.io/job-completion-index")
                .and_then(|index| index.parse().ok()),
            index_failures: count(annotation("batch.kubernetes.io/job-index-failure-count")),
            index_ignored_failures: count(annotation("batch.kubernetes.io/job-index-ignored-failure-count")),
            evicted: status.phase == Phase::Failed && status.reason == "Evicted",
            deletion_grace_seconds: pod.metadata.deletion_grace_period_seconds,
            ports: named_ports(&spec),
            finished_at: status.last_end(&spec),
            ending: (status.phase == Phase::Failed || header.is_deleting())
                .then(|| Box::new(status.ending())),
            disrupted_since: (!ends(status.phase)).then(|| status.disrupted_since()).flatten(),
            ips: status.ips(),
            runs: status.runs(),
            target_node: spec.target_node(),
            node: spec.node_name,
            hostname: spec.hostname,
            subdomain: spec.subdomain,
            tolerations: spec.tolerations,
            device_claims: device_claims::read(
                spec.resource_claims,
                status.resource_claim_statuses,
                status.extended_resource_claim_status,
                spec.scheduling_group.is_some(),
            ),
            claims: claims(header, &spec.volumes),
            gated: !spec.scheduling_gates.is_empty(),
            grace_seconds: spec.termination_grace_period_seconds.unwrap_or(30),
        })
    }
}

/// A count that the controller has written; what is none counts nothing.
fn count(text: Option<&str>) -> i32 {
    text.and_then(|text| text.parse().ok())
        .map_or(0, |count: i32| count.max(0))
}

/// An ephemeral volume's claim is named for its pod.
fn claims(header: &ObjectHeader, volumes: &[Volume]) -> Box<[PodClaim]> {
    let claim = |volume: &Volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(PodClaim {
            name: claim.claim_name.clone(),
            is_made_for_pod: false,
        }),
        (None, Some(_)) => Some(PodClaim {
            name: format!("{}-{}", header.key.name, volume.name).into(),
            is_made_for_pod: true,
        }),
        (None, None) => None,
    };
    volumes.iter().filter_map(claim).collect()
}

fn named_ports(spec: &Spec) -> Box<[NamedPort]> {
    let all = spec.lasting_containers().flat_map(|own| &own.ports);
    let named = all.filter_map(|port| {
        Some(NamedPort {
            name: port.name.clone()?,
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            port: port.container_port,
        })
    });
    let mut named: Vec<NamedPort> = named.collect();
    sort_named(&mut named);
    named.into()
}
