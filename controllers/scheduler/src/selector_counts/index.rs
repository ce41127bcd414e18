//! Finds the selectors that may select a pod without looking at the others.
//!
//! A selector is filed under its namespaces and, where it has one, under a label that it wants: a pod looks under its own
//! namespace and labels. A selector of absent labels alone is found by every pod of its namespaces; one that selects
//! namespaces by their labels is filed under any.

use super::PodSelector;
use crate::object::{LabelSelector, Metadata};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

/// Places in which one selector is filed at most, beside one for each of its namespaces.
const MAX_PLACES: usize = 16;

/// Ids of selectors. A hash stands for each place: another selector that is found by chance is compared all the same.
#[derive(Debug, Default)]
pub(super) struct SelectorIndex {
    hasher: RandomState,
    places: HashMap<u64, Ids>,
}

#[derive(Debug)]
enum Ids {
    One(u32),
    Many(BTreeSet<u32>),
}

/// The label that a selector wants.
enum Wanted<'a> {
    /// One of these values.
    Values(&'a str, Vec<&'a str>),
    /// Any value.
    Key(&'a str),
    /// None: it is about labels that are not there.
    Nothing,
}

impl SelectorIndex {
    pub(super) fn insert(&mut self, selector: &PodSelector, id: u32) {
        for place in self.places_of(selector) {
            match self.places.entry(place) {
                std::collections::hash_map::Entry::Vacant(free) => {
                    free.insert(Ids::One(id));
                }
                std::collections::hash_map::Entry::Occupied(mut taken) => taken.get_mut().insert(id),
            }
        }
    }

    pub(super) fn remove(&mut self, selector: &PodSelector, id: u32) {
        for place in self.places_of(selector) {
            if self.places.get_mut(&place).is_some_and(|ids| ids.remove(id)) {
                self.places.remove(&place);
            }
        }
    }

    /// Selectors that may select the pod, each once.
    pub(super) fn candidates(&self, pod: &Metadata) -> impl Iterator<Item = u32> {
        let mut found: Vec<&Ids> = Vec::new();
        if !self.places.is_empty() {
            for namespace in [Some(&*pod.namespace), None] {
                found.extend(self.places.get(&self.place(namespace, None, None)));
                for (key, value) in pod.labels.iter() {
                    found.extend(self.places.get(&self.place(namespace, Some(key), None)));
                    found.extend(self.places.get(&self.place(namespace, Some(key), Some(value))));
                }
            }
        }
        found.into_iter().flat_map(Ids::iter)
    }

    /// Number of [`Self::candidates`].
    pub(super) fn candidate_count(&self, pod: &Metadata) -> usize {
        self.candidates(pod).count()
    }

    fn places_of(&self, selector: &PodSelector) -> Vec<u64> {
        let Some(labels) = &selector.labels else {
            return Vec::new();
        };
        let namespaces: Vec<Option<&str>> = if selector.namespace_selector.is_some() {
            vec![None]
        } else {
            selector.namespaces.iter().map(|name| Some(&**name)).collect()
        };
        let (key, values): (_, Vec<Option<&str>>) = match wanted(labels, MAX_PLACES / namespaces.len().max(1))
        {
            Wanted::Values(key, values) => (Some(key), values.into_iter().map(Some).collect()),
            Wanted::Key(key) => (Some(key), vec![None]),
            Wanted::Nothing => (None, vec![None]),
        };
        let in_namespace = |namespace| values.iter().map(move |value| (namespace, *value));
        let all = namespaces.into_iter().flat_map(in_namespace);
        let places: BTreeSet<u64> = all
            .map(|(namespace, value)| self.place(namespace, key, value))
            .collect();
        places.into_iter().collect()
    }

    fn place(&self, namespace: Option<&str>, key: Option<&str>, value: Option<&str>) -> u64 {
        self.hasher.hash_one((namespace, key, value))
    }
}

/// The label that narrows most: one with a value, then one with the fewest values, then one with any.
fn wanted(selector: &LabelSelector, most: usize) -> Wanted<'_> {
    if let Some((key, value)) = selector.match_labels.iter().next() {
        return Wanted::Values(key, vec![value]);
    }
    let of = |operator: &'static str| {
        let all = selector.match_expressions.iter();
        all.filter(move |one| &*one.operator == operator)
    };
    match of("In").min_by_key(|one| one.values.len()) {
        Some(one) if one.values.len() <= most.max(1) => {
            Wanted::Values(&one.key, one.values.iter().map(|value| &**value).collect())
        }
        Some(one) => Wanted::Key(&one.key),
        None => of("Exists")
            .next()
            .map_or(Wanted::Nothing, |one| Wanted::Key(&one.key)),
    }
}

impl PodSelector {
    /// Labels of one key of which every selected pod has one; `None` where the selector names no such labels.
    pub(super) fn any_of_labels(&self) -> Option<Vec<(&str, &str)>> {
        let Some(labels) = &self.labels else {
            return Some(Vec::new());
        };
        match wanted(labels, MAX_PLACES) {
            Wanted::Values(key, values) => Some(values.into_iter().map(|value| (key, value)).collect()),
            Wanted::Key(_) | Wanted::Nothing => None,
        }
    }

    /// Rank of a selector by how far the index narrows it: more is better.
    pub(super) fn narrowness(&self) -> u8 {
        match self.labels.as_ref().map(|labels| wanted(labels, MAX_PLACES)) {
            None | Some(Wanted::Values(..)) => 2,
            Some(Wanted::Key(_)) => 1,
            Some(Wanted::Nothing) => 0,
        }
    }
}

impl Ids {
    fn insert(&mut self, id: u32) {
        match self {
            Self::One(own) if *own == id => {}
            Self::One(own) => *self = Self::Many(BTreeSet::from([*own, id])),
            Self::Many(all) => drop(all.insert(id)),
        }
    }

    /// Takes the id out. Returns whether none is left.
    fn remove(&mut self, id: u32) -> bool {
        match self {
            Self::One(own) => *own == id,
            Self::Many(all) => {
                all.remove(&id);
                if let (1, Some(last)) = (all.len(), all.first()) {
                    *self = Self::One(*last);
                }
                false
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        let (one, many) = match self {
            Self::One(id) => (Some(*id), None),
            Self::Many(all) => (None, Some(all.iter().copied())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}
