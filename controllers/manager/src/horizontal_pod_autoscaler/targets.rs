//! Pods of each autoscaler, without a walk over all pods: an index by namespace, label and value of the labels that
//! selectors in use ask for.
//!
//! A label is indexed with one walk over its namespace when the first selector there asks for it, kept by the events of
//! pods, and forgotten with the last. A selector without an equality is matched with all pods of its namespace.

use super::calculator::PodRef;
use crate::views::PodView;
use machinery_client::{Change, IndexName, Informer, Object};
use machinery_meta::label_selector::{LabelSelector, Operator, ParseSelectorError};
use machinery_meta::{ObjectHeader, ObjectKey};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Autoscalers that one message names.
const SHOWN: usize = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Targets {
    pods: Informer<PodView>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    selectors: BTreeMap<ObjectKey, Arc<Selected>>,
    /// By namespace and label.
    labels: HashMap<(Box<str>, Box<str>), Label>,
    /// Autoscalers without an equality, by namespace.
    loose: HashMap<Box<str>, BTreeSet<Box<str>>>,
}

#[derive(Debug)]
struct Selected {
    text: Box<str>,
    selector: LabelSelector,
}

/// A label that selectors ask for.
#[derive(Debug, Default)]
struct Label {
    /// Autoscalers whose selector has it, by the value that they ask for.
    autoscalers: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    /// Pods by their value.
    pods: HashMap<Box<str>, BTreeSet<Box<str>>>,
}

/// Labels and values that a selector asks for.
fn equalities(selector: &LabelSelector) -> impl Iterator<Item = (&str, &str)> {
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

impl Targets {
    pub(super) fn new(pods: Informer<PodView>) -> Self {
        Self {
            pods,
            state: Mutex::default(),
        }
    }

    /// Notes the selector of an autoscaler and returns the pods that it selects.
    ///
    /// # Errors
    /// The text is no selector.
    pub(super) fn select(
        &self,
        autoscaler: &ObjectKey,
        text: &str,
    ) -> Result<Vec<PodRef>, ParseSelectorError> {
        let mut state = self.state.lock();
        let known = state
            .selectors
            .get(autoscaler)
            .filter(|known| *known.text == *text);
        let selected = match known {
            Some(known) => Arc::clone(known),
            None => {
                let selector = LabelSelector::parse(text)?;
                let text = text.into();
                let selected = Arc::new(Selected { text, selector });
                state.forget(autoscaler);
                state.note(autoscaler, Arc::clone(&selected), &self.pods);
                selected
            }
        };
        let namespace = autoscaler.namespace.as_str();
        let candidates = match state.fewest(namespace, &selected.selector) {
            Some(names) => {
                let keys = names.iter().map(|name| ObjectKey::new(namespace, &**name));
                keys.filter_map(|key| self.pods.get(&key)).collect()
            }
            None => self.pods.by_index(IndexName::NAMESPACE, namespace),
        };
        drop(state);
        let is_selected = |pod: &PodRef| selected.selector.matches(&pod.header);
        Ok(candidates.into_iter().filter(is_selected).collect())
    }

    /// Names of the namespace's autoscalers that select some of these pods, at most [`SHOWN`].
    pub(super) fn selecting(&self, namespace: &str, pods: &[PodRef]) -> BTreeSet<Box<str>> {
        let state = self.state.lock();
        let (mut seen, mut found) = (HashSet::new(), BTreeSet::new());
        for pod in pods {
            // Pods of one template have the same labels.
            if !seen.insert(&pod.header.labels) {
                continue;
            }
            for name in state.candidates(namespace, &pod.header) {
                if found.len() >= SHOWN {
                    return found;
                }
                let key = ObjectKey::new(namespace, name);
                let selected = state.selectors.get(&key);
                if selected.is_some_and(|own| own.selector.matches(&pod.header)) {
                    found.insert(name.into());
                }
            }
        }
        found
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
            state.each_label(&old.header, |label, value, name| label.remove(value, name));
        }
        if let Some(new) = new {
            state.each_label(&new.header, Label::add);
        }
    }
}

