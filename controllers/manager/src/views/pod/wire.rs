//! A pod as the API writes it, as far as its view reads it.

use super::{Amounts, Ending, Phase, Requests};
use crate::views::{Condition, device_claims, find, time};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerPort, Toleration};
use machinery_client::LongList;
use machinery_meta::Quantity;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
pub(super) struct Pod {
    #[serde(default)]
    pub(super) metadata: Meta,
    #[serde(default)]
    pub(super) spec: Spec,
    #[serde(default)]
    pub(super) status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) deletion_grace_period_seconds: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) node_name: Box<str>,
    pub(super) affinity: Affinity,
    pub(super) hostname: Box<str>,
    pub(super) subdomain: Box<str>,
    pub(super) containers: Vec<Container>,
    pub(super) init_containers: Vec<Container>,
    pub(super) resources: Resources,
    pub(super) tolerations: LongList<Toleration>,
    pub(super) volumes: Vec<Volume>,
    pub(super) scheduling_gates: Vec<serde::de::IgnoredAny>,
    pub(super) termination_grace_period_seconds: Option<i64>,
    pub(super) resource_claims: Vec<device_claims::PodClaim>,
    pub(super) scheduling_group: Option<serde::de::IgnoredAny>,
}

impl Spec {
    fn has_sidecar(&self, name: &str) -> bool {
        let mut all = self.init_containers.iter();
        all.any(|own| &*own.name == name && own.restart_policy.as_deref() == Some("Always"))
    }

    /// Containers that run as long as the pod: its own and sidecars.
    pub(super) fn lasting_containers(&self) -> impl Iterator<Item = &Container> {
        let sidecars = self.init_containers.iter();
        let sidecars = sidecars.filter(|own| own.restart_policy.as_deref() == Some("Always"));
        self.containers.iter().chain(sidecars)
    }

    pub(super) fn requests(&self) -> Requests {
        let of_pod = self.resources.requests.amounts();
        let of_containers = self.lasting_containers();
        let of_containers = of_containers.map(|own| (own.name.clone(), own.resources.requests.amounts()));
        Requests {
            of_pod: (of_pod != Amounts::default()).then_some(of_pod),
            of_containers: of_containers.collect(),
        }
    }

