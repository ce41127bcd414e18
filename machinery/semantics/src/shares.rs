//! Shares that namespaces have of something bounded: of the rules and names that a node keeps for services, for example.
//!
//! An object (a service) needs a number of units and gets as many as its namespace has room for. A namespace has a number of
//! units in any case; beyond it those of all together are first come first served, up to a bound for each. An object that
//! has less than it needs is *short*, and is due as soon as there is room for twice as much.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Namespaces whose objects are the system's own; nothing bounds them.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];
/// Units that are worth another attempt for an object which has next to nothing.
const MIN_GROWTH: usize = 64;

/// Bounds of what is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareBounds {
    /// Units of all namespaces together, but for those that are assured.
    pub of_all: usize,
    /// Units of one namespace.
    pub of_namespace: usize,
    /// Units that a namespace has however many the others have.
    pub assured: usize,
}

/// Units that one object has of those it needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// Units it has.
    pub has: usize,
    /// Units it would have with room enough.
    pub needs: usize,
}

impl Part {
    fn is_short(self) -> bool {
        self.has < self.needs
    }

    /// Units more that are worth another attempt: as many as it has, or all it needs.
    fn growth(self) -> usize {
        let more = self.has.saturating_mul(2).max(MIN_GROWTH);
        more.min(self.needs).saturating_sub(self.has)
    }
}

/// Objects of a namespace that are short.
#[derive(Debug, Default)]
struct Short {
    parts: BTreeMap<Box<str>, Part>,
    /// The same, those first that need least to be due.
    by_growth: BTreeSet<(usize, Box<str>)>,
}

impl Short {
    fn insert(&mut self, object: &str, part: Part) -> Option<Part> {
        let before = self.remove(object);
        self.by_growth.insert((part.growth(), object.into()));
        self.parts.insert(object.into(), part);
        before
    }

    fn remove(&mut self, object: &str) -> Option<Part> {
        let part = self.parts.remove(object)?;
        self.by_growth.remove(&(part.growth(), object.into()));
        Some(part)
    }
}

/// Units in use by namespace, and the objects that are short. Objects are named `namespace/name`.
#[derive(Debug)]
pub struct NamespaceShares {
    bounds: ShareBounds,
    by_namespace: HashMap<Box<str>, usize>,
    all: usize,
    short: BTreeMap<Box<str>, Short>,
    /// Namespaces with short objects that gave units back since [`due`](Self::due) was last called.
    freed: BTreeSet<Box<str>>,
    /// The room of all had become so little that units which were given back may help any namespace.
    freed_for_all: bool,
}

fn namespace_of(object: &str) -> &str {
    object.split_once('/').map_or("", |(namespace, _)| namespace)
}

impl NamespaceShares {
    /// Nothing in use.
    pub fn new(bounds: ShareBounds) -> Self {
        Self {
            bounds,
            by_namespace: HashMap::new(),
            all: 0,
            short: BTreeMap::new(),
            freed: BTreeSet::new(),
            freed_for_all: false,
        }
    }

    /// Units that an object may have in all, the `has` that it has now among them.
    pub fn room(&self, object: &str, has: usize) -> usize {
        let namespace = namespace_of(object);
        if SYSTEM_NAMESPACES.contains(&namespace) {
            return usize::MAX;
        }
        let of_others = self.of_namespace(namespace).saturating_sub(has);
        let assured = self.bounds.assured.saturating_sub(of_others);
        let common = self.bounds.of_all.saturating_sub(self.all.saturating_sub(has));
        let own = self.bounds.of_namespace.saturating_sub(of_others);
        own.min(common).max(assured)
    }

