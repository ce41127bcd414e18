//! Counters that answer pod affinity and topology spread without looking at pods.
//!
//! A counter holds, for one set of selectors, how many matching pods each node has. It is made on first use by
//! one walk over the pods of its namespaces and from then on follows every pod that comes or goes. The plugins sum a
//! counter over the nodes of a topology. The affinity terms that *existing* pods bring along are counted the same way,
//! one counter per distinct term. Both are found by the pod that comes, goes or is placed ([`index`]), and keep
//! numbers for the nodes that have some ([`SparseColumn`]): neither takes memory or time for what it is not about.

mod index;
mod tallies;

use crate::footprint::hashed_bytes;
use crate::object::{Metadata, Pod};
use crate::placed::Placed;
use crate::pod::PodInfo;
pub use crate::pod_terms::{Namespaces, OwnedTerm, PodSelector, Term, TermKind};
use crate::sparse_column::{NOTHING, SparseColumn};
use index::SelectorIndex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tallies::{Selecting, Tallies};

/// Counters kept from one attempt to the next; the least recently used goes first.
pub const MAX_COUNTERS: usize = 1024;
/// Bytes of all their selectors, as [`hashed_bytes`] counts: the pods that made them may be gone.
pub const MAX_COUNTER_BYTES: usize = 1 << 20;

/// Pods that a counter counts: those that match all selectors, with or without pods being deleted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CounterKey {
    pub selectors: Vec<PodSelector>,
    pub skip_deleting: bool,
}

impl CounterKey {
    /// Returns true if the pod counts, and the number of selectors compared.
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

/// Time of a counter's last use, and the bytes of its selectors.
#[derive(Debug)]
struct Use {
    last_used: u64,
    bytes: usize,
}

/// A counter, from [`SelectorCounts::ensure`] to the next [`SelectorCounts::trim`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterId(u32);

/// A term of pods on nodes, for as long as [`SelectorCounts::terms_version`] stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermId(u32);

/// Counters by key, and the terms of the pods on the nodes.
#[derive(Debug, Default)]
pub struct SelectorCounts {
    counters: Tallies<CounterKey, Use>,
    terms: Tallies<OwnedTerm, ()>,
    terms_version: u64,
    /// Numbers of terms of required anti-affinity by topology key.
    avoiding_keys: BTreeMap<Box<str>, usize>,
    uses: u64,
    /// Bytes of all counters together.
    bytes: usize,
}

impl SelectorCounts {
    /// A pod came to (`+1`) or left (`-1`) a node: the counters that may select it and its own terms are looked at.
    pub fn change(
        &mut self,
        pod: &Pod,
        terms: &[Arc<OwnedTerm>],
        node: usize,
        came: bool,
        namespaces: &Namespaces,
    ) {
        let candidates = self.counters.candidates(&pod.metadata);
        let counting = candidates.filter(|(_, tally)| tally.key.counts(pod, namespaces));
        let ids: Vec<u32> = counting.map(|(id, _)| id).collect();
        for id in ids {
            if let Some(tally) = self.counters.get_mut(id) {
                tally.by_node.bump(node, came);
            }
        }
        for term in terms {
            let id = self.terms.id(term).unwrap_or_else(|| {
                self.terms_version += 1;
                if term.0 == TermKind::RequiredAntiAffinity {
                    let key = term.1.topology_key.clone();
                    *self.avoiding_keys.entry(key).or_default() += 1;
                }
                self.terms.insert(Arc::clone(term), ())
            });
            let Some(tally) = self.terms.get_mut(id) else {
                continue;
            };
            tally.by_node.bump(node, came);
            if tally.by_node.is_empty() {
                self.terms_version += 1;
                self.terms.remove(id);
                self.avoids_no_more(term);
            }
        }
    }

