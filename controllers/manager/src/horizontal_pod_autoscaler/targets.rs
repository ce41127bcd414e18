//! Pods of each autoscaler, without a walk over all pods: an index by namespace, label and value of the labels that
//! selectors in use request.
//!
//! A label is indexed with one walk over its namespace when the first selector there requests it, kept by the events of
//! pods, and forgotten with the last. A selector without an equality is matched with all pods of its namespace.
//!
//! Nothing is compared under the lock, which events of pods need: a look takes a namespace's selectors along as they are
//! ([`selectors`]), and compares in the turn of its namespace where that is long ([`crate::heavy`]).

use super::ROW;
use super::calculator::PodRef;
use super::selectors::{Selected, Selectors, equalities};
use crate::heavy;
use crate::views::PodView;
use machinery_client::{Change, IndexName, Informer, Object};
use machinery_meta::label_selector::{LabelSelector, ParseSelectorError};
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(super) struct Targets {
    runtime: Runtime,
    pods: Informer<PodView>,
    state: Mutex<State>,
}

/// A turn of a namespace is that many times as long as what is done at once.
const PIECE: usize = 64;

#[derive(Debug, Default)]
struct State {
    /// By namespace. One that a look has taken along is copied before it changes.
    selectors: HashMap<Box<str>, Arc<Selectors>>,
    /// Pods by the values of a label that selectors request; by namespace and label.
    labels: HashMap<(Box<str>, Box<str>), PodsByValue>,
}

#[derive(Debug, Default)]
struct PodsByValue(HashMap<Box<str>, BTreeSet<Box<str>>>);

impl Targets {
    pub(super) fn new(runtime: Runtime, pods: Informer<PodView>) -> Self {
        Self {
            runtime,
            pods,
            state: Mutex::default(),
        }
    }

    /// Notes the selector of an autoscaler and returns the pods that it selects.
    ///
    /// # Errors
    /// The text is no selector.
    pub(super) async fn select(
        &self,
        autoscaler: &ObjectKey,
        text: &str,
    ) -> Result<Vec<PodRef>, ParseSelectorError> {
        let selected = self.note(autoscaler, text)?;
        let namespace = autoscaler.namespace.as_str();
        let fewest = self.state.lock().fewest(namespace, &selected.selector);
        let candidates: Vec<PodRef> = match fewest {
            Some(names) => {
                let keys = names.iter().map(|name| ObjectKey::new(namespace, &**name));
                keys.filter_map(|key| self.pods.get(&key)).collect()
            }
            None => self.pods.by_index(IndexName::NAMESPACE, namespace),
        };
        let comparisons = selected.comparisons().saturating_mul(candidates.len());
        let matching = move || {
            let is_selected = |pod: &PodRef| selected.selector.matches(&pod.header);
            candidates.into_iter().filter(is_selected).collect()
        };
        let flow = || heavy::flow(ROW.name, namespace);
        Ok(heavy::step(&self.runtime, flow, comparisons, matching).await)
    }

    fn note(&self, autoscaler: &ObjectKey, text: &str) -> Result<Arc<Selected>, ParseSelectorError> {
        let (namespace, name) = (autoscaler.namespace.as_str(), autoscaler.name.as_str());
        let selectors = self.selectors(namespace);
        let known = selectors.of_text(text);
        let has_it = selectors.has(name, text);
        drop(selectors);
        let selected = match known {
            Some(known) if has_it => return Ok(known),
            Some(known) => known,
            None => Arc::new(Selected {
                text: text.into(),
                selector: LabelSelector::parse(text)?,
            }),
        };
        let mut state = self.state.lock();
        state.forget(autoscaler);
        state.note(autoscaler, Arc::clone(&selected), &self.pods);
        Ok(selected)
    }

    fn selectors(&self, namespace: &str) -> Arc<Selectors> {
        self.state
            .lock()
            .selectors
            .get(namespace)
            .cloned()
            .unwrap_or_default()
    }