    pub(super) fn target_node(&self) -> Box<str> {
        if !self.node_name.is_empty() {
            return self.node_name.clone();
        }
        let required = self.affinity.node_affinity.as_ref();
        let required =
            required.and_then(|own| own.required_during_scheduling_ignored_during_execution.as_ref());
        let terms = required.map_or(&[][..], |own| &own.node_selector_terms);
        let mut fields = terms.iter().flat_map(|own| &own.match_fields);
        let name = fields.find(|own| own.key == "metadata.name" && own.operator == "In");
        match name.map_or(&[][..], |own| &own.values) {
            [one] => one.clone(),
            _ => Box::default(),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Affinity {
    pub(super) node_affinity: Option<NodeAffinity>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeAffinity {
    pub(super) required_during_scheduling_ignored_during_execution: Option<NodeTerms>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeTerms {
    pub(super) node_selector_terms: Vec<NodeTerm>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeTerm {
    pub(super) match_fields: Vec<FieldRequirement>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct FieldRequirement {
    pub(super) key: String,
    pub(super) operator: String,
    pub(super) values: Vec<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) persistent_volume_claim: Option<ClaimSource>,
    pub(super) ephemeral: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClaimSource {
    pub(super) claim_name: Box<str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) name: Box<str>,
    pub(super) ports: Vec<ContainerPort>,
    pub(super) restart_policy: Option<String>,
    pub(super) resources: Resources,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Resources {
    pub(super) requests: Amount,
}

/// Amounts as they are written.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Amount {
    pub(super) cpu: Option<Box<str>>,
    pub(super) memory: Option<Box<str>>,
}

impl Amount {
    pub(super) fn amounts(&self) -> Amounts {
        let millis = |text: &Option<Box<str>>| text.as_deref()?.parse().ok().map(Quantity::millis);
        Amounts {
            cpu: millis(&self.cpu),
            memory: millis(&self.memory),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    pub(super) phase: Phase,
    pub(super) reason: String,
    pub(super) conditions: Vec<Condition>,
    pub(super) start_time: Option<String>,
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Box<str>,
    #[serde(rename = "podIPs")]
    pub(super) pod_ips: Vec<Ip>,
    pub(super) container_statuses: Vec<ContainerStatus>,
    pub(super) init_container_statuses: Vec<ContainerStatus>,
    pub(super) ephemeral_container_statuses: Vec<ContainerStatus>,
    pub(super) resource_claim_statuses: Vec<device_claims::PodClaimStatus>,
    pub(super) extended_resource_claim_status: Option<device_claims::ExtendedStatus>,
}

#[derive(Deserialize, Default)]
pub(super) struct Ip {
    #[serde(default)]
    pub(super) ip: Box<str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatus {
    pub(super) name: Box<str>,
    pub(super) restart_count: i32,
    pub(super) state: State,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct State {
    pub(super) waiting: Option<serde::de::IgnoredAny>,
    pub(super) terminated: Option<Terminated>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Terminated {
    pub(super) exit_code: i32,
    pub(super) finished_at: Option<String>,
}

impl Status {
    pub(super) fn ips(&self) -> Box<[Box<str>]> {
        if self.pod_ips.is_empty() && !self.pod_ip.is_empty() {
            return Box::new([self.pod_ip.clone()]);
        }
        self.pod_ips.iter().map(|own| own.ip.clone()).collect()
    }

    /// A container that neither waits nor has ended runs.
    pub(super) fn runs(&self) -> bool {
        let of_spec = self
            .init_container_statuses
            .iter()
            .chain(&self.container_statuses);
        let mut all = of_spec.chain(&self.ephemeral_container_statuses);
        all.any(|own| own.state.waiting.is_none() && own.state.terminated.is_none())
    }

    pub(super) fn disrupted_since(&self) -> Option<Timestamp> {
        let condition = find(&self.conditions, "DisruptionTarget").filter(|own| own.is_true())?;
        // The kubelet takes as long as it takes.
        let by_kubelet = condition.reason == "TerminationByKubelet";
        let since = || time(condition.last_transition_time.as_deref()).unwrap_or(Timestamp::UNIX_EPOCH);
        (!by_kubelet).then(since)
    }

    fn of_sidecars<'a>(&'a self, spec: &'a Spec) -> impl Iterator<Item = &'a ContainerStatus> {
        let all = self.init_container_statuses.iter();
        all.filter(|own| spec.has_sidecar(&own.name))
    }

    pub(super) fn sidecar_restarts(&self, spec: &Spec) -> i32 {
        let counts = self.of_sidecars(spec).map(|own| own.restart_count);
        counts.max().unwrap_or(0)
    }

    /// Time at which the last container ended, sidecars among them, once all have.
    pub(super) fn last_end(&self, spec: &Spec) -> Option<Timestamp> {
        let all = self.container_statuses.iter().chain(self.of_sidecars(spec));
        let ends = all.map(|own| {
            let ended = own.state.terminated.as_ref()?;
            time(ended.finished_at.as_deref())
        });
        let ends: Option<Vec<Timestamp>> = ends.collect();
        ends?.into_iter().max()
    }

    pub(super) fn ending(&self) -> Ending {
        let all = self
            .container_statuses
            .iter()
            .chain(&self.init_container_statuses);
        let codes = all.filter_map(|own| {
            let code = own.state.terminated.as_ref()?.exit_code;
            (code != 0).then(|| (own.name.clone(), code))
        });
        let conditions = self
            .conditions
            .iter()
            .map(|own| (own.kind.as_str().into(), own.status.as_str().into()));
        Ending {
            exit_codes: codes.collect(),
            conditions: conditions.collect(),
        }
    }
}