    /// An object had `before` units and now has these. Reports whether it has become short.
    pub fn set(&mut self, object: &str, before: usize, now: Part) -> bool {
        let namespace = namespace_of(object);
        if now.has < before {
            self.freed_for_all |= self.bounds.of_all.saturating_sub(self.all) < self.bounds.of_namespace;
            if self.short.contains_key(namespace) {
                self.freed.insert(namespace.into());
            }
        }
        self.all = (self.all + now.has).saturating_sub(before);
        let own = (self.of_namespace(namespace) + now.has).saturating_sub(before);
        if own == 0 {
            self.by_namespace.remove(namespace);
        } else if let Some(used) = self.by_namespace.get_mut(namespace) {
            *used = own;
        } else {
            self.by_namespace.insert(namespace.into(), own);
        }
        self.note(namespace, object, now)
    }

    fn note(&mut self, namespace: &str, object: &str, now: Part) -> bool {
        if now.is_short() {
            if !self.short.contains_key(namespace) {
                self.short.insert(namespace.into(), Short::default());
            }
            let short = self.short.get_mut(namespace);
            return short.is_some_and(|short| short.insert(object, now).is_none());
        }
        if let Some(short) = self.short.get_mut(namespace) {
            short.remove(object);
            if short.parts.is_empty() {
                self.short.remove(namespace);
            }
        }
        false
    }

    /// Objects that are short and have room for all they need or for twice what they have; none as long as nothing was given
    /// back since the last call. Each attempt at least doubles what an object has, so that a namespace which gives back and
    /// takes again causes little work. Looks at the objects that are due, whatever the others are.
    pub fn due(&mut self) -> Vec<Box<str>> {
        let freed = std::mem::take(&mut self.freed);
        let mut due = Vec::new();
        if std::mem::take(&mut self.freed_for_all) {
            let each = self.short.iter();
            each.for_each(|(namespace, short)| self.due_of(namespace, short, &mut due));
            return due;
        }
        for namespace in &freed {
            if let Some(short) = self.short.get(namespace) {
                self.due_of(namespace, short, &mut due);
            }
        }
        due
    }

    fn due_of(&self, namespace: &str, short: &Short, due: &mut Vec<Box<str>>) {
        let free = self.free(namespace);
        let each = short.by_growth.iter().take_while(|(growth, _)| *growth <= free);
        due.extend(each.map(|(_, object)| object.clone()));
    }

    /// Units that a namespace may have beyond those it has.
    fn free(&self, namespace: &str) -> usize {
        let used = self.of_namespace(namespace);
        let common = self.bounds.of_all.saturating_sub(self.all);
        let own = self.bounds.of_namespace.saturating_sub(used);
        own.min(common).max(self.bounds.assured.saturating_sub(used))
    }

    /// Reports whether an object is short and has room for more.
    pub fn is_due(&self, object: &str) -> bool {
        let namespace = namespace_of(object);
        let short = self.short.get(namespace);
        let part = short.and_then(|short| short.parts.get(object));
        part.is_some_and(|part| part.growth() <= self.free(namespace))
    }

    /// Number of objects that are short, by namespace.
    pub fn short_by_namespace(&self) -> BTreeMap<&str, usize> {
        let counted = self.short.iter();
        counted
            .map(|(namespace, short)| (&**namespace, short.parts.len()))
            .collect()
    }

    /// Units in use by all namespaces.
    pub fn all(&self) -> usize {
        self.all
    }

