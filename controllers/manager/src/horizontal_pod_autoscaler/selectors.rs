//! Selectors of a namespace's autoscalers, and the search for those that select some pods.

use super::calculator::PodRef;
use machinery_meta::ObjectHeader;
use machinery_meta::label_selector::{LabelSelector, Operator};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Autoscalers that one message names.
const SHOWN: usize = 2;

/// A selector that an autoscaler has.
#[derive(Debug)]
pub(super) struct Selected {
    pub(super) text: Box<str>,
    pub(super) selector: LabelSelector,
}

impl Selected {
    /// Comparisons that a look at one pod takes, at most.
    pub(super) fn comparisons(&self) -> usize {
        1 + self.selector.requirements().len()
    }
}

/// Names of autoscalers by the value of a label.
type ByValue = BTreeMap<Box<str>, BTreeSet<Box<str>>>;

/// Selectors by the names of their autoscalers.
#[derive(Debug, Clone, Default)]
pub(super) struct Selectors {
    all: BTreeMap<Box<str>, Arc<Selected>>,
    /// Autoscalers by a label and the value that they ask for.
    by_label: HashMap<Box<str>, ByValue>,
    /// Autoscalers without an equality.
    loose: BTreeSet<Box<str>>,
}

/// Labels and values that a selector asks for.
pub(super) fn equalities(selector: &LabelSelector) -> impl Iterator<Item = (&str, &str)> {
    selector.requirements().iter().filter_map(|own| {
        let equal = matches!(
            own.operator,
            Operator::Equals | Operator::DoubleEquals | Operator::In
        );
        match own.values.as_slice() {
            [value] if equal => Some((own.key.as_str(), value.as_str())),
            _ => None,
        }
    })
}

impl Selectors {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn of(&self, autoscaler: &str) -> Option<Arc<Selected>> {
        self.all.get(autoscaler).cloned()
    }

    pub(super) fn add(&mut self, autoscaler: &str, selected: Arc<Selected>) {
        let mut is_loose = true;
        for (label, value) in equalities(&selected.selector) {
            is_loose = false;
            let values = self.by_label.entry(label.into()).or_default();
            values.entry(value.into()).or_default().insert(autoscaler.into());
        }
        if is_loose {
            self.loose.insert(autoscaler.into());
        }
        self.all.insert(autoscaler.into(), selected);
    }

    /// Returns the labels that no selector asks for any more.
    pub(super) fn remove(&mut self, autoscaler: &str) -> Vec<Box<str>> {
        let mut unused = Vec::new();
        let Some(selected) = self.all.remove(autoscaler) else {
            return unused;
        };
        self.loose.remove(autoscaler);
        for (label, value) in equalities(&selected.selector) {
            let Some(values) = self.by_label.get_mut(label) else {
                continue;
            };
            if let Some(names) = values.get_mut(value) {
                names.remove(autoscaler);
                if names.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.by_label.remove(label);
                unused.push(label.into());
            }
        }
        unused
    }

    /// Autoscalers that may select an object with these labels.
    fn candidates(&self, header: &ObjectHeader) -> BTreeMap<&str, &Selected> {
        let equal = header
            .labels
            .iter()
            .filter_map(|(label, value)| self.by_label.get(label)?.get(value));
        let names = self.loose.iter().chain(equal.flatten());
        names
            .filter_map(|name| Some((&**name, &**self.all.get(name)?)))
            .collect()
    }

    /// A search for the autoscalers that select some of these pods.
    pub(super) fn search(self: Arc<Self>, pods: Vec<PodRef>) -> Search {
        Search {
            selectors: self,
            pods,
            seen: HashSet::new(),
            hasher: RandomState::new(),
            found: BTreeSet::new(),
        }
    }
}

/// A search that is done piece by piece.
#[derive(Debug)]
pub(super) struct Search {
    selectors: Arc<Selectors>,
    /// Those that are left to look at.
    pods: Vec<PodRef>,
    /// Hashes of the labels that were looked at: pods of one template have the same.
    seen: HashSet<u64>,
    hasher: RandomState,
    found: BTreeSet<Box<str>>,
}

impl Search {
    /// Goes on for about so many comparisons, for this number of pods at least; reports whether it is done.
    pub(super) fn go(&mut self, comparisons: usize, at_least: usize) -> bool {
        let (mut left, mut pods) = (comparisons, 0);
        while let Some(pod) = self.pods.last() {
            let labels = self.hasher.hash_one(&pod.header.labels);
            if !self.seen.contains(&labels) {
                let candidates = self.selectors.candidates(&pod.header);
                let takes: usize = candidates.values().map(|own| own.comparisons()).sum();
                if takes > left && pods >= at_least {
                    return false;
                }
                (left, pods) = (left.saturating_sub(takes), pods + 1);
                let selecting = candidates
                    .into_iter()
                    .filter(|(_, own)| own.selector.matches(&pod.header));
                self.found
                    .extend(selecting.take(SHOWN).map(|(name, _)| name.into()));
                self.seen.insert(labels);
            }
            self.pods.pop();
            if self.found.len() >= SHOWN {
                break;
            }
        }
        true
    }

    /// Their names, no more than a message shows.
    pub(super) fn into_found(self) -> BTreeSet<Box<str>> {
        self.found.into_iter().take(SHOWN).collect()
    }
}
