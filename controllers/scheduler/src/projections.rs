//! Projections that informers keep of each kind for the scheduler.

use crate::object::{LabelSelector, Labels, Node, Pod};
use crate::pod::PodInfo;
use crate::preemption::Budget;
use machinery_client::Projection;
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pod, ready to be placed.
#[derive(Debug)]
pub(crate) struct PodView(pub(crate) Arc<PodInfo>);

impl Projection for PodView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let pod: Pod = machinery_client::json::from_slice(json)?;
        Ok(Self(Arc::new(PodInfo::new(pod))))
    }
}

/// A node's scheduling fields.
#[derive(Debug)]
pub(crate) struct NodeView(pub(crate) Node);

impl Projection for NodeView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        machinery_client::json::from_slice(json).map(Self)
    }
}

/// A node as its JSON, for extenders that have no nodes of their own.
pub(crate) struct NodeText(pub(crate) Box<[u8]>);

impl Projection for NodeText {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(Self(json.into()))
    }
}

/// A service's selector; services without one select nothing.
#[derive(Debug)]
pub(crate) struct MapSelector(pub(crate) LabelSelector);

impl Projection for MapSelector {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Service {
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        struct Spec {
            #[serde(default)]
            selector: Option<Labels>,
        }
        let service: Service = machinery_client::json::from_slice(json)?;
        let match_labels = service.spec.selector.unwrap_or_default();
        Ok(Self(LabelSelector {
            match_labels,
            match_expressions: Vec::new(),
        }))
    }
}

/// The selector of a ReplicaSet or StatefulSet.
#[derive(Debug)]
pub(crate) struct FullSelector(pub(crate) LabelSelector);

impl Projection for FullSelector {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Set {
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        struct Spec {
            #[serde(default)]
            selector: Option<LabelSelector>,
        }
        let set: Set = machinery_client::json::from_slice(json)?;
        Ok(Self(set.spec.selector.unwrap_or_default()))
    }
}

/// A PodDisruptionBudget.
#[derive(Debug)]
pub(crate) struct BudgetView(pub(crate) Budget);

impl Projection for BudgetView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Full {
            #[serde(default)]
            spec: Spec,
            #[serde(default)]
            status: Status,
        }
        #[derive(Deserialize, Default)]
        struct Spec {
            #[serde(default)]
            selector: Option<LabelSelector>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Status {
            disruptions_allowed: i32,
            disrupted_pods: Option<BTreeMap<Box<str>, serde::de::IgnoredAny>>,
        }
        let full: Full = machinery_client::json::from_slice(json)?;
        Ok(Self(Budget {
            selector: full.spec.selector,
            disruptions_allowed: full.status.disruptions_allowed,
            disrupted_pods: full
                .status
                .disrupted_pods
                .unwrap_or_default()
                .into_keys()
                .collect(),
        }))
    }
}
