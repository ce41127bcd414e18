//! Tolerations of several sources as one list (upstream's `MergeTolerations`).

use machinery_schema::Ref;
use std::collections::{HashMap, HashSet};

/// All of these, without those that another one covers; of equal ones the first.
pub(super) fn merged<'a>(all: &[Ref<'a>]) -> Vec<Ref<'a>> {
    let own: Vec<Toleration<'_>> = all.iter().map(|one| Toleration::of(*one)).collect();
    let mut covered = vec![false; own.len()];
    let mut later = Widest::default();
    for (at, one) in own.iter().enumerate().rev() {
        covered[at] = later.cover(one);
        later.note(one);
    }
    let (mut kept, mut seen, mut merged) = (Widest::default(), HashSet::new(), Vec::new());
    for (at, one) in own.iter().enumerate() {
        if covered[at] || seen.contains(one) || kept.cover(one) {
            continue;
        }
        kept.note(one);
        seen.insert(one);
        merged.push(all[at]);
    }
    merged
}

/// Reports whether each of these is one of a list or covered by one of it (upstream's `VerifyAgainstWhitelist`).
pub(super) fn are_covered(all: &[Ref<'_>], by: &[Ref<'_>]) -> bool {
    let (mut widest, mut equal) = (Widest::default(), HashSet::new());
    for one in by.iter().map(|one| Toleration::of(*one)) {
        widest.note(&one);
        equal.insert(one);
    }
    let mut own = all.iter().map(|one| Toleration::of(*one));
    own.all(|one| equal.contains(&one) || widest.cover(&one))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Toleration<'a> {
    key: &'a str,
    operator: &'a str,
    value: &'a str,
    effect: &'a str,
    seconds: Option<i64>,
}

/// Common part of tolerations that differ in how long they last: the key (none for every key), the value (none for every
/// value) and the effect.
type Class<'a> = (Option<&'a str>, Option<&'a str>, &'a str);

/// A time longer than any number of seconds.
const FOREVER: i128 = i128::MAX;

impl<'a> Toleration<'a> {
    fn of(value: Ref<'a>) -> Self {
        Self {
            key: value.str("key"),
            operator: value.str("operator"),
            value: value.str("value"),
            effect: value.str("effect"),
            seconds: value.get("tolerationSeconds").and_then(Ref::as_i64),
        }
    }

    /// Class of tolerations that it covers; one with an unknown operator covers its equals alone.
    fn class(&self) -> Option<Class<'a>> {
        match self.operator {
            "Exists" if self.key.is_empty() => Some((None, None, self.effect)),
            "Exists" => Some((Some(self.key), None, self.effect)),
            "" | "Equal" => Some((Some(self.key), Some(self.value), self.effect)),
            _ => None,
        }
    }

    /// The classes of which some cover it. A value covers those that name the operator `Equal` alone, as upstream's does.
    fn wider(&self) -> impl Iterator<Item = Class<'a>> {
        let exactly = (self.operator == "Equal").then_some((Some(self.key), Some(self.value)));
        let matches = [(None, None), (Some(self.key), None)];
        let effect = self.effect;
        matches.into_iter().chain(exactly).flat_map(move |(key, value)| {
            let any = (!effect.is_empty()).then_some("");
            any.into_iter()
                .chain([effect])
                .map(move |effect| (key, value, effect))
        })
    }

    /// Longest time, in seconds, of the tolerations that it covers.
    fn lasts(&self) -> i128 {
        match self.seconds {
            Some(seconds) if self.effect == "NoExecute" => seconds.into(),
            _ => FOREVER,
        }
    }
}