    fn avoids_no_more(&mut self, term: &OwnedTerm) {
        let key = &term.1.topology_key;
        if term.0 == TermKind::RequiredAntiAffinity
            && let Some(count) = self.avoiding_keys.get_mut(key)
        {
            *count -= 1;
            if *count == 0 {
                self.avoiding_keys.remove(key);
            }
        }
    }

    /// Topology keys of the terms of required anti-affinity that pods on nodes have.
    pub(crate) fn avoiding_keys(&self) -> impl Iterator<Item = &str> {
        self.avoiding_keys.keys().map(|key| &**key)
    }

    /// The counters of these keys. Those that are not there are made of the pods that have the labels which they want, those that
    /// want none in particular by one walk over the pods of the namespaces they are about. Returns the pods looked at and the
    /// comparisons made as well.
    pub(crate) fn ensure(
        &mut self,
        keys: Vec<CounterKey>,
        placed: &Placed,
        namespaces: &Namespaces,
    ) -> (Vec<CounterId>, usize) {
        if keys.is_empty() {
            return (Vec::new(), 0);
        }
        self.uses += 1;
        let mut fresh = SelectorIndex::default();
        let (mut listed, mut anywhere) = (BTreeSet::new(), false);
        let mut steps = 0;
        let ids = keys.into_iter().map(|key| {
            let id = self.counters.id(&key).unwrap_or_else(|| {
                let bytes = hashed_bytes(&key);
                self.bytes += bytes;
                let key = Arc::new(key);
                let selector = key.selector();
                let id = self
                    .counters
                    .insert(Arc::clone(&key), Use { last_used: 0, bytes });
                if let Some(labels) = selector.any_of_labels() {
                    let pods = labelled(selector, &labels, placed);
                    steps += self.count_all(id, &pods, namespaces);
                } else {
                    anywhere |= selector.namespace_selector.is_some();
                    listed.extend(selector.namespaces.iter().cloned());
                    fresh.insert(selector, id);
                }
                id
            });
            if let Some(tally) = self.counters.get_mut(id) {
                tally.value.last_used = self.uses;
            }
            CounterId(id)
        });
        let ids: Vec<CounterId> = ids.collect();
        steps += if anywhere {
            self.count(&fresh, placed.all(), namespaces)
        } else {
            let listed = listed.iter().flat_map(|name| placed.of_namespace(name));
            self.count(&fresh, listed, namespaces)
        };
        (ids, steps)
    }

    /// Counts those of the pods that the counter counts. Returns the steps.
    fn count_all(&mut self, id: u32, pods: &[&(usize, Arc<PodInfo>)], namespaces: &Namespaces) -> usize {
        let Some(tally) = self.counters.get_mut(id) else {
            return 0;
        };
        let mut steps = 0;
        for (node, pod) in pods {
            let (counts, compared) = tally.key.compared(&pod.pod, namespaces);
            steps += compared;
            if counts {
                tally.by_node.bump(*node, true);
            }
        }
        steps
    }

    /// Counts the pods for the counters of this index. Returns the steps.
    fn count<'a>(
        &mut self,
        fresh: &SelectorIndex,
        pods: impl Iterator<Item = &'a (usize, Arc<PodInfo>)>,
        namespaces: &Namespaces,
    ) -> usize {
        let mut steps = 0;
        for (node, pod) in pods {
            let mut of_pod = 0;
            for id in fresh.candidates(&pod.pod.metadata) {
                let Some(tally) = self.counters.get_mut(id) else {
                    continue;
                };
                let (counts, compared) = tally.key.compared(&pod.pod, namespaces);
                of_pod += compared;
                if counts {
                    tally.by_node.bump(*node, true);
                }
            }
            steps += of_pod.max(1);
        }
        steps
    }

    /// Counters and terms that a pod is compared with when it comes or goes, beside its own terms.
    pub fn touched_by(&self, pod: &Metadata) -> usize {
        self.counters.candidate_count(pod)
    }