    /// Names of the namespace's autoscalers that select some of these pods, two at most.
    pub(super) async fn selecting(&self, namespace: &str, pods: &[PodRef]) -> BTreeSet<Box<str>> {
        let mut search = self.selectors(namespace).search(pods.to_vec());
        let mut is_done = search.go(heavy::LIGHT, 0);
        while !is_done {
            let piece = move || {
                let is_done = search.go(heavy::LIGHT * PIECE, 1);
                (search, is_done)
            };
            (search, is_done) = self.runtime.heavy(heavy::flow(ROW.name, namespace), piece).await;
        }
        search.into_found()
    }

    /// The autoscaler is gone.
    pub(super) fn forget(&self, autoscaler: &ObjectKey) {
        self.state.lock().forget(autoscaler);
    }

    /// Keeps the indexes.
    pub(super) fn pod_changed(&self, change: &Change<PodView>) {
        let mut state = self.state.lock();
        if state.labels.is_empty() {
            return;
        }
        let (old, new) = (change.old.as_ref(), change.new.as_ref());
        let labels = |side: Option<&Arc<Object<PodView>>>| side.map(|pod| pod.header.labels.clone());
        if labels(old) == labels(new) {
            return;
        }
        if let Some(old) = old {
            state.each_label(&old.header, PodsByValue::remove);
        }
        if let Some(new) = new {
            state.each_label(&new.header, PodsByValue::add);
        }
    }
}

impl State {
    fn note(&mut self, autoscaler: &ObjectKey, selected: Arc<Selected>, pods: &Informer<PodView>) {
        let (namespace, name) = (autoscaler.namespace.as_str(), autoscaler.name.as_str());
        for (label, _) in equalities(&selected.selector) {
            let entry = self.labels.entry((namespace.into(), label.into()));
            entry.or_insert_with(|| PodsByValue::of(pods, namespace, label));
        }
        let own = self.selectors.entry(namespace.into()).or_default();
        Arc::make_mut(own).add(name, selected);
    }

    fn forget(&mut self, autoscaler: &ObjectKey) {
        let namespace = autoscaler.namespace.as_str();
        let Some(own) = self.selectors.get_mut(namespace) else {
            return;
        };
        for label in Arc::make_mut(own).remove(&autoscaler.name) {
            self.labels.remove(&(namespace.into(), label));
        }
        if own.is_empty() {
            self.selectors.remove(namespace);
        }
    }

    /// The pods of the equality that the fewest have; `None` where the selector has none.
    fn fewest(&self, namespace: &str, selector: &LabelSelector) -> Option<Vec<Box<str>>> {
        let all = equalities(selector).map(|(label, value)| {
            let own = self.labels.get(&(namespace.into(), label.into()));
            own.and_then(|own| own.0.get(value))
        });
        let fewest = all.min_by_key(|pods| pods.map_or(0, BTreeSet::len))?;
        Some(fewest.into_iter().flatten().cloned().collect())
    }

    fn each_label(&mut self, header: &ObjectHeader, mut each: impl FnMut(&mut PodsByValue, &str, &str)) {
        for (label, value) in &header.labels {
            let key = (header.key.namespace.as_str().into(), label.clone());
            if let Some(own) = self.labels.get_mut(&key) {
                each(own, value, &header.key.name);
            }
        }
    }
}

impl PodsByValue {
    fn of(pods: &Informer<PodView>, namespace: &str, label: &str) -> Self {
        let mut own = Self::default();
        for pod in pods.by_index(IndexName::NAMESPACE, namespace) {
            if let Some(value) = pod.header.label(label) {
                own.add(value, pod.name());
            }
        }
        own
    }

    fn add(&mut self, value: &str, pod: &str) {
        match self.0.get_mut(value) {
            Some(pods) => {
                pods.insert(pod.into());
            }
            None => {
                self.0.insert(value.into(), BTreeSet::from([pod.into()]));
            }
        }
    }

    fn remove(&mut self, value: &str, pod: &str) {
        if let Some(pods) = self.0.get_mut(value) {
            pods.remove(pod);
            if pods.is_empty() {
                self.0.remove(value);
            }
        }
    }
}
