//! Nodes that a template may run on: its node name, node selector, required node affinity and tolerations.

use crate::views::{NodeView, PodTemplate};
use k8s_openapi::api::core::v1::{Affinity, PodSpec, Taint, Toleration};
use machinery_client::Object;
use machinery_semantics::node_affinity::NodeFacts;
use machinery_semantics::taints::{NO_EXECUTE, NO_SCHEDULE, is_tolerated};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Answer for one node: whether it is to have a pod, and whether a pod that is there may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Eligibility {
    pub(super) should_run: bool,
    pub(super) should_continue: bool,
}

const REFUSED: Eligibility = Eligibility {
    should_run: false,
    should_continue: false,
};

/// Fields of a template that decide where its pods run.
#[derive(Debug)]
pub(super) struct Placement {
    node_name: String,
    /// Node selector and affinity alone.
    required: PodSpec,
    /// The template's, and those that every daemon pod has.
    pub(super) tolerations: Vec<Toleration>,
}

impl Placement {
    pub(super) fn of(template: &PodTemplate) -> Result<Self, serde_json::Error> {
        let written: Written = machinery_client::json::from_str(template.spec.get())?;
        Ok(Self {
            tolerations: daemon_tolerations(written.tolerations, written.host_network),
            node_name: written.node_name,
            required: PodSpec {
                node_selector: written.node_selector,
                affinity: written.affinity,
                ..PodSpec::default()
            },
        })
    }

    /// The eligibility of each node. A taint that many nodes have is compared with the tolerations once.
    pub(super) fn of_nodes<'a>(
        &self,
        nodes: impl IntoIterator<Item = &'a Object<NodeView>>,
    ) -> BTreeMap<String, Eligibility> {
        let mut known = BTreeMap::new();
        let of = |node: &'a Object<NodeView>| (node.name().to_owned(), self.of_node(node, &mut known));
        nodes.into_iter().map(of).collect()
    }

    fn of_node<'a>(
        &self,
        node: &'a Object<NodeView>,
        known: &mut BTreeMap<[&'a str; 3], bool>,
    ) -> Eligibility {
        if !self.node_name.is_empty() && self.node_name != node.name() {
            return REFUSED;
        }
        let facts = NodeFacts {
            name: node.name(),
            labels: |label: &str| node.header.label(label),
        };
        if !facts.satisfies(&self.required) {
            return REFUSED;
        }
        let mut tolerates_all_of = |effects: &[&str]| {
            let taints = node.taints.iter();
            let mut counted = taints.filter(|taint| effects.contains(&taint.effect.as_str()));
            counted.all(|taint| self.tolerates(taint, known))
        };
        Eligibility {
            should_run: tolerates_all_of(&[NO_EXECUTE, NO_SCHEDULE]),
            should_continue: tolerates_all_of(&[NO_EXECUTE]),
        }
    }

    fn tolerates<'a>(&self, taint: &'a Taint, known: &mut BTreeMap<[&'a str; 3], bool>) -> bool {
        let value = taint.value.as_deref().unwrap_or("");
        *known
            .entry([&taint.key, value, &taint.effect])
            .or_insert_with(|| is_tolerated(taint, &self.tolerations))
    }
}

/// Taints that every daemon pod tolerates, with their effects.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
];
/// The taint that those on the host's network tolerate too.
const NETWORK_UNAVAILABLE: (&str, &str) = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE);

fn daemon_tolerations(mut tolerations: Vec<Toleration>, host_network: bool) -> Vec<Toleration> {
    let network = host_network.then_some(NETWORK_UNAVAILABLE);
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let own = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        let same = |other: &Toleration| {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            other.key == own.key
                && other.operator == own.operator
                && other.effect == own.effect
                && text(&other.value).is_empty()
        };
        // One that is there with a limit of time loses it.
        match tolerations.iter_mut().find(|other| same(other)) {
            Some(other) => *other = own,
            None => tolerations.push(own),
        }
    }
    tolerations
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Written {
    node_name: String,
    node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<Affinity>,
    tolerations: Vec<Toleration>,
    host_network: bool,
}
