//! Terms of node affinity, found by the node instead of tried one after the other.

use crate::object::{Labels, NodeSelectorTerm, Requirement};
use crate::selector::{requirement_holds, requirement_matches};
use machinery_semantics::node_affinity::NodeFacts;
use std::collections::{HashMap, HashSet};

/// Values of a requirement that are compared one by one.
const FEW_VALUES: usize = 16;

/// Terms filed under one label, or the name, that they want of a node. Terms that only say which labels are not there are
/// tried with every node; terms that can match none are left out.
#[derive(Debug, Default)]
pub(crate) struct NodeTermIndex {
    by_name: HashMap<Box<str>, Vec<u32>>,
    by_key: HashMap<Box<str>, ByValue>,
    others: Vec<u32>,
    /// Long lists of values, by term and place in it: labels first, then fields.
    long_lists: HashMap<(u32, usize), HashSet<Box<str>>>,
}

#[derive(Debug, Default)]
struct ByValue {
    any: Vec<u32>,
    values: HashMap<Box<str>, Vec<u32>>,
}

impl NodeTermIndex {
    pub(crate) fn of<'a>(terms: impl Iterator<Item = &'a NodeSelectorTerm>) -> Self {
        let mut index = Self::default();
        for (id, term) in (0..).zip(terms) {
            index.insert(id, term);
        }
        index
    }

    fn insert(&mut self, id: u32, term: &NodeSelectorTerm) {
        let (labels, fields) = (&term.match_expressions, &term.match_fields);
        if labels.is_empty() && fields.is_empty() {
            return;
        }
        for (at, one) in labels.iter().chain(fields).enumerate() {
            if one.values.len() > FEW_VALUES {
                let values = one.values.iter().cloned().collect();
                self.long_lists.insert((id, at), values);
            }
        }
        let narrowest = |all: &'_ [Requirement]| -> Option<usize> {
            let wanted = all.iter().enumerate().filter(|(_, one)| &*one.operator == "In");
            wanted.min_by_key(|(_, one)| one.values.len()).map(|(at, _)| at)
        };
        if let Some(at) = narrowest(fields) {
            for name in &fields[at].values {
                file(self.by_name.entry(name.clone()).or_default(), id);
            }
        } else if let Some(at) = narrowest(labels) {
            let by_value = self.by_key.entry(labels[at].key.clone()).or_default();
            for value in &labels[at].values {
                file(by_value.values.entry(value.clone()).or_default(), id);
            }
        } else if let Some(one) = labels.iter().find(|one| is_of_a_present_label(one)) {
            file(&mut self.by_key.entry(one.key.clone()).or_default().any, id);
        } else {
            self.others.push(id);
        }
    }

    /// Terms that may match the node, each once.
    pub(crate) fn candidates<'a>(
        &'a self,
        name: &str,
        labels: &'a Labels,
    ) -> impl Iterator<Item = usize> + 'a {
        let named = self.by_name.get(name).into_iter().flatten();
        let by_label = labels.iter().flat_map(|(key, value)| {
            let by_value = self.by_key.get(key);
            let listed = by_value.and_then(|one| one.values.get(value));
            let any = by_value.map(|one| &one.any);
            listed.into_iter().chain(any).flatten()
        });
        named.chain(by_label).chain(&self.others).map(|id| *id as usize)
    }

    /// All requirements of a candidate.
    pub(crate) fn matches(&self, id: usize, term: &NodeSelectorTerm, name: &str, labels: &Labels) -> bool {
        let labels = |key: &str| labels.get(key);
        NodeFacts { name, labels }.matches_term_by(term, |at, one, value| self.holds(id, at, one, value))
    }

    fn holds(&self, id: usize, at: usize, one: &Requirement, value: Option<&str>) -> bool {
        let id = u32::try_from(id).unwrap_or(u32::MAX);
        let listed = Some(one).filter(|one| one.values.len() > FEW_VALUES);
        match listed.and_then(|_| self.long_lists.get(&(id, at))) {
            Some(listed) => requirement_holds(one, value, |value| listed.contains(value)),
            None => requirement_matches(one, value),
        }
    }
}

/// A value may be listed twice.
fn file(ids: &mut Vec<u32>, id: u32) {
    if ids.last() != Some(&id) {
        ids.push(id);
    }
}

/// Reports whether the requirement rejects every node without the label.
fn is_of_a_present_label(one: &Requirement) -> bool {
    !matches!(&*one.operator, "NotIn" | "DoesNotExist")
}

/// Steps of comparing the term with a node: itself and its requirements.
pub(crate) fn steps_of(term: &NodeSelectorTerm) -> usize {
    1 + term.match_expressions.len() + term.match_fields.len()
}

/// Steps of filing the term: itself, its requirements and their values.
pub(crate) fn items_of(term: &NodeSelectorTerm) -> usize {
    let requirements = term.match_expressions.iter().chain(&term.match_fields);
    1 + requirements.map(|one| 1 + one.values.len()).sum::<usize>()
}
