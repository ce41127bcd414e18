//! Rows of one moment, by group, version and plural, and by the place of their objects in storage.

use crate::engine::row::ResourceRow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A group as discovery shows it.
#[derive(Debug, Clone, Default)]
pub struct Group {
    pub name: String,
    /// In order of preference.
    pub versions: Vec<Version>,
}

/// A version of a group.
#[derive(Debug, Clone, Default)]
pub struct Version {
    pub name: String,
    /// Sorted by plural.
    pub resources: Vec<Arc<ResourceRow>>,
}

/// Parts of a prefix after `/registry`: `pods`, `services/specs`, `knarr.test/boats`.
const PREFIX_PARTS: usize = 2;

/// One moment's rows. `generation` grows with every change.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub generation: u64,
    pub groups: Vec<Group>,
    by_resource: HashMap<String, HashMap<String, HashMap<String, Arc<ResourceRow>>>>,
    by_prefix: HashMap<String, Arc<ResourceRow>>,
    pub(crate) built_in: Vec<Arc<ResourceRow>>,
    pub(crate) custom: BTreeMap<String, Custom>,
}

/// The rows that a CustomResourceDefinition is served as.
#[derive(Debug, Clone)]
pub(crate) struct Custom {
    /// All that the rows are made of, as text.
    pub(crate) form: String,
    pub(crate) rows: Vec<Arc<ResourceRow>>,
}

/// Positions of groups and versions among the others, while rows are added.
#[derive(Default)]
struct Places {
    groups: HashMap<String, usize>,
    versions: HashMap<(usize, String), usize>,
}

impl Rows {
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceRow>> {
        self.by_resource.get(group)?.get(version)?.get(plural)
    }

    /// The group belongs to the server itself, whatever else is defined in it.
    pub fn is_built_in_group(&self, group: &str) -> bool {
        self.built_in.iter().any(|row| row.gvk.group == group)
    }

    /// The objects of a built-in resource lie below this prefix.
    pub(crate) fn is_built_in_prefix(&self, prefix: &str) -> bool {
        self.by_prefix.get(prefix).is_some_and(|row| !row.custom)
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<ResourceRow>> {
        self.groups
            .iter()
            .flat_map(|group| &group.versions)
            .flat_map(|version| &version.resources)
    }

    /// Other rows of the same objects that have a subresource too, where one is named.
    pub fn equivalents<'a>(
        &'a self,
        row: &'a ResourceRow,
        subresource: &'a str,
    ) -> impl Iterator<Item = &'a Arc<ResourceRow>> {
        self.all().filter(move |other| {
            let is_same = other.gvk == row.gvk && other.plural == row.plural;
            let has_part = subresource.is_empty() || other.subresource(subresource).is_some();
            !is_same && has_part && row.has_store && other.stored.prefix == row.stored.prefix
        })
    }

    /// A row of the kind whose objects lie where this key does; the stored version's where that is served.
    pub(crate) fn at_key(&self, key: &str) -> Option<&Arc<ResourceRow>> {
        let slashes = key.match_indices('/').skip(2).take(PREFIX_PARTS);
        let prefixes = slashes.map(|(at, _)| &key[..=at]);
        prefixes.filter_map(|prefix| self.by_prefix.get(prefix)).last()
    }

    pub(crate) fn rebuilt(
        built_in: Vec<Arc<ResourceRow>>,
        custom: BTreeMap<String, Custom>,
        generation: u64,
    ) -> Self {
        let mut rows = Self {
            generation,
            built_in,
            custom,
            ..Self::default()
        };
        let all: Vec<Arc<ResourceRow>> = rows
            .built_in
            .iter()
            .chain(rows.custom.values().flat_map(|known| &known.rows))
            .cloned()
            .collect();
        let mut places = Places::default();
        for row in all {
            rows.add(row, &mut places);
        }
        rows.sort();
        rows
    }

    fn add(&mut self, row: Arc<ResourceRow>, places: &mut Places) {
        let (group, version) = (&row.gvk.group, &row.gvk.version);
        let at = *places.groups.entry(group.clone()).or_insert_with(|| {
            self.groups.push(Group {
                name: group.clone(),
                versions: Vec::new(),
            });
            self.groups.len() - 1
        });
        let versions = &mut self.groups[at].versions;
        let at = *places.versions.entry((at, version.clone())).or_insert_with(|| {
            versions.push(Version {
                name: version.clone(),
                resources: Vec::new(),
            });
            versions.len() - 1
        });
        versions[at].resources.push(Arc::clone(&row));
        if row.has_store {
            let stored = self.by_prefix.entry(row.stored.prefix.clone());
            let stored = stored.or_insert_with(|| Arc::clone(&row));
            if row.is_stored_form() {
                *stored = Arc::clone(&row);
            }
        }
        let plurals = self
            .by_resource
            .entry(group.clone())
            .or_default()
            .entry(version.clone())
            .or_default();
        plurals.insert(row.plural.clone(), row);
    }

    fn sort(&mut self) {
        for group in &mut self.groups {
            // Built-in groups come in upstream's order already; custom versions sort by stability.
            let custom = group
                .versions
                .iter()
                .flat_map(|v| &v.resources)
                .any(|row| row.custom);
            if custom {
                group
                    .versions
                    .sort_by_key(|version| std::cmp::Reverse(version_priority(&version.name)));
            }
            for version in &mut group.versions {
                version.resources.sort_by(|a, b| a.plural.cmp(&b.plural));
            }
        }
    }
}

/// Upstream's order of versions: GA, beta, alpha, each newest first, then others by name.
pub fn version_priority(version: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let parsed = || -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..digits].parse().ok()?;
        let rest = &rest[digits..];
        if rest.is_empty() {
            return Some((3, major, 0));
        }
        if let Some(minor) = rest.strip_prefix("beta") {
            return Some((2, major, minor.parse().ok()?));
        }
        Some((1, major, rest.strip_prefix("alpha")?.parse().ok()?))
    };
    let (stage, major, minor) = parsed().unwrap_or((0, 0, 0));
    let name = if stage == 0 {
        version.to_owned()
    } else {
        String::new()
    };
    (stage, major, minor, std::cmp::Reverse(name))
}

#[cfg(test)]
mod tests {
    use super::version_priority;

    #[test]
    fn versions_sort_by_stability() {
        let mut versions = vec![
            "foo1",
            "v1alpha1",
            "v10",
            "v2",
            "v1beta2",
            "v11beta2",
            "v12alpha1",
            "foo10",
        ];
        versions.sort_by_key(|version| std::cmp::Reverse(version_priority(version)));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v11beta2",
                "v1beta2",
                "v12alpha1",
                "v1alpha1",
                "foo1",
                "foo10"
            ]
        );
    }
}
