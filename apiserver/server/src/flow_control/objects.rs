//! FlowSchemas and PriorityLevelConfigurations (`flowcontrol.apiserver.k8s.io/v1`), as far as they decide.

use super::queue_set::Queuing;
use super::shuffle_sharding::Dealer;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The level of requests that are never limited; no other level is exempt.
pub(crate) const EXEMPT: &str = "exempt";
/// Level and schema of what no other schema matches.
pub(crate) const CATCH_ALL: &str = "catch-all";
/// Precedence of a schema without one.
const DEFAULT_PRECEDENCE: i32 = 1_000;
const DEFAULT_SHARES: u32 = 30;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) generation: i64,
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct FlowSchema {
    pub(crate) metadata: Metadata,
    pub(crate) spec: FlowSchemaSpec,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FlowSchemaSpec {
    pub(crate) priority_level_configuration: Reference,
    #[serde(default = "default_precedence")]
    pub(crate) matching_precedence: i32,
    pub(crate) distinguisher_method: Option<DistinguisherMethod>,
    #[serde(default)]
    pub(crate) rules: Vec<FlowSchemaRules>,
}

fn default_precedence() -> i32 {
    DEFAULT_PRECEDENCE
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Reference {
    pub(crate) name: String,
}

/// The property that distinguishes the flows of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "type")]
pub(crate) enum DistinguisherMethod {
    ByUser,
    ByNamespace,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(crate) struct FlowSchemaRules {
    pub(crate) subjects: Vec<Subject>,
    pub(crate) resource_rules: Vec<ResourceRule>,
    pub(crate) non_resource_rules: Vec<NonResourceRule>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind")]
pub(crate) enum Subject {
    User {
        user: Named,
    },
    Group {
        group: Named,
    },
    ServiceAccount {
        #[serde(rename = "serviceAccount")]
        service_account: NamespacedName,
    },
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NamespacedName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResourceRule {
    pub(crate) verbs: Vec<String>,
    pub(crate) api_groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) cluster_scope: bool,
    pub(crate) namespaces: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NonResourceRule {
    pub(crate) verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    pub(crate) non_resource_urls: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PriorityLevelConfiguration {
    pub(crate) metadata: Metadata,
    pub(crate) spec: PriorityLevelSpec,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PriorityLevelSpec {
    #[serde(rename = "type")]
    kind: String,
    limited: Option<Limited>,
    exempt: Option<Exempt>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Limited {
    nominal_concurrency_shares: Option<u32>,
    lendable_percent: Option<u32>,
    borrowing_limit_percent: Option<u32>,
    limit_response: LimitResponse,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Exempt {
    nominal_concurrency_shares: Option<u32>,
    lendable_percent: Option<u32>,
}

#[derive(Debug, Clone, Deserialize)]
struct LimitResponse {
    #[serde(rename = "type")]
    kind: String,
    queuing: Option<QueuingConfiguration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueuingConfiguration {
    queues: usize,
    hand_size: usize,
    queue_length_limit: usize,
}

/// A level's shares of the server's seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) nominal: u32,
    pub(super) lendable_percent: u32,
    /// `None`: as much as others lend.
    pub(super) borrowing_percent: Option<u32>,
}

impl PriorityLevelConfiguration {
    pub(super) fn is_exempt(&self) -> bool {
        self.spec.exempt.is_some()
    }

    pub(super) fn shares(&self) -> Shares {
        match (&self.spec.limited, &self.spec.exempt) {
            (Some(limited), _) => Shares {
                nominal: limited.nominal_concurrency_shares.unwrap_or(DEFAULT_SHARES),
                lendable_percent: limited.lendable_percent.unwrap_or(0),
                borrowing_percent: limited.borrowing_limit_percent,
            },
            (None, exempt) => Shares {
                nominal: exempt
                    .as_ref()
                    .and_then(|exempt| exempt.nominal_concurrency_shares)
                    .unwrap_or(0),
                lendable_percent: exempt
                    .as_ref()
                    .and_then(|exempt| exempt.lendable_percent)
                    .unwrap_or(0),
                borrowing_percent: None,
            },
        }
    }

    pub(super) fn hand_size(&self) -> Option<usize> {
        let queuing = self.spec.limited.as_ref()?.limit_response.queuing.as_ref()?;
        Some(queuing.hand_size)
    }

    /// `None` where the object contradicts itself, and so is no level.
    pub(super) fn queuing(&self) -> Option<Queuing> {
        let (spec, name) = (&self.spec, self.metadata.name.as_str());
        let is_exempt = spec.kind == "Exempt";
        let is_sound = (spec.kind == "Limited") == spec.limited.is_some()
            && is_exempt == spec.exempt.is_some()
            && is_exempt == (name == EXEMPT)
            && is_exempt != spec.limited.is_some();
        if !is_sound {
            return None;
        }
        let Some(limited) = &spec.limited else {
            return Some(Queuing::Exempt);
        };
        match (&*limited.limit_response.kind, &limited.limit_response.queuing) {
            ("Reject", None) => Some(Queuing::Reject),
            ("Queue", Some(queuing)) => Some(Queuing::Queue {
                queues: queuing.queues,
                dealer: Dealer::new(queuing.queues, queuing.hand_size)?,
                queue_length_limit: queuing.queue_length_limit,
            }),
            _ => None,
        }
    }
}
