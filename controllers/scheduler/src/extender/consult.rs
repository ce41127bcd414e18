//! Asking the extenders: which nodes will do, one extender after the other, then all at once how good these are.

use super::call::Extender;
use super::wire::{self, FilterResult};
use super::{About, Answer, Question, Verdict};
use crate::config::ExtenderConfig;
use crate::diagnosis::truncated;
use crate::pod::PodInfo;
use crate::projections::NodeText;
use crate::rejection::Rejection;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_client::{ApiResource, Client, Informer, Informers};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use serde_json::json;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Scores of extenders go to 10, those of plugins to 100.
const SCALE: i64 = 10;
/// Different reasons that one answer may give; nodes beyond are rejected without their own.
const MAX_REASONS: usize = 16;
const OTHER_REASON: &str = "rejected by an extender";

/// Extenders and the objects that they are shown; cheap to clone.
#[derive(Clone)]
pub(crate) struct Consultants {
    client: Client,
    pub(super) extenders: Arc<[Extender]>,
    /// Nodes as JSON, where an extender has none of its own.
    nodes: Option<Informer<NodeText>>,
}

impl std::fmt::Debug for Consultants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consultants")
            .field("extenders", &self.extenders)
            .finish_non_exhaustive()
    }
}

/// Objects of a question as JSON.
struct Shown {
    pod: Vec<u8>,
    nodes: Option<Informer<NodeText>>,
}

impl Consultants {
    pub(crate) async fn start(
        configs: &[ExtenderConfig],
        client: &Client,
        informers: &Informers,
        runtime: &Runtime,
    ) -> Self {
        let mut extenders = Vec::new();
        for config in configs {
            extenders.push(Extender::new(config, runtime).await);
        }
        let shows_nodes = |own: &ExtenderConfig| {
            let asks = !own.filter_verb.is_empty() || !own.prioritize_verb.is_empty();
            asks && !own.node_cache_capable
        };
        let nodes = configs
            .iter()
            .any(shows_nodes)
            .then(|| informers.of::<Node, NodeText>());
        if let Some(nodes) = &nodes {
            nodes.synced().await;
        }
        Self {
            client: client.clone(),
            extenders: extenders.into(),
            nodes,
        }
    }

    #[cfg(test)]
    pub(crate) fn without_extenders(client: Client) -> Self {
        Self::over(client, Vec::new())
    }

    #[cfg(test)]
    pub(super) fn over(client: Client, extenders: Vec<Extender>) -> Self {
        Self {
            client,
            extenders: extenders.into(),
            nodes: None,
        }
    }

    pub(super) fn interested<'a>(&'a self, pod: &'a PodInfo) -> impl Iterator<Item = &'a Extender> {
        self.extenders.iter().filter(|own| own.is_interested(pod))
    }

    /// Asks about nodes or victims.
    pub(crate) async fn ask(&self, question: Question) -> Answer {
        let pod = question.pod;
        match question.about {
            About::Nodes { nominated, nodes } => {
                Answer::Nodes(self.about_nodes(&pod, nominated, nodes).await)
            }
            About::Victims(proposals) => Answer::Victims(self.about_victims(&pod, proposals).await),
        }
    }

    /// The pod as the server has it.
    pub(super) async fn shown(&self, pod: &PodInfo) -> Result<Vec<u8>, String> {
        let pods = ApiResource::of::<Pod>();
        let read = self.client.get(&pods, &pod.key).await;
        read.map(|own| own.to_vec()).map_err(|error| error.chain())
    }

    async fn about_nodes(
        &self,
        pod: &PodInfo,
        nominated: Option<Box<str>>,
        nodes: Vec<Box<str>>,
    ) -> Result<Verdict, String> {
        let interested: Vec<&Extender> = self.interested(pod).collect();
        let shown = Shown {
            pod: self.shown(pod).await?,
            nodes: self.nodes.clone(),
        };
        if let Some(nominated) = nominated {
            match filtered(&interested, &shown, vec![nominated]).await {
                Ok(verdict) if !verdict.scores.is_empty() => return Ok(verdict),
                Ok(_) => {}
                Err(why) => tracing::error!(pod = %pod.key, %why, "evaluation failed on nominated node"),
            }
        }
        let mut verdict = filtered(&interested, &shown, nodes).await?;
        if verdict.scores.len() > 1 {
            rate(&interested, &shown, &mut verdict).await;
        }
        Ok(verdict)
    }

    /// Binds the pod by the extender that binds and is interested in it; `None` where there is none.
    pub(crate) async fn bind(&self, pod: &PodInfo, node: &str) -> Option<Result<(), String>> {
        let binds = |own: &&Extender| !own.config.bind_verb.is_empty();
        for extender in self.interested(pod).filter(binds) {
            let bound = bind(extender, pod, node).await;
            match bound {
                Err(why) if extender.config.ignorable => skipped(extender, &why),
                bound => return Some(bound),
            }
        }
        None
    }
}

/// An extender that may fail has failed.
pub(super) fn skipped(extender: &Extender, why: &str) {
    let extender = &extender.config.url_prefix;
    tracing::info!(%extender, %why, "skipping extender as it returned error and has ignorable flag set");
}

