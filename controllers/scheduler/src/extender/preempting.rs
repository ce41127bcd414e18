//! Asking the extenders about pods that would have to go for another.

use super::call::Extender;
use super::consult::{Consultants, skipped};
use super::wire::{self, MetaVictims};
use crate::pod::PodInfo;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pods that are shown in full at most: each is read from the server.
const MAX_SHOWN: usize = 1024;

/// A node, and the pods on it that would have to go.
#[derive(Debug, Clone)]
pub(crate) struct Proposal {
    pub(crate) node: Box<str>,
    pub(crate) victims: Vec<Arc<PodInfo>>,
    /// Budgets that their going breaks.
    pub(crate) violations: usize,
    /// All pods on the node: an extender may want others to go.
    pub(crate) on_node: Arc<[Arc<PodInfo>]>,
}

impl Consultants {
    /// Asks one extender after the other, each about the victims that the one before it left.
    pub(super) async fn about_victims(
        &self,
        pod: &PodInfo,
        mut proposals: Vec<Proposal>,
    ) -> Result<Vec<Proposal>, String> {
        let shown = self.shown(pod).await?;
        let preempts = |own: &&Extender| !own.config.preempt_verb.is_empty();
        for extender in self.interested(pod).filter(preempts) {
            if proposals.is_empty() {
                break;
            }
            match self.preempt(extender, &shown, &proposals).await {
                Ok(left) => proposals = left,
                Err(Refusal::Answer(why)) if extender.config.ignorable => skipped(extender, &why),
                Err(Refusal::Answer(why) | Refusal::NoVictims(why)) => return Err(why),
            }
        }
        Ok(proposals)
    }

    async fn preempt(
        &self,
        extender: &Extender,
        pod: &[u8],
        proposals: &[Proposal],
    ) -> Result<Vec<Proposal>, Refusal> {
        let body = match extender.config.node_cache_capable {
            true => uids(pod, proposals),
            false => self.victims(pod, proposals).await,
        };
        let body = body.map_err(Refusal::Answer)?;
        let verb = &extender.config.preempt_verb;
        let answer = extender.post(verb, body).await.map_err(Refusal::Answer)?;
        let read = wire::meta_victims(&answer).map_err(|error| Refusal::Answer(error.to_string()))?;
        let mut left = Vec::new();
        for (node, victims) in read {
            left.push(proposal(extender, &node, victims, proposals).map_err(Refusal::Answer)?);
        }
        if extender.config.ignorable {
            left.retain(|own| !own.victims.is_empty());
        }
        match left.iter().find(|own| own.victims.is_empty()) {
            Some(own) => Err(Refusal::NoVictims(format!(
                "expected at least one victim pod on node {:?}",
                own.node
            ))),
            None => Ok(left),
        }
    }

    /// The question with the victims in full.
    async fn victims(&self, pod: &[u8], proposals: &[Proposal]) -> Result<Vec<u8>, String> {
        let count: usize = proposals.iter().map(|own| own.victims.len()).sum();
        if count > MAX_SHOWN {
            return Err(format!("{count} victims are too many to be shown to an extender"));
        }
        let mut all = BTreeMap::new();
        for own in proposals {
            let mut pods = Vec::new();
            for victim in &own.victims {
                pods.push(raw(&self.shown(victim).await?)?);
            }
            let victims: (Vec<Box<RawValue>>, usize) = (pods, own.violations);
            all.insert(&*own.node, victims);
        }
        let mut out = Vec::new();
        out.extend_from_slice(b"{\"Pod\":");
        out.extend_from_slice(pod);
        out.extend_from_slice(b",\"NodeNameToMetaVictims\":null,\"NodeNameToVictims\":{");
        for (at, (node, (pods, violations))) in all.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let node = Value::from(*node);
            let pods = serde_json::to_string(pods).map_err(|error| error.to_string())?;
            let text = format!("{comma}{node}:{{\"Pods\":{pods},\"NumPDBViolations\":{violations}}}");
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(b"}}");
        Ok(out)
    }
}

/// An answer that cannot be used.
enum Refusal {
    Answer(String),
    /// A node without a victim: an error whatever the extender is.
    NoVictims(String),
}

fn raw(json: &[u8]) -> Result<Box<RawValue>, String> {
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

/// The question with the victims' uids.
fn uids(pod: &[u8], proposals: &[Proposal]) -> Result<Vec<u8>, String> {
    let mut all = Map::new();
    for own in proposals {
        let pods: Vec<Value> = own.victims.iter().map(|one| json!({"UID": one.uid()})).collect();
        let victims = json!({"Pods": pods, "NumPDBViolations": own.violations});
        all.insert((*own.node).to_owned(), victims);
    }
    let mut out = b"{\"Pod\":".to_vec();
    out.extend_from_slice(pod);
    out.extend_from_slice(b",\"NodeNameToVictims\":null,\"NodeNameToMetaVictims\":");
    out.extend(serde_json::to_vec(&all).map_err(|error| error.to_string())?);
    out.push(b'}');
    Ok(out)
}

/// Finds the pods that an extender names.
fn proposal(
    extender: &Extender,
    node: &str,
    (uids, violations): MetaVictims,
    proposals: &[Proposal],
) -> Result<Proposal, String> {
    let Some(known) = proposals.iter().find(|own| *own.node == *node) else {
        return Err(format!("nodeinfo not found for node name {node:?}"));
    };
    let mut victims: Vec<Arc<PodInfo>> = Vec::new();
    for uid in &uids {
        let Some(victim) = known.on_node.iter().find(|own| *own.uid() == **uid) else {
            return Err(format!(
                "extender: {} claims to preempt pod (UID: &{{{uid}}}) on node: {node}, but the pod is not found on that node",
                extender.config.url_prefix
            ));
        };
        if victims.iter().all(|own| own.uid() != victim.uid()) {
            victims.push(Arc::clone(victim));
        }
    }
    Ok(Proposal {
        node: known.node.clone(),
        victims,
        violations: usize::try_from(violations).unwrap_or(0),
        on_node: Arc::clone(&known.on_node),
    })
}