    /// Drops what was used least recently, down to the bounds. Between attempts only: one attempt needs all of its own.
    pub fn trim(&mut self) {
        if self.counters.len() <= MAX_COUNTERS && self.bytes <= MAX_COUNTER_BYTES {
            return;
        }
        let mut uses: Vec<(u64, u32, usize)> = self
            .counters
            .iter()
            .map(|(id, own)| (own.value.last_used, id, own.value.bytes))
            .collect();
        uses.sort_unstable_by(|left, right| right.cmp(left));
        let (mut count, mut bytes) = (0, 0);
        for (_, id, own) in uses {
            count += 1;
            bytes += own;
            if count > MAX_COUNTERS || bytes > MAX_COUNTER_BYTES {
                self.forget(id);
            }
        }
    }

    fn forget(&mut self, id: u32) {
        self.bytes -= self.counters.get(id).map_or(0, |tally| tally.value.bytes);
        self.counters.remove(id);
    }

    /// Counters kept, and the bytes of their selectors.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, usize) {
        (self.counters.len(), self.bytes)
    }

    /// Number of times counters were used.
    #[cfg(test)]
    pub(crate) fn uses(&self) -> u64 {
        self.uses
    }

    /// Pods by node of a counter.
    pub fn by_node(&self, id: CounterId) -> &SparseColumn {
        self.counters.get(id.0).map_or(&NOTHING, |tally| &tally.by_node)
    }

    /// The same as [`Self::by_node`], by key; empty when [`Self::ensure`] was not called.
    pub fn by_key(&self, key: &CounterKey) -> &SparseColumn {
        self.counters
            .id(key)
            .map_or(&NOTHING, |id| self.by_node(CounterId(id)))
    }

    /// Changes with each term that pods on nodes have or have no longer.
    pub fn terms_version(&self) -> u64 {
        self.terms_version
    }

    /// Terms of pods on nodes that are about the pod, and how many were compared.
    pub fn terms_about(&self, pod: &Metadata, namespaces: &Namespaces) -> (Vec<TermId>, usize) {
        let (mut about, mut compared) = (Vec::new(), 0);
        for (id, tally) in self.terms.candidates(pod) {
            compared += 1;
            if tally.key.1.selector.matches(pod, namespaces) {
                about.push(TermId(id));
            }
        }
        (about, compared)
    }

    /// A term of pods on nodes, with how many pods of each node carry it.
    pub fn term(&self, id: TermId) -> Option<(TermKind, &Term, &SparseColumn)> {
        let tally = self.terms.get(id.0)?;
        Some((tally.key.0, &tally.key.1, &tally.by_node))
    }

    /// Namespace labels changed: counters with namespace selectors are made anew when next requested.
    pub fn forget_namespace_selectors(&mut self) {
        let selects = |key: &CounterKey| key.selectors.iter().any(|one| one.namespace_selector.is_some());
        let gone: Vec<u32> = (self.counters.iter())
            .filter(|(_, tally)| selects(&tally.key))
            .map(|(id, _)| id)
            .collect();
        gone.into_iter().for_each(|id| self.forget(id));
    }
}

/// Pods that the selector may select, as they have one of the labels.
fn labelled<'a>(
    selector: &PodSelector,
    labels: &[(&str, &str)],
    placed: &'a Placed,
) -> Vec<&'a (usize, Arc<PodInfo>)> {
    let names: BTreeSet<&str> = selector.namespaces.iter().map(|name| &**name).collect();
    let listed = Some(&names).filter(|_| selector.namespace_selector.is_none());
    placed.with_any_label(listed, labels)
}

impl Selecting for CounterKey {
    /// The one that narrows most: a pod that counts meets all of them.
    fn selector(&self) -> &PodSelector {
        let all = self.selectors.iter();
        all.max_by_key(|one| one.narrowness())
            .expect("a counter has a selector")
    }
}

impl Selecting for OwnedTerm {
    fn selector(&self) -> &PodSelector {
        &self.1.selector
    }
}