    /// Units in use by a namespace.
    pub fn of_namespace(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares() -> NamespaceShares {
        NamespaceShares::new(ShareBounds {
            of_all: 10_000,
            of_namespace: 4_000,
            assured: 100,
        })
    }

    /// Takes as much as there is room for.
    fn take(shares: &mut NamespaceShares, object: &str, has: usize, needs: usize) -> usize {
        let now = shares.room(object, has).min(needs);
        shares.set(object, has, Part { has: now, needs });
        now
    }

    #[test]
    fn share_of_a_namespace_is_bounded_and_others_have_theirs() {
        let mut shares = shares();
        assert_eq!(take(&mut shares, "greedy/a", 0, 3_500), 3_500);
        assert_eq!(take(&mut shares, "greedy/b", 0, 3_500), 500);
        assert_eq!(take(&mut shares, "greedy/c", 0, 1), 0);
        assert_eq!(take(&mut shares, "modest/a", 0, 1_000), 1_000);
        assert_eq!(shares.short_by_namespace(), BTreeMap::from([("greedy", 2)]));
    }

    #[test]
    fn share_that_is_assured_is_there_when_all_is_taken() {
        let mut shares = shares();
        for greedy in ["a/a", "b/a", "c/a"] {
            take(&mut shares, greedy, 0, 9_999);
        }
        assert_eq!(shares.all(), 10_000);
        assert_eq!(take(&mut shares, "late/a", 0, 70), 70);
        assert_eq!(take(&mut shares, "late/b", 0, 70), 30);
        assert_eq!(take(&mut shares, "kube-system/dns", 0, 5_000), 5_000);
    }

    #[test]
    fn share_that_is_given_back_goes_to_who_is_short() {
        let mut shares = shares();
        take(&mut shares, "n/a", 0, 4_000);
        assert_eq!(take(&mut shares, "n/b", 0, 1_000), 0);
        assert!(shares.due().is_empty(), "nothing was given back");
        take(&mut shares, "n/a", 4_000, 3_990);
        assert!(shares.due().is_empty(), "ten are not worth it");
        take(&mut shares, "n/a", 3_990, 3_900);
        assert_eq!(shares.due(), ["n/b".into()]);
        assert_eq!(take(&mut shares, "n/b", 0, 1_000), 100);
        assert!(shares.due().is_empty());
        take(&mut shares, "n/a", 3_900, 0);
        assert_eq!(shares.due(), ["n/b".into()]);
        assert_eq!(take(&mut shares, "n/b", 100, 1_000), 1_000);
        take(&mut shares, "n/b", 1_000, 0);
        assert!(shares.by_namespace.is_empty() && shares.short.is_empty() && shares.all() == 0);
    }

    #[test]
    fn share_of_an_object_that_is_short_is_said_once() {
        let mut shares = shares();
        let short = Part { has: 1, needs: 2 };
        assert!(shares.set("n/a", 0, short));
        assert!(!shares.set("n/a", 1, short));
        assert!(!shares.set("n/a", 1, Part { has: 2, needs: 2 }));
        assert!(shares.set("n/a", 2, short), "again");
    }

    /// Short objects of others are not looked at for what one namespace gives back to itself.
    #[test]
    fn share_given_back_is_of_its_own_namespace_while_all_have_room() {
        let mut shares = shares();
        for namespace in ["a", "b"] {
            take(&mut shares, &format!("{namespace}/large"), 0, 4_000);
            take(&mut shares, &format!("{namespace}/short"), 0, 500);
        }
        take(&mut shares, "a/large", 4_000, 3_000);
        assert_eq!(shares.due(), ["a/short".into()]);
        take(&mut shares, "a/large", 3_000, 4_000);
        // With little left for all, what one gives back is for any.
        assert_eq!(take(&mut shares, "c/large", 0, 2_900), 2_000);
        take(&mut shares, "b/large", 4_000, 3_000);
        assert_eq!(shares.due(), ["b/short".into(), "c/large".into()]);
    }

    #[test]
    fn share_goes_to_those_that_need_least_first() {
        let mut shares = shares();
        take(&mut shares, "n/a", 0, 4_000);
        for (object, needs) in [("n/b", 900), ("n/c", 20), ("n/d", 64)] {
            assert_eq!(take(&mut shares, object, 0, needs), 0);
        }
        take(&mut shares, "n/a", 4_000, 3_970);
        assert_eq!(shares.due(), ["n/c".into()]);
        assert!(shares.is_due("n/c") && !shares.is_due("n/b"));
        take(&mut shares, "n/a", 3_970, 3_900);
        assert_eq!(shares.due(), ["n/c".into(), "n/b".into(), "n/d".into()]);
    }
}
