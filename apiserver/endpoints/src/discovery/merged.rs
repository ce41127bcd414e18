//! The server's own groups and those of API extensions, in one order (upstream's `SortedByGroupAndVersion`).

use crate::extensions::{ExtensionGroups, ExtensionVersion, Priority};
use apiserver_registry::registry::{Rows, Version, version_priority};

/// The group of APIServices, which comes before all others.
const FIRST: &str = "apiregistration.k8s.io";
/// The priority of a group of this server's without an APIService, as a metrics-server would register it.
const UNREGISTERED: i64 = 100;

/// A group with its versions, the preferred one first.
#[derive(Debug)]
pub(super) struct ShownGroup<'a> {
    pub(super) name: &'a str,
    pub(super) versions: Vec<Shown<'a>>,
}

/// A version of a group.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shown<'a> {
    Own(&'a Version),
    Other(&'a ExtensionVersion),
}

impl<'a> Shown<'a> {
    pub(super) fn name(self) -> &'a str {
        match self {
            Self::Own(own) => &own.name,
            Self::Other(other) => &other.version,
        }
    }
}

/// Every group, those of this server in its order.
pub(super) fn groups<'a>(rows: &'a Rows, extensions: &'a ExtensionGroups) -> Vec<ShownGroup<'a>> {
    let own = rows.groups.iter().map(|group| ShownGroup {
        name: &group.name,
        versions: group.versions.iter().map(Shown::Own).collect(),
    });
    let mut merged = Merged {
        extensions,
        groups: own.collect(),
    };
    let mut others: Vec<&ExtensionVersion> = extensions.versions.iter().collect();
    others.sort_by_key(|other| (&other.group, &other.version));
    for other in others {
        merged.add(other);
    }
    merged.groups
}

struct Merged<'a> {
    extensions: &'a ExtensionGroups,
    groups: Vec<ShownGroup<'a>>,
}

impl<'a> Merged<'a> {
    fn priority(&self, group: &str, version: &str) -> Option<Priority> {
        let key = (group.to_owned(), version.to_owned());
        self.extensions.priorities.get(&key).copied()
    }

    /// The priority of a group is the highest of its versions'.
    fn of_group(&self, group: &ShownGroup<'_>) -> i64 {
        let all = group.versions.iter();
        let known = all.filter_map(|version| self.priority(group.name, version.name()));
        let known = known.map(|own| own.group).max();
        known.unwrap_or(match group.name {
            FIRST => i64::MAX,
            _ => UNREGISTERED,
        })
    }

    fn add(&mut self, other: &'a ExtensionVersion) {
        let at = self.groups.iter().position(|group| group.name == other.group);
        let mut group = match at {
            Some(at) => self.groups.remove(at),
            None => ShownGroup {
                name: &other.group,
                versions: Vec::new(),
            },
        };
        let before = at
            .filter(|_| !group.versions.is_empty())
            .map(|_| self.of_group(&group));
        // It answers in place of this server.
        group.versions.retain(|own| own.name() != other.version);
        let order = |version: &str| {
            let priority = self.priority(&other.group, version).unwrap_or_default();
            (priority.version, version_priority(version))
        };
        let own = order(&other.version);
        let place = group
            .versions
            .iter()
            .position(|version| order(version.name()) < own);
        let place = place.unwrap_or(group.versions.len());
        group.versions.insert(place, Shown::Other(other));
        let now = self.of_group(&group);
        match (at, before) {
            (Some(at), Some(before)) if before == now => self.groups.insert(at, group),
            _ => self.insert(group, now),
        }
    }

    /// The smallest name of the APIServices that give a group its priority.
    fn name(&self, group: &ShownGroup<'_>) -> String {
        let highest = self.of_group(group);
        let versions = group.versions.iter().map(|version| version.name());
        let highest = versions.filter(|version| {
            let own = self
                .priority(group.name, version)
                .map_or(UNREGISTERED, |own| own.group);
            own == highest
        });
        let names = highest.map(|version| format!("{version}.{}", group.name));
        names.min().unwrap_or_default()
    }