/// Of each class the toleration that lasts longest, and how long the next one does that is another.
#[derive(Default)]
struct Widest<'t>(HashMap<Class<'t>, (Toleration<'t>, Option<i128>)>);

impl<'t> Widest<'t> {
    fn note(&mut self, one: &Toleration<'t>) {
        let Some(class) = one.class() else { return };
        let Some((longest, next)) = self.0.get_mut(&class) else {
            self.0.insert(class, (*one, None));
            return;
        };
        if longest == one {
            return;
        }
        if one.lasts() > longest.lasts() {
            (*longest, *next) = (*one, Some(longest.lasts()));
        } else {
            *next = (*next).max(Some(one.lasts()));
        }
    }

    /// Reports whether another one than itself covers this one.
    fn cover(&self, one: &Toleration<'t>) -> bool {
        let needed = one.seconds.map_or(FOREVER, i128::from);
        one.wider().any(|class| {
            self.0.get(&class).is_some_and(|(longest, next)| {
                let lasts = if longest == one {
                    *next
                } else {
                    Some(longest.lasts())
                };
                lasts.is_some_and(|lasts| lasts >= needed)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_fuzz::{Random, growth};
    use machinery_schema::Tree;

    fn covers(one: &Toleration<'_>, other: &Toleration<'_>) -> bool {
        let any_key = one.operator == "Exists" && one.key.is_empty();
        let key = one.key == other.key || any_key;
        let effect = one.effect == other.effect || one.effect.is_empty();
        let lasts = one.effect != "NoExecute"
            || one
                .seconds
                .is_none_or(|own| other.seconds.is_some_and(|theirs| theirs <= own));
        let value = match one.operator {
            "Exists" => true,
            "" | "Equal" => other.operator == "Equal" && one.value == other.value,
            _ => false,
        };
        one == other || (key && effect && lasts && value)
    }

    /// Upstream's loops.
    fn one_by_one(all: &[Toleration<'_>]) -> Vec<usize> {
        let mut merged: Vec<usize> = Vec::new();
        for (at, one) in all.iter().enumerate() {
            let before = merged.iter().any(|other| covers(&all[*other], one));
            let after = all[at + 1..]
                .iter()
                .any(|other| other != one && covers(other, one));
            if !before && !after {
                merged.push(at);
            }
        }
        merged
    }

    fn list(count: usize, mut item: impl FnMut(usize) -> String) -> Tree {
        let items: Vec<String> = (0..count).map(&mut item).collect();
        Tree::from_json(&format!(r#"{{"all":[{}]}}"#, items.join(","))).expect("tolerations are JSON")
    }

    #[test]
    fn tolerations_are_merged_as_upstream_merges_them() {
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let mut pick = |of: &[&str]| of[random.below(of.len())].to_owned();
            let tree = list(6, |_| {
                let seconds = pick(&["", r#","tolerationSeconds":1"#, r#","tolerationSeconds":2"#]);
                format!(
                    r#"{{"key":"{}","operator":"{}","value":"{}","effect":"{}"{seconds}}}"#,
                    pick(&["", "a", "b"]),
                    pick(&["", "Equal", "Exists", "Lt"]),
                    pick(&["", "x"]),
                    pick(&["", "NoExecute", "NoSchedule"]),
                )
            });
            let all: Vec<Ref<'_>> = tree.root().list("all").collect();
            let own: Vec<Toleration<'_>> = all.iter().map(|one| Toleration::of(*one)).collect();
            let expected: Vec<Toleration<'_>> = one_by_one(&own).into_iter().map(|at| own[at]).collect();
            let found: Vec<Toleration<'_>> = merged(&all).into_iter().map(Toleration::of).collect();
            assert_eq!(found, expected, "{}", tree.root().to_json());
        }
    }

    /// Names of tolerations as upstream's `TestIsSuperset` has them: key, value, effect and seconds.
    const NAMED: [(&str, [&str; 3], Option<i64>); 16] = [
        ("all", ["", "", ""], None),
        ("all-nosched", ["", "", "NoSchedule"], None),
        ("all-noexec", ["", "", "NoExecute"], None),
        ("foo", ["foo", "", ""], None),
        ("foo-bar", ["foo", "bar", ""], None),
        ("foo-nosched", ["foo", "", "NoSchedule"], None),
        ("foo-bar-nosched", ["foo", "bar", "NoSchedule"], None),
        ("foo-baz-nosched", ["foo", "baz", "NoSchedule"], None),
        ("faz-nosched", ["faz", "", "NoSchedule"], None),
        ("faz-baz-nosched", ["faz", "baz", "NoSchedule"], None),
        ("foo-prefnosched", ["foo", "", "PreferNoSchedule"], None),
        ("foo-noexec", ["foo", "", "NoExecute"], None),
        ("foo-bar-noexec", ["foo", "bar", "NoExecute"], None),
        ("foo-noexec-10", ["foo", "", "NoExecute"], Some(10)),
        ("foo-noexec-0", ["foo", "", "NoExecute"], Some(0)),
        ("foo-bar-noexec-10", ["foo", "bar", "NoExecute"], Some(10)),
    ];

    fn named(name: &str) -> String {
        let (_, [key, value, effect], seconds) = NAMED.iter().find(|own| own.0 == name).unwrap();
        let operator = if value.is_empty() { "Exists" } else { "Equal" };
        let seconds = seconds.map_or(String::new(), |own| format!(r#","tolerationSeconds":{own}"#));
        format!(r#"{{"key":"{key}","operator":"{operator}","value":"{value}","effect":"{effect}"{seconds}}}"#)
    }

    /// Names of the tolerations that remain after merging these.
    fn left(names: &[&str]) -> Vec<String> {
        let tree = list(names.len(), |at| named(names[at]));
        let all: Vec<Ref<'_>> = tree.root().list("all").collect();
        let left = merged(&all).into_iter().map(|one| {
            let at = all
                .iter()
                .position(|own| Toleration::of(*own) == Toleration::of(one));
            names[at.unwrap()].to_owned()
        });
        left.collect()
    }

    /// Upstream's `TestIsSuperset`: each with those that it covers beside itself.
    #[test]
    fn toleration_covers_those_that_upstreams_covers() {
        for (one, covered) in [
            (
                "all",
                "all-nosched all-noexec foo foo-bar foo-nosched foo-bar-nosched foo-baz-nosched faz-nosched \
                     faz-baz-nosched foo-prefnosched foo-noexec foo-bar-noexec foo-noexec-10 foo-noexec-0 foo-bar-noexec-10",
            ),
            (
                "all-nosched",
                "foo-nosched foo-bar-nosched foo-baz-nosched faz-nosched faz-baz-nosched",
            ),
            (
                "all-noexec",
                "foo-noexec foo-bar-noexec foo-noexec-10 foo-noexec-0 foo-bar-noexec-10",
            ),
            (
                "foo",
                "foo-bar foo-nosched foo-bar-nosched foo-baz-nosched foo-prefnosched foo-noexec foo-bar-noexec \
                     foo-noexec-10 foo-noexec-0 foo-bar-noexec-10",
            ),
            ("foo-bar", "foo-bar-nosched foo-bar-noexec foo-bar-noexec-10"),
            ("foo-nosched", "foo-bar-nosched foo-baz-nosched"),
            ("foo-bar-nosched", ""),
            ("faz-nosched", "faz-baz-nosched"),
            ("faz-baz-nosched", ""),
            (
                "foo-noexec",
                "foo-bar-noexec foo-noexec-10 foo-noexec-0 foo-bar-noexec-10",
            ),
            ("foo-bar-noexec", "foo-bar-noexec-10"),
            ("foo-noexec-10", "foo-noexec-0 foo-bar-noexec-10"),
            ("foo-noexec-0", ""),
            ("foo-bar-noexec-10", ""),
        ] {
            for (other, ..) in NAMED.iter().filter(|other| other.0 != one) {
                let is_covered = covered.split(' ').any(|name| name == *other);
                assert_eq!(left(&[other, one]) == [one], is_covered, "{one} {other}");
            }
        }
    }

    /// Upstream's `TestMergeTolerations`.
    #[test]
    fn tolerations_are_merged_as_upstreams_table_says() {
        let three = ["foo-bar-nosched", "faz-baz-nosched", "foo-noexec-10"];
        let values = ["foo-bar-nosched", "foo-baz-nosched", "foo-noexec-10"];
        let others = ["foo-prefnosched", "foo-baz-nosched"];
        for (first, second, expected) in [
            (&three[..], &others[..], [&three[..], &others].concat()),
            (&three, &three, three.to_vec()),
            (
                &values[..2],
                &["foo-nosched", "faz-baz-nosched"],
                vec!["foo-nosched", "faz-baz-nosched"],
            ),
            (&values, &["all"], vec!["all"]),
            (&["all"], &values, vec!["all"]),
        ] {
            assert_eq!(left(&[first, second].concat()), expected);
        }
    }

    #[test]
    fn tolerations_cost_what_their_number_does() {
        let beyond = growth(8_000, |stages, count| {
            let tree = list(count, |at| {
                format!(r#"{{"key":"k","operator":"Equal","value":"{at}"}}"#)
            });
            let all: Vec<Ref<'_>> = tree.root().list("all").collect();
            assert_eq!(stages.of("merge", || merged(&all)).len(), count);
        });
        assert_eq!(beyond, Vec::<String>::new());
    }
}
