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
    pub(super) text: Arc<str>,
    pub(super) selector: LabelSelector,
}

impl Selected {
    /// Comparisons that a check of one pod takes, at most.
    pub(super) fn comparisons(&self) -> usize {
        1 + self.selector.requirements().len()
    }
}

/// Number of a text among those of a namespace.
type Id = u64;
/// Texts by the value of a label.
type ByValue = BTreeMap<Box<str>, BTreeSet<Id>>;

/// A selector, and the autoscalers that have it: many may have one target, whose selector may be long.
#[derive(Debug, Clone)]
struct Shared {
    selected: Arc<Selected>,
    autoscalers: BTreeSet<Box<str>>,
}

/// Selectors of a namespace's autoscalers, each once.
#[derive(Debug, Clone, Default)]
pub(super) struct Selectors {
    autoscalers: BTreeMap<Box<str>, Id>,
    by_text: HashMap<Arc<str>, Id>,
    shared: BTreeMap<Id, Shared>,
    last: Id,
    /// Selectors by a label and the value that they request.
    by_label: HashMap<Box<str>, ByValue>,
    /// Selectors without an equality.
    loose: BTreeSet<Id>,
}

/// Labels and values that a selector requests.
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
        self.autoscalers.is_empty()
    }

    /// The selector of this text, whichever target has it.
    pub(super) fn of_text(&self, text: &str) -> Option<Arc<Selected>> {
        let shared = self.shared.get(self.by_text.get(text)?)?;
        Some(Arc::clone(&shared.selected))
    }

    /// Reports whether an autoscaler has the selector of this text.
    pub(super) fn has(&self, autoscaler: &str, text: &str) -> bool {
        let own = self.autoscalers.get(autoscaler);
        own.is_some_and(|own| self.by_text.get(text) == Some(own))
    }

    pub(super) fn add(&mut self, autoscaler: &str, selected: Arc<Selected>) {
        let id = match self.by_text.get(&selected.text) {
            Some(id) => *id,
            None => self.add_text(selected),
        };
        if let Some(shared) = self.shared.get_mut(&id) {
            shared.autoscalers.insert(autoscaler.into());
        }
        self.autoscalers.insert(autoscaler.into(), id);
    }

    fn add_text(&mut self, selected: Arc<Selected>) -> Id {
        self.last += 1;
        let (id, mut is_loose) = (self.last, true);
        for (label, value) in equalities(&selected.selector) {
            is_loose = false;
            let values = self.by_label.entry(label.into()).or_default();
            values.entry(value.into()).or_default().insert(id);
        }
        if is_loose {
            self.loose.insert(id);
        }
        self.by_text.insert(Arc::clone(&selected.text), id);
        let autoscalers = BTreeSet::new();
        self.shared.insert(
            id,
            Shared {
                selected,
                autoscalers,
            },
        );
        id
    }

    /// Returns the labels that no selector requests any more.
    pub(super) fn remove(&mut self, autoscaler: &str) -> Vec<Box<str>> {
        let Some(id) = self.autoscalers.remove(autoscaler) else {
            return Vec::new();
        };
        if let Some(shared) = self.shared.get_mut(&id) {
            shared.autoscalers.remove(autoscaler);
            if !shared.autoscalers.is_empty() {
                return Vec::new();
            }
        }
        self.shared
            .remove(&id)
            .map_or_else(Vec::new, |shared| self.remove_text(id, &shared.selected))
    }

    fn remove_text(&mut self, id: Id, selected: &Selected) -> Vec<Box<str>> {
        let mut unused = Vec::new();
        self.by_text.remove(&selected.text);
        self.loose.remove(&id);
        for (label, value) in equalities(&selected.selector) {
            let Some(values) = self.by_label.get_mut(label) else {
                continue;
            };
            if let Some(ids) = values.get_mut(value) {
                ids.remove(&id);
                if ids.is_empty() {
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

    /// Selectors that may select an object with these labels.
    fn candidates(&self, header: &ObjectHeader) -> BTreeMap<Id, &Shared> {
        let equal = header
            .labels
            .iter()
            .filter_map(|(label, value)| self.by_label.get(label)?.get(value));
        let ids = self.loose.iter().chain(equal.flatten());
        ids.filter_map(|id| Some((*id, self.shared.get(id)?))).collect()
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
    /// Pods that are left to look at.
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
                let takes: usize = candidates.values().map(|own| own.selected.comparisons()).sum();
                if takes > left && pods >= at_least {
                    return false;
                }
                (left, pods) = (left.saturating_sub(takes), pods + 1);
                let selecting = candidates
                    .into_values()
                    .filter(|own| own.selected.selector.matches(&pod.header));
                let names = selecting.flat_map(|own| own.autoscalers.iter().take(SHOWN));
                self.found.extend(names.cloned());
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
