//! Lists of upstream's families and of those that Grafana's usual dashboards read, compared with what the node shows.

use std::collections::{BTreeMap, BTreeSet};

use machinery_runtime::metrics::Described;

const UPSTREAM: &str = include_str!("../../testdata/metrics.tsv");
const DASHBOARDS: &str = include_str!("../../testdata/kubernetes_mixin.tsv");

/// A family as a page shows it or as the list has it.
#[derive(Debug, Clone, PartialEq)]
struct Family {
    kind: String,
    /// `None` where no sample shows them.
    labels: Option<BTreeSet<String>>,
    buckets: Option<Vec<f64>>,
    help: String,
}

/// Rows of upstream's list of a page, by name: the family, and whether it is here.
fn upstream(page: &str) -> BTreeMap<&'static str, (Family, bool)> {
    let rows = UPSTREAM.lines().filter(|line| !line.starts_with('#'));
    let mut all = BTreeMap::new();
    for line in rows {
        let fields: Vec<&str> = line.split('\t').collect();
        let [own_page, name, kind, labels, buckets, stability, help, state] = fields[..] else {
            panic!("{line}");
        };
        let reason = state.strip_prefix("absent: ").unwrap_or_default();
        assert!(state == "here" || !reason.is_empty(), "{line}");
        if own_page != page {
            continue;
        }
        let list = |text: &str| {
            text.split(',')
                .filter(|own| !own.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let help = match stability {
            "-" => help.to_owned(),
            level => format!("[{level}] {help}"),
        };
        let family = Family {
            kind: kind.to_owned(),
            labels: Some(list(labels)),
            buckets: (kind == "histogram")
                .then(|| buckets.split(',').map(|own| own.parse().unwrap()).collect()),
            help,
        };
        all.insert(name, (family, state == "here"));
    }
    assert!(!all.is_empty(), "no such page: {page}");
    all
}

/// Families of a text, by name.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut all: BTreeMap<String, Family> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (own, help) = rest.split_once(' ').unwrap();
            own.clone_into(&mut name);
            let family = Family {
                kind: String::new(),
                labels: None,
                buckets: None,
                help: help.to_owned(),
            };
            assert!(
                all.insert(name.clone(), family).is_none(),
                "{name} is there twice"
            );
            continue;
        }
        let family = all.get_mut(&name).unwrap();
        if let Some(kind) = line.strip_prefix(&format!("# TYPE {name} ")) {
            kind.clone_into(&mut family.kind);
            continue;
        }
        assert!(line.starts_with(&name), "{line} is not of {name}");
        let labels = labels(line);
        if let Some(bound) = labels.get("le").filter(|bound| *bound != "+Inf") {
            let buckets = family.buckets.get_or_insert_default();
            let bound = bound.parse().unwrap();
            if !buckets.contains(&bound) {
                buckets.push(bound);
            }
        }
        family.labels = Some(labels.into_keys().filter(|label| label != "le").collect());
    }
    all
}

/// Labels of a sample whose values have no quotes and commas.
fn labels(line: &str) -> BTreeMap<String, String> {
    let Some((labels, _)) = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')) else {
        return BTreeMap::new();
    };
    let pairs = labels.split("\",").filter_map(|pair| pair.split_once("=\""));
    pairs
        .map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned()))
        .collect()
}

fn compare_family(page: &str, name: &str, own: &Family) -> Option<String> {
    let all = upstream(page);
    let Some((theirs, is_here)) = all.get(name) else {
        return Some(format!("{name} is not upstream's"));
    };
    if !is_here {
        return Some(format!("{name} is listed as absent"));
    }
    let same_labels = own.labels.is_none() || own.labels == theirs.labels;
    let same_buckets = own.buckets.is_none() || are_near(own.buckets.as_ref(), theirs.buckets.as_ref());
    let is_same = own.kind == theirs.kind && own.help == theirs.help && same_labels && same_buckets;
    (!is_same).then(|| format!("{name}\n  upstream: {theirs:?}\n  ours:     {own:?}"))
}

fn are_near(one: Option<&Vec<f64>>, other: Option<&Vec<f64>>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return one == other;
    };
    let near = |(one, other): (&f64, &f64)| (one - other).abs() <= 1e-6 * other.abs();
    one.len() == other.len() && one.iter().zip(other).all(near)
}

/// Compares the families of a text with upstream's of a page, and returns their names.
pub(super) fn compare(page: &str, text: &str) -> BTreeSet<String> {
    let found = families(text);
    let differing = found
        .iter()
        .filter_map(|(name, own)| compare_family(page, name, own));
    let differing: Vec<_> = differing.collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    found.into_keys().collect()
}

/// Compares families that have no sample yet.
pub(super) fn compare_described(page: &str, described: &[Described]) -> BTreeSet<String> {
    let differing = described.iter().filter_map(|own| {
        let labels = own.family.labels.iter().map(|label| (*label).to_owned());
        let family = Family {
            kind: own.kind.to_owned(),
            labels: Some(labels.collect()),
            buckets: (own.kind == "histogram").then(|| own.family.buckets.bounds()),
            help: own.family.help.to_owned(),
        };
        compare_family(page, own.family.name, &family)
    });
    let differing: Vec<_> = differing.collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    described.iter().map(|own| own.family.name.to_owned()).collect()
}

/// Every family that is listed as here was found.
pub(super) fn all_are_there(page: &str, found: &BTreeSet<String>) {
    let listed = upstream(page).into_iter().filter(|(_, (_, is_here))| *is_here);
    let missing: Vec<_> = listed
        .map(|(name, _)| name)
        .filter(|name| !found.contains(*name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn dashboards_find_what_a_node_can_show() {
    let mut served = 0;
    for line in DASHBOARDS.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [page, name, labels, state] = fields[..] else {
            panic!("{line}");
        };
        let all = upstream(page);
        let row = all.get(name);
        if let Some(reason) = state.strip_prefix("absent: ") {
            assert!(
                !reason.is_empty() && !row.is_some_and(|(_, is_here)| *is_here),
                "{line}"
            );
            continue;
        }
        assert_eq!(state, "here", "{line}");
        let (family, is_here) = row.unwrap_or_else(|| panic!("{name} is not upstream's"));
        assert!(is_here, "{name} is listed as absent");
        let known = family.labels.as_ref().unwrap();
        for label in labels
            .split(',')
            .filter(|label| !label.is_empty() && *label != "le")
        {
            assert!(known.contains(label), "{name} has no label {label}");
        }
        served += 1;
    }
    assert!(served > 30, "{served}");
}
