//! Shares that namespaces have of something bounded: of the rules and names that a node keeps for services, for example.
//!
//! An object (a service) needs a number of units and gets as many as its namespace has room for. A namespace has a number of
//! units in any case; beyond it those of all together are first come first served, up to a bound for each. An object that
//! has less than it needs is *short*, and is due as soon as there is room for twice as much.

use std::collections::{BTreeMap, HashMap};

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
}

/// Units in use by namespace, and the objects that are short. Objects are named `namespace/name`.
#[derive(Debug)]
pub struct NamespaceShares {
    bounds: ShareBounds,
    by_namespace: HashMap<Box<str>, usize>,
    all: usize,
    short: BTreeMap<Box<str>, Part>,
    /// Units were given back since [`due`](Self::due) was last asked.
    freed: bool,
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
            freed: false,
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
        self.freed |= now.has < before;
        self.all = (self.all + now.has).saturating_sub(before);
        let own = (self.of_namespace(namespace) + now.has).saturating_sub(before);
        if own == 0 {
            self.by_namespace.remove(namespace);
        } else if let Some(used) = self.by_namespace.get_mut(namespace) {
            *used = own;
        } else {
            self.by_namespace.insert(namespace.into(), own);
        }
        if now.is_short() {
            self.short.insert(object.into(), now).is_none()
        } else {
            self.short.remove(object);
            false
        }
    }

    /// Objects that are short and have room for all they need or for twice what they have; none as long as nothing was given
    /// back since the last call. Each attempt at least doubles what an object has, so that a namespace which gives back and
    /// takes again causes little work.
    pub fn due(&mut self) -> Vec<Box<str>> {
        if !std::mem::take(&mut self.freed) {
            return Vec::new();
        }
        let short = self.short.keys();
        short.filter(|object| self.is_due(object)).cloned().collect()
    }

    /// Reports whether an object is short and has room for more.
    pub fn is_due(&self, object: &str) -> bool {
        self.short.get(object).is_some_and(|part| {
            let more = part.has.saturating_mul(2).max(MIN_GROWTH);
            self.room(object, part.has) >= more.min(part.needs)
        })
    }

    /// Number of objects that are short, by namespace.
    pub fn short_by_namespace(&self) -> BTreeMap<&str, usize> {
        let mut out = BTreeMap::new();
        for object in self.short.keys() {
            *out.entry(namespace_of(object)).or_default() += 1;
        }
        out
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
}