    /// Higher priorities first, then by name.
    fn insert(&mut self, group: ShownGroup<'a>, priority: i64) {
        let is_behind = |own: &ShownGroup<'_>| {
            let theirs = self.of_group(own);
            own.name != FIRST
                && (theirs < priority || (theirs == priority && self.name(own) > self.name(&group)))
        };
        let place = self.groups.iter().position(is_behind);
        let place = place.unwrap_or(self.groups.len());
        self.groups.insert(place, group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_registry::registry::Group;
    use std::sync::Arc;

    fn rows(groups: &[(&str, &[&str])]) -> Rows {
        let groups = groups.iter().map(|(name, versions)| Group {
            name: (*name).to_owned(),
            versions: versions
                .iter()
                .map(|name| Version {
                    name: (*name).to_owned(),
                    resources: Vec::new(),
                })
                .collect(),
        });
        let mut rows = Rows::default();
        rows.groups = groups.collect();
        rows
    }

    /// Group, version and their priorities; those with an `x` are of extensions.
    fn extensions(all: &[(&str, &str, i64, i64, bool)]) -> ExtensionGroups {
        let priorities = all.iter().map(|(group, version, of_group, of_version, _)| {
            let priority = Priority {
                group: *of_group,
                version: *of_version,
            };
            (((*group).to_owned(), (*version).to_owned()), priority)
        });
        let others = all.iter().filter(|own| own.4).map(|own| ExtensionVersion {
            group: own.0.to_owned(),
            version: own.1.to_owned(),
            resources: Arc::default(),
            is_current: true,
            openapi_v3: None,
            openapi_v2: None,
        });
        ExtensionGroups {
            priorities: priorities.collect(),
            versions: others.collect(),
        }
    }

    #[track_caller]
    fn check(own: &[(&str, &[&str])], others: &[(&str, &str, i64, i64, bool)], expected: &[&str]) {
        let (rows, extensions) = (rows(own), extensions(others));
        let shown = groups(&rows, &extensions);
        let shown: Vec<String> = shown
            .iter()
            .map(|group| {
                let versions = group.versions.iter().map(|version| match version {
                    Shown::Own(own) => own.name.clone(),
                    Shown::Other(other) => format!("{}*", other.version),
                });
                format!("{} {}", group.name, versions.collect::<Vec<_>>().join(" "))
            })
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn discovery_shows_groups_of_extensions_by_priority() {
        let own: &[(&str, &[&str])] = &[(FIRST, &["v1"]), ("apps", &["v1"]), ("b.example", &["v2", "v1"])];
        let local = [
            ("apps", "v1", 17_800, 15, false),
            ("b.example", "v2", 1_000, 100, false),
            ("b.example", "v1", 1_000, 100, false),
        ];
        let with = |more: &[(&'static str, &'static str, i64, i64, bool)]| [&local[..], more].concat();
        check(
            own,
            &local,
            &["apiregistration.k8s.io v1", "apps v1", "b.example v2 v1"],
        );
        check(
            own,
            &with(&[
                ("w.example", "v1alpha1", 2_000, 200, true),
                ("a.example", "v1", 100, 1, true),
            ]),
            &[
                "apiregistration.k8s.io v1",
                "apps v1",
                "w.example v1alpha1*",
                "b.example v2 v1",
                "a.example v1*",
            ],
        );
        // Of equal priority by name, and never before the group of APIServices.
        check(
            own,
            &with(&[
                ("a.example", "v1", 1_000, 1, true),
                ("z.example", "v1", 20_000, 1, true),
            ]),
            &[
                "apiregistration.k8s.io v1",
                "z.example v1*",
                "apps v1",
                "a.example v1*",
                "b.example v2 v1",
            ],
        );
        // Of equal priority, the smaller of a group's names counts, and not the preferred version's.
        check(
            &[(FIRST, &["v1"]), ("d.example", &["v1"])],
            &[
                ("d.example", "v1", 1_000, 1, false),
                ("b.example", "v1", 1_000, 10, true),
                ("b.example", "v2", 1_000, 20, true),
                ("c.example", "v1", 1_000, 1, true),
            ],
            &[
                "apiregistration.k8s.io v1",
                "b.example v2* v1*",
                "c.example v1*",
                "d.example v1",
            ],
        );
        // A version beside this server's own, and one in its place; the group has the higher of its priorities.
        check(
            own,
            &with(&[
                ("b.example", "v3", 18_000, 200, true),
                ("apps", "v1", 17_800, 15, true),
            ]),
            &["apiregistration.k8s.io v1", "b.example v3* v2 v1", "apps v1*"],
        );
    }
}
