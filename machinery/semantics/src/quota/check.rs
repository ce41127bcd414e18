//! The check of one request against the quotas of its namespace.

use super::evaluator::Evaluator;
use super::measured::Measured;
use super::pods::MissingResources;
use super::resource_claims::DeviceClasses;
use super::scopes::ScopeSelector;
use super::{Quota, mask};
use crate::ResourceList;
use k8s_openapi::jiff::Timestamp;
use machinery_meta::Quantity;
use std::collections::BTreeSet;

/// A request that may change usage.
#[derive(Debug, Clone)]
pub struct Asked {
    pub evaluator: Evaluator,
    /// The object that is there is changed; otherwise one is made.
    pub is_update: bool,
    /// A status says what is used already: it is counted, and never refused.
    pub is_status: bool,
    pub new: Measured,
    /// The object before, where there is one.
    pub old: Option<Measured>,
    pub missing: MissingResources,
    pub classes: DeviceClasses,
}

impl Asked {
    fn usage(&self, measured: &Measured, now: Timestamp) -> ResourceList {
        match self.evaluator {
            Evaluator::ResourceClaims => self.classes.with_extended(measured.usage(now)),
            _ => measured.usage(now),
        }
    }
}

/// Usage that needs a quota which covers it (`limitedResources` of the plugin's configuration).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LimitedResource {
    pub group: String,
    pub resource: String,
    pub match_contains: Vec<String>,
    pub match_scopes: Vec<ScopeSelector>,
}

/// Reasons against a request, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    Forbidden(String),
    Error(String),
}

/// Adds a request's usage to the quotas that it counts against, and reports whether there are any; or says why it does not fit,
/// and changes none.
pub fn check_request(
    quotas: &mut [Quota],
    asked: &Asked,
    (group, resource): (&str, &str),
    limited: &[LimitedResource],
    now: Timestamp,
) -> Result<bool, Refusal> {
    let usage = asked.usage(&asked.new, now);
    let own = limited
        .iter()
        .filter(|own| own.group == group && own.resource == resource);
    let limited_names = limited_names(&usage, own);
    let Ok(limited_scopes) = matching_scopes(asked, limited.iter().flat_map(|own| &own.match_scopes)) else {
        return Ok(false);
    };
    let pertinent = pertinent(quotas, asked)?;
    let negative: Vec<&str> = usage
        .iter()
        .filter(|(_, own)| own.is_negative())
        .map(|(name, _)| name)
        .collect();
    if !negative.is_empty() {
        let names = negative.join(",");
        return Err(Refusal::Forbidden(format!(
            "quota usage is negative for resource(s): {names}"
        )));
    }
    let deltas = deltas(quotas, asked, &pertinent.indexes, usage, now)?;
    if deltas.iter().all(|(_, delta)| delta.0.is_empty()) {
        return Ok(false);
    }
    let uncovered: Vec<&str> = limited_names
        .difference(&pertinent.resources)
        .map(String::as_str)
        .collect();
    if !uncovered.is_empty() {
        let names = uncovered.join(",");
        return Err(Refusal::Forbidden(format!(
            "insufficient quota to consume: {names}"
        )));
    }
    check_scopes(asked, &limited_scopes, &pertinent.scopes)?;
    let mut changed = Vec::new();
    for (index, delta) in deltas
        .iter()
        .filter_map(|(index, delta)| Some(((*index)?, delta)))
    {
        if !delta.0.is_empty() {
            changed.push((index, added(&quotas[index], delta, asked.is_status)?));
        }
    }
    let any = !changed.is_empty();
    for (index, used) in changed {
        quotas[index].used = Some(used);
    }
    Ok(any)
}

/// Names of what a request uses and may only use under a quota for it.
fn limited_names<'l>(
    usage: &ResourceList,
    limited: impl Iterator<Item = &'l LimitedResource>,
) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for own in limited {
        let used = usage.iter().filter(|(_, amount)| *amount > Quantity::default());
        let matches = |name: &str| own.match_contains.iter().any(|part| name.contains(part.as_str()));
        names.extend(
            used.filter(|(name, _)| matches(name))
                .map(|(name, _)| name.to_owned()),
        );
    }
    names
}

fn matching_scopes<'s>(
    asked: &Asked,
    scopes: impl Iterator<Item = &'s ScopeSelector>,
) -> Result<Vec<ScopeSelector>, String> {
    let mut matching = Vec::new();
    for scope in scopes.filter(|_| asked.evaluator.has_scopes()) {
        let matches = asked.new.matches(scope);
        if matches.map_err(|why| format!("error on matching scope {scope}: {why}"))? {
            matching.push(scope.clone());
        }
    }
    Ok(matching)
}

/// Quotas that a request counts against.
#[derive(Default)]
struct Pertinent {
    indexes: Vec<usize>,
    /// Resources that they bound.
    resources: BTreeSet<String>,
    /// Scopes of all quotas that the object is of.
    scopes: Vec<ScopeSelector>,
}

