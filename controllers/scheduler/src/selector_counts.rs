//! Counters that answer pod affinity and topology spread without looking at pods.
//!
//! A counter holds, for one set of selectors, how many matching pods each node has. It is made on first use by
//! one walk over all pods and from then on follows every pod that comes or goes. The plugins sum a counter over
//! the nodes of a topology. The affinity terms that *existing* pods bring along are counted the same way, one
//! counter per distinct term.

use crate::footprint::hashed_bytes;
use crate::object::{Affinity, LabelSelector, Labels, Metadata, Pod, PodAffinityTerm};
use crate::selector::labels_match;
use std::collections::HashMap;

/// Counters kept from one attempt to the next; the least recently used goes first.
pub const MAX_COUNTERS: usize = 1024;
/// Bytes of all their selectors, as [`hashed_bytes`] counts: the pods that made them may be gone.
pub const MAX_COUNTER_BYTES: usize = 1 << 20;

/// Labels of every namespace, for namespace selectors.
pub type Namespaces = HashMap<Box<str>, Labels>;

/// Selects pods in some namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodSelector {
    pub namespaces: Vec<Box<str>>,
    pub namespace_selector: Option<LabelSelector>,
    pub labels: Option<LabelSelector>,
}

impl PodSelector {
    pub fn in_namespace(namespace: &str, labels: LabelSelector) -> Self {
        Self {
            namespaces: vec![namespace.into()],
            namespace_selector: None,
            labels: Some(labels),
        }
    }

    pub fn matches(&self, pod: &Metadata, namespaces: &Namespaces) -> bool {
        self.covers(&pod.namespace, namespaces) && labels_match(self.labels.as_ref(), &pod.labels)
    }

    fn covers(&self, namespace: &str, namespaces: &Namespaces) -> bool {
        if self.namespaces.iter().any(|own| &**own == namespace) {
            return true;
        }
        let Some(selector) = &self.namespace_selector else {
            return false;
        };
        let none = Labels::default();
        labels_match(Some(selector), namespaces.get(namespace).unwrap_or(&none))
    }
}

/// One affinity or anti-affinity term; the weight is 0 for required ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Term {
    pub topology_key: Box<str>,
    pub selector: PodSelector,
    pub weight: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TermKind {
    RequiredAffinity,
    RequiredAntiAffinity,
    PreferredAffinity,
    PreferredAntiAffinity,
}

/// All terms of a pod of the namespace.
pub fn terms_of(namespace: &str, affinity: &Affinity) -> Vec<(TermKind, Term)> {
    let (near, far) = (affinity.pod_affinity.get(), affinity.pod_anti_affinity.get());
    let required = |kind, terms: &[PodAffinityTerm]| -> Vec<(TermKind, Term)> {
        terms
            .iter()
            .map(|term| (kind, term_of(term, 0, namespace)))
            .collect()
    };
    let mut all = required(TermKind::RequiredAffinity, &near.required);
    all.extend(required(TermKind::RequiredAntiAffinity, &far.required));
    let preferred = [
        (TermKind::PreferredAffinity, &near.preferred),
        (TermKind::PreferredAntiAffinity, &far.preferred),
    ];
    for (kind, terms) in preferred {
        all.extend(
            terms
                .iter()
                .map(|term| (kind, term_of(&term.pod_affinity_term, term.weight, namespace))),
        );
    }
    all
}

/// Without namespaces and namespace selector a term is about the pod's own namespace.
fn term_of(term: &PodAffinityTerm, weight: i32, namespace: &str) -> Term {
    let own = term.namespaces.is_empty() && term.namespace_selector.is_none();
    let namespaces = if own {
        vec![namespace.into()]
    } else {
        term.namespaces.clone()
    };
    Term {
        topology_key: term.topology_key.clone(),
        selector: PodSelector {
            namespaces,
            namespace_selector: term.namespace_selector.clone(),
            labels: term.label_selector.clone(),
        },
        weight,
    }
}

/// What a counter counts: pods that match all selectors, and whether pods being deleted count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CounterKey {
    pub selectors: Vec<PodSelector>,
    pub skip_deleting: bool,
}

impl CounterKey {
    /// Whether the pod counts, and how many selectors were compared to know.
    fn compared(&self, pod: &Pod, namespaces: &Namespaces) -> (bool, usize) {
        let mut compared = 0;
        let counts = !(self.skip_deleting && pod.is_deleting())
            && self.selectors.iter().all(|one| {
                compared += 1;
                one.matches(&pod.metadata, namespaces)
            });
        (counts, compared.max(1))
    }

    fn counts(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        self.compared(pod, namespaces).0
    }
}