impl State {
    fn note(&mut self, autoscaler: &ObjectKey, selected: Arc<Selected>, pods: &Informer<PodView>) {
        let (namespace, name) = (autoscaler.namespace.as_str(), autoscaler.name.as_str());
        let mut is_loose = true;
        for (label, value) in equalities(&selected.selector) {
            is_loose = false;
            let entry = self.labels.entry((namespace.into(), label.into()));
            let own = entry.or_insert_with(|| Label::of(pods, namespace, label));
            own.autoscalers
                .entry(value.into())
                .or_default()
                .insert(name.into());
        }
        if is_loose {
            self.loose
                .entry(namespace.into())
                .or_default()
                .insert(name.into());
        }
        self.selectors.insert(autoscaler.clone(), selected);
    }

    fn forget(&mut self, autoscaler: &ObjectKey) {
        let Some(selected) = self.selectors.remove(autoscaler) else {
            return;
        };
        let (namespace, name) = (autoscaler.namespace.as_str(), autoscaler.name.as_str());
        for (label, value) in equalities(&selected.selector) {
            let key = (namespace.into(), label.into());
            let Some(own) = self.labels.get_mut(&key) else {
                continue;
            };
            remove_from(&mut own.autoscalers, value, name);
            if own.autoscalers.is_empty() {
                self.labels.remove(&key);
            }
        }
        if let Some(own) = self.loose.get_mut(namespace) {
            own.remove(name);
            if own.is_empty() {
                self.loose.remove(namespace);
            }
        }
    }

    /// The pods of the equality that the fewest have; `None` where the selector has none.
    fn fewest(&self, namespace: &str, selector: &LabelSelector) -> Option<Vec<Box<str>>> {
        let all = equalities(selector).map(|(label, value)| {
            let own = self.labels.get(&(namespace.into(), label.into()));
            own.and_then(|own| own.pods.get(value))
        });
        let fewest = all.min_by_key(|pods| pods.map_or(0, BTreeSet::len))?;
        Some(fewest.into_iter().flatten().cloned().collect())
    }

    /// Autoscalers that may select an object with these labels.
    fn candidates<'a>(&'a self, namespace: &str, header: &ObjectHeader) -> BTreeSet<&'a str> {
        let loose = self.loose.get(namespace).into_iter().flatten();
        let mut out: BTreeSet<&str> = loose.map(|name| &**name).collect();
        for (label, value) in &header.labels {
            let own = self.labels.get(&(namespace.into(), label.clone()));
            let names = own.and_then(|own| own.autoscalers.get(value));
            out.extend(names.into_iter().flatten().map(|name| &**name));
        }
        out
    }

    fn each_label(&mut self, header: &ObjectHeader, mut each: impl FnMut(&mut Label, &str, &str)) {
        for (label, value) in &header.labels {
            let key = (header.key.namespace.as_str().into(), label.clone());
            if let Some(own) = self.labels.get_mut(&key) {
                each(own, value, &header.key.name);
            }
        }
    }
}

impl Label {
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
        match self.pods.get_mut(value) {
            Some(pods) => {
                pods.insert(pod.into());
            }
            None => {
                self.pods.insert(value.into(), BTreeSet::from([pod.into()]));
            }
        }
    }

    fn remove(&mut self, value: &str, pod: &str) {
        if let Some(pods) = self.pods.get_mut(value) {
            pods.remove(pod);
            if pods.is_empty() {
                self.pods.remove(value);
            }
        }
    }
}

fn remove_from(all: &mut BTreeMap<Box<str>, BTreeSet<Box<str>>>, key: &str, name: &str) {
    if let Some(names) = all.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            all.remove(key);
        }
    }
}