fn pertinent(quotas: &[Quota], asked: &Asked) -> Result<Pertinent, Refusal> {
    let mut found = Pertinent::default();
    for (index, quota) in quotas.iter().enumerate() {
        let name = &quota.name;
        let scopes = matching_scopes(asked, quota.scopes.iter())
            .map_err(|why| Refusal::Error(format!("error matching scopes of quota {name}, err: {why}")))?;
        found.scopes.extend(scopes);
        let bounded = bounded(quota, asked);
        if bounded.is_empty() || !asked.new.matches_all(&quota.scopes).map_err(Refusal::Error)? {
            continue;
        }
        if let Some(why) = asked.missing.under(bounded.iter().copied()) {
            return Err(Refusal::Forbidden(format!("failed quota: {name}: {why}")));
        }
        let known = |resource: &&str| {
            quota
                .used
                .as_ref()
                .is_some_and(|used| used.0.contains_key(*resource))
        };
        if !bounded.iter().all(known) {
            let resources = bounded.join(",");
            return Err(Refusal::Forbidden(format!(
                "status unknown for quota: {name}, resources: {resources}"
            )));
        }
        found.indexes.push(index);
        found.resources.extend(bounded.into_iter().map(str::to_owned));
    }
    Ok(found)
}

/// The resources of a quota that the evaluator counts.
fn bounded<'q>(quota: &'q Quota, asked: &Asked) -> Vec<&'q str> {
    let hard = quota
        .hard
        .iter()
        .flat_map(ResourceList::iter)
        .map(|(name, _)| name);
    hard.filter(|name| asked.evaluator.matches_resource(name, &asked.classes))
        .collect()
}

/// Growth of each quota's usage by the request, without zeros; under no index, the growth where no quota bounds it.
fn deltas(
    quotas: &[Quota],
    asked: &Asked,
    indexes: &[usize],
    usage: ResourceList,
    now: Timestamp,
) -> Result<Vec<(Option<usize>, ResourceList)>, Refusal> {
    let mut grown = usage.clone();
    if asked.is_update {
        let Some(old) = &asked.old else {
            let why = "unable to get previous usage since prior version of object was not found";
            return Err(Refusal::Forbidden(why.to_owned()));
        };
        grown = beyond(&usage, &asked.usage(old, now));
    }
    grown.0.retain(|_, amount| !amount.is_zero());
    let mut whole = usage;
    whole.0.retain(|_, amount| !amount.is_zero());
    if indexes.is_empty() {
        return Ok(vec![(None, grown)]);
    }
    let mut deltas = Vec::with_capacity(indexes.len());
    for index in indexes {
        let counted = asked.old.as_ref().filter(|_| asked.is_update);
        let was_counted = counted.map(|old| old.matches_all(&quotas[*index].scopes));
        let was_counted = was_counted.transpose().map_err(Refusal::Error)?.unwrap_or(false);
        let delta = if was_counted { &grown } else { &whole };
        deltas.push((Some(*index), delta.clone()));
    }
    Ok(deltas)
}

/// Amounts beyond those before; those that are less give nothing back, the controller does.
fn beyond(new: &ResourceList, old: &ResourceList) -> ResourceList {
    let more = new.iter().map(|(name, amount)| (name, amount - old.get(name)));
    let more = more.filter(|(_, amount)| *amount > Quantity::default());
    ResourceList(more.map(|(name, amount)| (name.to_owned(), amount)).collect())
}

fn check_scopes(asked: &Asked, limited: &[ScopeSelector], covered: &[ScopeSelector]) -> Result<(), Refusal> {
    if !asked.evaluator.has_scopes() {
        return Ok(());
    }
    let uncovered = limited
        .iter()
        .filter(|own| covered.iter().all(|other| other.scope != own.scope));
    let uncovered: Vec<String> = uncovered.map(ToString::to_string).collect();
    match uncovered.is_empty() {
        true => Ok(()),
        false => Err(Refusal::Error(format!(
            "insufficient quota to match these scopes: [{}]",
            uncovered.join(" ")
        ))),
    }
}

/// The quota's usage with the request's.
fn added(quota: &Quota, delta: &ResourceList, is_status: bool) -> Result<ResourceList, Refusal> {
    let empty = ResourceList::default();
    let hard = quota.hard.as_ref().unwrap_or(&empty);
    let requested = mask(delta, hard.0.keys().map(String::as_str));
    let mut used = quota.used.clone().unwrap_or_default();
    used.add(&requested);
    let exceeded = requested
        .0
        .keys()
        .map(String::as_str)
        .filter(|name| used.get(name) > hard.get(name));
    let exceeded: Vec<&str> = exceeded.collect();
    if is_status || exceeded.is_empty() {
        return Ok(used);
    }
    let shown = |list: &ResourceList| {
        let list = mask(list, exceeded.iter().copied());
        let parts: Vec<String> = list
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect();
        parts.join(",")
    };
    let before = quota.used.as_ref().unwrap_or(&empty);
    Err(Refusal::Forbidden(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.name,
        shown(&requested),
        shown(before),
        shown(hard)
    )))
}