#[derive(Debug)]
struct Counter {
    per_node: Vec<u32>,
    last_used: u64,
    bytes: usize,
}

/// Counters by key, and the terms of the pods on the nodes.
#[derive(Debug, Default)]
pub struct SelectorCounts {
    counters: HashMap<CounterKey, Counter>,
    terms: HashMap<(TermKind, Term), Vec<u32>>,
    uses: u64,
    /// Those of all counters together.
    bytes: usize,
}

impl SelectorCounts {
    /// A pod came to (`+1`) or left (`-1`) a node.
    pub fn change(
        &mut self,
        pod: &Pod,
        terms: &[(TermKind, Term)],
        node: usize,
        came: bool,
        namespaces: &Namespaces,
    ) {
        for (key, counter) in &mut self.counters {
            if key.counts(pod, namespaces) {
                bump(&mut counter.per_node, node, came);
            }
        }
        for term in terms {
            if !self.terms.contains_key(term) {
                self.terms.insert(term.clone(), Vec::new());
            }
            let Some(counts) = self.terms.get_mut(term) else {
                continue;
            };
            bump(counts, node, came);
            if !came && counts.iter().all(|count| *count == 0) {
                self.terms.remove(term);
            }
        }
    }

    /// Makes sure the counter exists; `pods` is asked for every pod with its node when it does not. Returns the
    /// comparisons made.
    pub fn ensure<'a>(
        &mut self,
        key: &CounterKey,
        pods: impl Iterator<Item = (usize, &'a Pod)>,
        namespaces: &Namespaces,
    ) -> usize {
        self.uses += 1;
        let uses = self.uses;
        if let Some(counter) = self.counters.get_mut(key) {
            counter.last_used = uses;
            return 0;
        }
        let (mut per_node, mut seen) = (Vec::new(), 0);
        for (node, pod) in pods {
            let (counts, compared) = key.compared(pod, namespaces);
            seen += compared;
            if counts {
                bump(&mut per_node, node, true);
            }
        }
        let bytes = hashed_bytes(key);
        self.bytes += bytes;
        self.counters.insert(
            key.clone(),
            Counter {
                per_node,
                last_used: uses,
                bytes,
            },
        );
        seen
    }

    /// Counters that a pod is compared with when it comes or goes.
    pub fn counters(&self) -> usize {
        self.counters.len()
    }

    /// Drops what was used least recently, down to the bounds. Between attempts only: one attempt needs all of its own.
    pub fn trim(&mut self) {
        if self.counters.len() <= MAX_COUNTERS && self.bytes <= MAX_COUNTER_BYTES {
            return;
        }
        let mut uses: Vec<(u64, usize)> = self
            .counters
            .values()
            .map(|one| (one.last_used, one.bytes))
            .collect();
        uses.sort_unstable_by(|left, right| right.cmp(left));
        let mut bytes = 0;
        let kept = uses.iter().take(MAX_COUNTERS).take_while(|(_, own)| {
            bytes += own;
            bytes <= MAX_COUNTER_BYTES
        });
        let since = kept.last().map_or(u64::MAX, |(last_used, _)| *last_used);
        self.retain(|_, counter| counter.last_used >= since);
    }

    fn retain(&mut self, keep: impl Fn(&CounterKey, &Counter) -> bool) {
        self.counters.retain(|key, counter| keep(key, counter));
        self.bytes = self.counters.values().map(|one| one.bytes).sum();
    }

    /// Counters kept, and the bytes of their selectors.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, usize) {
        (self.counters.len(), self.bytes)
    }

    /// How many counters were asked for.
    #[cfg(test)]
    pub(crate) fn uses(&self) -> u64 {
        self.uses
    }

    /// Counts per node; nodes beyond the end have none. Empty when [`Self::ensure`] was not called.
    pub fn per_node(&self, key: &CounterKey) -> &[u32] {
        self.counters.get(key).map_or(&[], |counter| &counter.per_node)
    }

    /// The distinct terms of pods on nodes, with how many pods of each node carry them.
    pub fn existing_terms(&self) -> impl Iterator<Item = (TermKind, &Term, &[u32])> {
        self.terms
            .iter()
            .map(|((kind, term), counts)| (*kind, term, &counts[..]))
    }

    /// Namespace labels changed: counters with namespace selectors are made anew when next asked for.
    pub fn forget_namespace_selectors(&mut self) {
        self.retain(|key, _| key.selectors.iter().all(|one| one.namespace_selector.is_none()));
    }
}

fn bump(counts: &mut Vec<u32>, node: usize, came: bool) {
    if counts.len() <= node {
        counts.resize(node + 1, 0);
    }
    counts[node] = if came {
        counts[node] + 1
    } else {
        counts[node].saturating_sub(1)
    };
}
