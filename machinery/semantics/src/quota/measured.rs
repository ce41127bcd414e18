//! The measure of an object: what it uses, and what scopes ask about it.

use super::scopes::ScopeSelector;
use crate::ResourceList;
use k8s_openapi::jiff::Timestamp;
use machinery_meta::Quantity;

/// Amounts by name, in few bytes.
pub type Amounts = Box<[(Box<str>, Quantity)]>;

/// The measure of one object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Measured {
    pub(super) usage: Usage,
    pub(super) counted: Counted,
    pub(super) scopes: Scopes,
}

/// The form in which usage is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Usage {
    /// By the names that quotas have.
    Named(Amounts),
    /// A pod's, which has several names for each amount.
    Pod { requests: Amounts, limits: Amounts },
}

impl Default for Usage {
    fn default() -> Self {
        Self::Named(Amounts::default())
    }
}

/// Time for which a pod counts with what it requests, and not as an object alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Counted {
    #[default]
    Always,
    /// It has ended.
    Never,
    /// Its grace period ends then.
    Until(Timestamp),
}

/// Answers to the questions of scopes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Scopes {
    /// No scope matches.
    #[default]
    None,
    Pod(PodScopes),
    /// Names of a claim's volume attributes classes.
    Claim(Box<[Box<str>]>),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PodScopes {
    /// It has a deadline.
    pub(super) is_terminating: bool,
    pub(super) is_best_effort: bool,
    pub(super) has_cross_namespace_affinity: bool,
    pub(super) priority_class: Box<str>,
}

impl Measured {
    /// One of each of these.
    pub(super) fn one_of_each<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let one = Quantity::from_units(1);
        Self {
            usage: Usage::Named(names.map(|name| (name.into(), one)).collect()),
            ..Self::default()
        }
    }

    /// The amounts that the object uses, under every name that a quota may have for them.
    pub fn usage(&self, now: Timestamp) -> ResourceList {
        match &self.usage {
            Usage::Named(amounts) => list(amounts),
            Usage::Pod { requests, limits } => {
                super::pods::usage(&list(requests), &list(limits), self.is_counted(now))
            }
        }
    }

    fn is_counted(&self, now: Timestamp) -> bool {
        match self.counted {
            Counted::Always => true,
            Counted::Never => false,
            Counted::Until(end) => now <= end,
        }
    }

    /// Reports whether the object is of a scope.
    ///
    /// # Errors
    /// The operator is none.
    pub fn matches(&self, selector: &ScopeSelector) -> Result<bool, String> {
        match &self.scopes {
            Scopes::None => Ok(false),
            Scopes::Pod(pod) => pod.matches(selector),
            Scopes::Claim(classes) if selector.scope == "VolumeAttributesClass" => selector.selects(classes),
            Scopes::Claim(_) => Ok(false),
        }
    }

    /// Reports whether the object is of every scope.
    ///
    /// # Errors
    /// An operator is none.
    pub fn matches_all(&self, selectors: &[ScopeSelector]) -> Result<bool, String> {
        for selector in selectors {
            if !self.matches(selector)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reports whether a quota may have more room once an object of this measure has the other one (upstream's
    /// `DefaultUpdateFilter`).
    pub fn frees_by_becoming(&self, new: &Self, now: Timestamp) -> bool {
        match (&self.scopes, &new.scopes) {
            (Scopes::Pod(old_pod), Scopes::Pod(new_pod)) => {
                let ended = self.is_counted(now) && !new.is_counted(now);
                ended || self.usage != new.usage || old_pod.is_terminating != new_pod.is_terminating
            }
            _ => self != new,
        }
    }

    pub(super) fn is_terminating(&self) -> bool {
        matches!(&self.scopes, Scopes::Pod(pod) if pod.is_terminating)
    }
}

impl PodScopes {
    fn matches(&self, selector: &ScopeSelector) -> Result<bool, String> {
        Ok(match selector.scope.as_str() {
            "Terminating" => self.is_terminating,
            "NotTerminating" => !self.is_terminating,
            "BestEffort" => self.is_best_effort,
            "NotBestEffort" => !self.is_best_effort,
            "CrossNamespacePodAffinity" => self.has_cross_namespace_affinity,
            "PriorityClass" => {
                let name = Some(&self.priority_class).filter(|name| !name.is_empty());
                selector.selects(name.map(std::slice::from_ref).unwrap_or_default())?
            }
            _ => false,
        })
    }
}

/// Amounts in few bytes.
pub(super) fn amounts(list: &ResourceList) -> Amounts {
    list.iter().map(|(name, amount)| (name.into(), amount)).collect()
}

fn list(amounts: &Amounts) -> ResourceList {
    let all = amounts.iter();
    ResourceList(all.map(|(name, amount)| (name.to_string(), *amount)).collect())
}
