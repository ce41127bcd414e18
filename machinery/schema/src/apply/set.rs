//! A set of paths, as a tree of path elements.

use super::literal::Literal;
use std::collections::BTreeMap;
use std::fmt;

/// One step of a path, in the order in which upstream sorts them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// A member of a map or struct.
    Field(String),
    /// The item of a list that has these values in its key fields: name and JSON.
    Key(Vec<(String, Literal)>),
    /// The item of a set with this value.
    Value(Literal),
    /// The item at a position.
    Index(usize),
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet(pub(super) BTreeMap<Element, Member>);

/// Paths of the set at and below an element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Member {
    /// The path that ends here is in the set.
    pub(super) own: bool,
    pub(super) below: FieldSet,
}

impl FieldSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The set of one path of members.
    pub fn of(path: &[&str]) -> Self {
        let mut set = Self::default();
        if let Some((first, rest)) = path.split_first() {
            set.put(
                Element::Field((*first).to_owned()),
                rest.is_empty(),
                Self::of(rest),
            );
        }
        set
    }

    /// Reports whether a path of members is in the set.
    pub fn contains(&self, path: &[&str]) -> bool {
        let Some((first, rest)) = path.split_first() else {
            return false;
        };
        let member = self.0.get(&Element::Field((*first).to_owned()));
        member.is_some_and(|member| match rest {
            [] => member.own,
            rest => member.below.contains(rest),
        })
    }

    /// Adds what is known of an element; nothing known leaves no trace.
    pub(super) fn put(&mut self, element: Element, own: bool, below: FieldSet) {
        if own || !below.is_empty() {
            self.0.insert(element, Member { own, below });
        }
    }

    /// Reports whether the path of this one element is in the set.
    pub(super) fn has(&self, element: &Element) -> bool {
        self.0.get(element).is_some_and(|member| member.own)
    }

    /// The paths below an element.
    pub(super) fn below(&self, element: &Element) -> Option<&FieldSet> {
        self.0
            .get(element)
            .map(|member| &member.below)
            .filter(|below| !below.is_empty())
    }

    /// Takes a path of members away, and all below it.
    pub fn forget(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let element = Element::Field((*first).to_owned());
        if rest.is_empty() {
            self.0.remove(&element);
        } else if let Some(member) = self.0.get_mut(&element) {
            member.below.forget(rest);
            if !member.own && member.below.is_empty() {
                self.0.remove(&element);
            }
        }
    }

    /// Elements at all levels.
    pub fn size(&self) -> usize {
        let below = |member: &Member| 1 + member.below.size();
        self.0.values().map(below).sum()
    }

    /// Adds the paths of the other one, in as many steps as that has elements.
    pub(super) fn absorb(&mut self, other: &Self) {
        for (element, theirs) in &other.0 {
            match self.0.get_mut(element) {
                Some(own) => {
                    own.own |= theirs.own;
                    own.below.absorb(&theirs.below);
                }
                None => drop(self.0.insert(element.clone(), theirs.clone())),
            }
        }
    }

    /// The paths that are in both.
    #[must_use]
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (element, member) in &self.0 {
            if let Some(theirs) = other.0.get(element) {
                let below = member.below.intersection(&theirs.below);
                out.put(element.clone(), member.own && theirs.own, below);
            }
        }
        out
    }

    /// The paths that are not in the other one.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (element, member) in &self.0 {
            match other.0.get(element) {
                Some(theirs) => {
                    let below = member.below.difference(&theirs.below);
                    out.put(element.clone(), member.own && !theirs.own, below);
                }
                None => out.put(element.clone(), member.own, member.below.clone()),
            }
        }
        out
    }

    /// The paths as messages show them: `.spec.ports[port=80,protocol="TCP"]`.
    pub fn paths(&self, room: &mut ShownBytes) -> Vec<String> {
        let mut shown = Shown {
            path: String::new(),
            paths: Vec::new(),
            room,
        };
        shown.add(self);
        shown.paths
    }
}

/// Paths repeat the names above them, so that few fields below long names would fill any memory: of all sets that one
/// message shows no more paths are made once they have a mebibyte.
#[derive(Debug)]
pub struct ShownBytes(usize);

impl Default for ShownBytes {
    fn default() -> Self {
        Self(1 << 20)
    }
}

struct Shown<'a> {
    path: String,
    paths: Vec<String>,
    room: &'a mut ShownBytes,
}

impl Shown<'_> {
    fn add(&mut self, set: &FieldSet) {
        for (element, member) in &set.0 {
            if self.room.0 == 0 {
                return;
            }
            let before = self.path.len();
            self.path.push_str(&element.to_string());
            if member.own {
                self.room.0 = self.room.0.saturating_sub(self.path.len());
                self.paths.push(self.path.clone());
            }
            self.add(&member.below);
            self.path.truncate(before);
        }
    }
}