async fn bind(extender: &Extender, pod: &PodInfo, node: &str) -> Result<(), String> {
    let arguments = json!({"PodName": pod.key.name, "PodNamespace": pod.key.namespace, "PodUID": pod.uid(), "Node": node});
    let body = arguments.to_string().into_bytes();
    let answer = extender.post(&extender.config.bind_verb, body).await?;
    match wire::binding_error(&answer) {
        Ok(error) if error.is_empty() => Ok(()),
        Ok(error) => Err(truncated(&error)),
        Err(error) => Err(error.to_string()),
    }
}

/// The question about these nodes, with their names alone where the extender has the nodes itself.
fn arguments(extender: &Extender, shown: &Shown, names: &[Box<str>]) -> Vec<u8> {
    if extender.config.node_cache_capable {
        return wire::arguments(&shown.pod, None, Some(names));
    }
    let of = |name: &str| shown.nodes.as_ref()?.get(&ObjectKey::cluster(name));
    let objects: Vec<_> = names.iter().filter_map(|name| of(name)).collect();
    let texts: Vec<&[u8]> = objects.iter().map(|own| &*own.projection.0).collect();
    wire::arguments(&shown.pod, Some(&texts), None)
}

/// Asks one extender after the other, each about the nodes that the ones before it left.
async fn filtered(
    extenders: &[&Extender],
    shown: &Shown,
    mut names: Vec<Box<str>>,
) -> Result<Verdict, String> {
    let mut verdict = Verdict::default();
    let filters = |own: &&&Extender| !own.config.filter_verb.is_empty();
    for extender in extenders.iter().filter(filters) {
        if names.is_empty() {
            break;
        }
        match filter(extender, shown, &names).await {
            Ok((left, result)) => {
                reject(&mut verdict, result, &names);
                names = left;
            }
            Err(why) if extender.config.ignorable => skipped(extender, &why),
            Err(why) => return Err(why),
        }
    }
    verdict.scores = names.into_iter().map(|name| (name, 0)).collect();
    verdict
        .rejected
        .retain(|name, _| !verdict.scores.contains_key(name));
    Ok(verdict)
}

async fn filter(
    extender: &Extender,
    shown: &Shown,
    names: &[Box<str>],
) -> Result<(Vec<Box<str>>, FilterResult), String> {
    let body = arguments(extender, shown, names);
    let answer = extender.post(&extender.config.filter_verb, body).await?;
    let mut result = FilterResult::read(&answer).map_err(|error| error.to_string())?;
    if !result.error.is_empty() {
        return Err(truncated(&result.error));
    }
    let named = result
        .node_names
        .take()
        .filter(|_| extender.config.node_cache_capable);
    let left = named.or_else(|| result.nodes.take()).unwrap_or_default();
    let known: HashSet<&str> = names.iter().map(|name| &**name).collect();
    if let Some(unknown) = left.iter().find(|name| !known.contains(&***name)) {
        let unknown = truncated(unknown);
        return Err(format!(
            "extender {:?} claims a filtered node {unknown:?} which is not found in the input node list",
            extender.config.url_prefix
        ));
    }
    Ok((left, result))
}

/// Notes why nodes were rejected; the word that other pods are not in the way counts more.
fn reject(verdict: &mut Verdict, result: FilterResult, names: &[Box<str>]) {
    let (failed, unresolvable) = (result.failed, result.failed_and_unresolvable);
    let mut reasons = BTreeSet::new();
    for name in names {
        let (reason, is_unresolvable) = match (unresolvable.get(name), failed.get(name)) {
            (Some(reason), _) => (reason, true),
            (None, Some(reason)) => (reason, false),
            (None, None) => continue,
        };
        let mut reason = truncated(reason);
        if reasons.len() >= MAX_REASONS && !reasons.contains(&reason) {
            reason = OTHER_REASON.to_owned();
        }
        reasons.insert(reason.clone());
        let rejection = match is_unresolvable {
            true => Rejection::unresolvable(reason),
            false => Rejection::unschedulable(reason),
        };
        verdict.rejected.insert(name.clone(), rejection);
    }
}

/// Asks all extenders at once how good the nodes are. One that fails adds nothing.
async fn rate(extenders: &[&Extender], shown: &Shown, verdict: &mut Verdict) {
    let names: Vec<Box<str>> = verdict.scores.keys().cloned().collect();
    let rates = |own: &&&Extender| !own.config.prioritize_verb.is_empty();
    let asking = extenders.iter().filter(rates).map(|extender| {
        let body = arguments(extender, shown, &names);
        async move {
            let answer = extender.post(&extender.config.prioritize_verb, body).await?;
            let read = wire::priorities(&answer).map_err(|error| error.to_string())?;
            Ok::<_, String>((read, extender.config.weight))
        }
    });
    for rated in join_all(asking).await {
        match rated {
            Ok((scores, weight)) => add(verdict, scores, weight),
            Err(why) => tracing::debug!(%why, "failed to run extender's priority function"),
        }
    }
}

fn add(verdict: &mut Verdict, scores: Vec<(Box<str>, i64)>, weight: i64) {
    for (name, score) in scores {
        if let Some(own) = verdict.scores.get_mut(&name) {
            let more = score.saturating_mul(weight).saturating_mul(SCALE);
            *own = own.saturating_add(more);
        }
    }
}
