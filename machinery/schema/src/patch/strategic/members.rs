//! Members and items by what finds them, so that no list is searched for each item of another one.

use crate::TypeId;
use crate::tree::{Node, Ref, Tag, Tree};
use std::collections::HashMap;

/// Members of a map, sorted by name, of which some go and to which others come.
pub(super) struct Members {
    own: Vec<Node>,
    gone: Vec<bool>,
    added: Vec<Node>,
}

impl Members {
    pub(super) fn of(tree: &Tree, map: Node) -> Self {
        let own = tree.children(map).to_vec();
        Self {
            gone: vec![false; own.len()],
            own,
            added: Vec::new(),
        }
    }

    /// Index of a member; an added one is not found before [`Self::settle`].
    pub(super) fn find(&self, tree: &Tree, name: &str) -> Option<usize> {
        let found = self.own.binary_search_by(|member| tree.key_of(*member).cmp(name));
        found.ok().filter(|at| !self.gone[*at])
    }

    pub(super) fn get(&self, at: usize) -> Node {
        self.own[at]
    }

    /// Another value for a member that is there.
    pub(super) fn set(&mut self, at: usize, value: Node) {
        self.own[at] = value.at_place_of(self.own[at]);
    }

    pub(super) fn remove(&mut self, at: usize) -> Node {
        self.gone[at] = true;
        self.own[at]
    }

    pub(super) fn is_gone(&self, at: usize) -> bool {
        self.gone[at]
    }

    pub(super) fn take(&mut self, tree: &Tree, name: &str) -> Option<Node> {
        self.find(tree, name).map(|at| self.remove(at))
    }

    /// A member that is not there yet.
    pub(super) fn add(&mut self, member: Node) {
        self.added.push(member);
    }

    pub(super) fn retain(&mut self, keep: impl Fn(Node) -> bool) {
        for (member, gone) in self.own.iter().zip(&mut self.gone) {
            *gone |= !keep(*member);
        }
    }

    /// Indices of the members whose names begin with the prefix.
    pub(super) fn beginning_with(&self, tree: &Tree, prefix: &str) -> std::ops::Range<usize> {
        let begin = self.own.partition_point(|member| tree.key_of(*member) < prefix);
        let count = self.own[begin..].partition_point(|member| tree.key_of(*member).starts_with(prefix));
        begin..begin + count
    }

    pub(super) fn left(&self) -> impl Iterator<Item = Node> {
        let left = self.own.iter().zip(&self.gone);
        left.filter(|(_, gone)| !**gone)
            .map(|(member, _)| *member)
            .chain(self.added.iter().copied())
    }

    /// Sorts what was added in, so that it is found.
    pub(super) fn settle(&mut self, tree: &Tree) {
        if self.added.is_empty() {
            return;
        }
        let mut all: Vec<Node> = self.left().collect();
        all.sort_by(|a, b| tree.key_of(*a).cmp(tree.key_of(*b)));
        *self = Self {
            gone: vec![false; all.len()],
            own: all,
            added: Vec::new(),
        };
    }
}

/// Key of a list's item: equal exactly when the values are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ItemKey {
    Text(String),
    Number(i64),
    /// Values of other kinds by their JSON, which is in one order.
    Json(String),
}

impl ItemKey {
    pub(super) fn of(tree: &Tree, value: Node) -> Self {
        match value.tag() {
            Tag::Str => Self::Text(tree.text_of(value).to_owned()),
            Tag::Int => Self::Number(value.as_int()),
            // Zero has two signs and is one value; as whole numbers are of another kind, nothing else is written so.
            Tag::Float if value.as_float() == 0.0 => Self::Json("0".to_owned()),
            _ => {
                let ty = TypeId::ANY;
                let value = Ref {
                    tree,
                    node: value,
                    ty,
                };
                Self::Json(value.to_json())
            }
        }
    }
}

/// Index of the first item with each key.
#[derive(Default)]
pub(super) struct ItemIndex(HashMap<ItemKey, usize>);

impl ItemIndex {
    /// Index of a list's items by their keys; items without one are not found.
    pub(super) fn of(keys: impl Iterator<Item = Option<ItemKey>>) -> Self {
        let mut places = Self::default();
        for (at, key) in keys.enumerate() {
            if let Some(key) = key {
                places.put(key, at);
            }
        }
        places
    }

    /// Says whether the key is new.
    pub(super) fn put(&mut self, key: ItemKey, at: usize) -> bool {
        let new = !self.0.contains_key(&key);
        self.0.entry(key).or_insert(at);
        new
    }

    pub(super) fn get(&self, key: &ItemKey) -> Option<usize> {
        self.0.get(key).copied()
    }
}
