//! Coverage of rules by the rules that a subject holds, computed in a bounded number of steps.
//!
//! A rule grants every combination of its verbs, groups, resources and names, and each of them must be covered by one
//! held rule. Combinations are not compared one by one: values that the same held rules match form one class, and
//! classes are intersected as sets of held rules. A request of an administrator is one class in each dimension.

use super::lookup::{Rules, WordList};
use super::rules::PolicyRule;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Members of sets that one question may read or write: a fraction of a second, and 16 MB at most.
const MAX_STEPS: usize = 4_000_000;
/// Missing rules that are named; more are counted.
const MAX_NAMED: usize = 500;

/// Rules of several roles.
pub type Held = Vec<Rules>;

/// Rules that are not covered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing {
    /// Each with one group and resource (and name), or one path.
    pub rules: Vec<PolicyRule>,
    /// Number of missing rules beyond those in `rules`.
    pub more: usize,
}

/// The rules combine to more than can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the rules have too many combinations to be compared with those held")]
pub struct TooComplex;

/// Numbers of held rules, in order.
type Set = Vec<u32>;

/// The rules held, found by each of the values that a rule matches.
struct Index<'a> {
    verbs: Dimension<'a>,
    groups: Dimension<'a>,
    resources: Dimension<'a>,
    /// Rules without names are in `any`.
    names: Dimension<'a>,
    paths: HashMap<&'a str, Vec<u32>>,
    /// Beginnings of paths, and their lengths.
    prefixes: HashMap<&'a [u8], Vec<u32>>,
    lengths: Vec<usize>,
}

#[derive(Default)]
struct Dimension<'a> {
    any: Vec<u32>,
    exact: HashMap<&'a str, Vec<u32>>,
}

impl<'a> Dimension<'a> {
    fn add(&mut self, values: WordList<'a>, rule: u32) {
        if values.is_any() {
            self.any.push(rule);
        }
        for value in values.iter() {
            if value == "*" {
                self.any.push(rule);
            } else {
                self.exact.entry(value).or_default().push(rule);
            }
        }
    }

    fn of(&self, value: &str) -> impl Iterator<Item = u32> {
        self.any
            .iter()
            .chain(self.exact.get(value).into_iter().flatten())
            .copied()
    }
}

/// Steps left.
struct Budget(usize);

impl Budget {
    fn take(&mut self, steps: usize) -> Result<(), TooComplex> {
        self.0 = self.0.checked_sub(steps).ok_or(TooComplex)?;
        Ok(())
    }
}

impl<'a> Index<'a> {
    fn new(held: &'a Held, budget: &mut Budget) -> Result<Self, TooComplex> {
        let mut index = Self {
            verbs: Dimension::default(),
            groups: Dimension::default(),
            resources: Dimension::default(),
            names: Dimension::default(),
            paths: HashMap::new(),
            prefixes: HashMap::new(),
            lengths: Vec::new(),
        };
        for (rule, number) in held.iter().flat_map(Rules::each).zip(0_u32..) {
            budget.take(1 + rule.len())?;
            index.verbs.add(rule.verbs, number);
            index.groups.add(rule.groups, number);
            index.resources.add(rule.resources, number);
            // A name is never a pattern.
            for name in rule.names.iter() {
                index.names.exact.entry(name).or_default().push(number);
            }
            if rule.names.is_any() {
                index.names.any.push(number);
            }
            for path in rule.paths.iter() {
                index.paths.entry(path).or_default().push(number);
                if path.ends_with('*') {
                    let prefix = path.trim_end_matches('*').as_bytes();
                    index.prefixes.entry(prefix).or_default().push(number);
                    index.lengths.push(prefix.len());
                }
            }
        }
        index.lengths.sort_unstable();
        index.lengths.dedup();
        Ok(index)
    }

    fn of_resource(&self, resource: &str, budget: &mut Budget) -> Result<Set, TooComplex> {
        let of_any = resource
            .split_once('/')
            .and_then(|(_, subresource)| self.resources.exact.get(format!("*/{subresource}").as_str()));
        let of_any = of_any.into_iter().flatten().copied();
        set(self.resources.of(resource).chain(of_any), budget)
    }

    fn of_path(&self, path: &str, budget: &mut Budget) -> Result<Set, TooComplex> {
        budget.take(self.lengths.len() * (1 + path.len() / 64))?;
        let prefixes = self
            .lengths
            .iter()
            .filter_map(|length| path.as_bytes().get(..*length))
            .filter_map(|prefix| self.prefixes.get(prefix));
        let all = self.paths.get(path).into_iter().chain(prefixes).flatten();
        set(all.copied(), budget)
    }
}

fn set(rules: impl Iterator<Item = u32>, budget: &mut Budget) -> Result<Set, TooComplex> {
    let mut set: Set = rules.collect();
    budget.take(set.len() + 1)?;
    set.sort_unstable();
    set.dedup();
    Ok(set)
}

/// Values that the same held rules match, and which.
type Classes<'v> = Vec<(Set, Vec<&'v str>)>;

fn classes<'v>(
    values: &'v [String],
    mut set_of: impl FnMut(&str) -> Result<Set, TooComplex>,
) -> Result<Classes<'v>, TooComplex> {
    let mut found: BTreeMap<Set, Vec<&str>> = BTreeMap::new();
    for value in values {
        found.entry(set_of(value)?).or_default().push(value);
    }
    Ok(found.into_iter().collect())
}

fn both(a: &Set, b: &Set, budget: &mut Budget) -> Result<Set, TooComplex> {
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    budget.take(few.len() + 1)?;
    let is_common = |rule: &&u32| many.binary_search(rule).is_ok();
    Ok(few.iter().filter(is_common).copied().collect())
}

/// Returns the rules in `asked` that the held rules do not cover.
///
/// # Errors
/// [`TooComplex`] if the comparison takes too many steps; the caller refuses the request.
pub fn missing(held: &Held, requested: &[PolicyRule]) -> Result<Missing, TooComplex> {
    let mut budget = Budget(MAX_STEPS);
    let index = Index::new(held, &mut budget)?;
    let mut found = Found::default();
    for rule in requested {
        resources(&index, rule, &mut found, &mut budget)?;
        paths(&index, rule, &mut found, &mut budget)?;
    }
    Ok(found.finish())
}

fn resources<'v>(
    index: &Index<'_>,
    rule: &'v PolicyRule,
    found: &mut Found<'v>,
    budget: &mut Budget,
) -> Result<(), TooComplex> {
    let groups = classes(&rule.api_groups, |value| set(index.groups.of(value), budget))?;
    let resources = classes(&rule.resources, |value| index.of_resource(value, budget))?;
    let verbs = classes(&rule.verbs, |value| set(index.verbs.of(value), budget))?;
    let names = if rule.resource_names.is_empty() {
        vec![(set(index.names.any.iter().copied(), budget)?, vec![""])]
    } else {
        classes(&rule.resource_names, |value| set(index.names.of(value), budget))?
    };
    for (of_group, group) in &groups {
        for (of_resource, resource) in &resources {
            let so_far = both(of_group, of_resource, budget)?;
            for (of_name, name) in &names {
                let so_far = both(&so_far, of_name, budget)?;
                let mut lacking = Vec::new();
                for (of_verb, verb) in &verbs {
                    if both(&so_far, of_verb, budget)?.is_empty() {
                        lacking.extend(verb.iter().copied());
                    }
                }
                if !lacking.is_empty() {
                    found.add_resources(rule, [group, resource, name], &lacking, budget)?;
                }
            }
        }
    }
    Ok(())
}

fn paths<'v>(
    index: &Index<'_>,
    rule: &'v PolicyRule,
    found: &mut Found<'v>,
    budget: &mut Budget,
) -> Result<(), TooComplex> {
    if rule.non_resource_urls.is_empty() {
        return Ok(());
    }
    let unnamed = set(index.names.any.iter().copied(), budget)?;
    let verbs = classes(&rule.verbs, |value| set(index.verbs.of(value), budget))?;
    for (of_path, paths) in classes(&rule.non_resource_urls, |value| index.of_path(value, budget))? {
        let so_far = both(&of_path, &unnamed, budget)?;
        for (of_verb, verbs) in &verbs {
            if both(&so_far, of_verb, budget)?.is_empty() {
                found.add_paths(&paths, verbs);
            }
        }
    }
    Ok(())
}

/// Missing combinations, by what upstream shows as one line.
#[derive(Default)]
struct Found<'v> {
    /// Group, resource and name, with the verbs missing.
    resources: BTreeMap<[&'v str; 3], Vec<&'v str>>,
    /// Path and verb.
    paths: BTreeMap<[&'v str; 2], ()>,
    more: usize,
}

impl<'v> Found<'v> {
    fn add_resources(
        &mut self,
        rule: &'v PolicyRule,
        [groups, resources, names]: [&[&'v str]; 3],
        lacking: &[&'v str],
        budget: &mut Budget,
    ) -> Result<(), TooComplex> {
        budget.take(8 + rule.verbs.len() + lacking.len())?;
        // In the order in which the rule has them.
        let lacking: HashSet<&str> = lacking.iter().copied().collect();
        let in_order = rule.verbs.iter().map(String::as_str);
        let lacking: Vec<&str> = in_order.filter(|verb| lacking.contains(verb)).collect();
        let all = groups.len() * resources.len() * names.len();
        let mut added = 0;
        for group in groups {
            for resource in resources {
                for name in names {
                    let key = [*group, *resource, *name];
                    if self.resources.len() >= MAX_NAMED && !self.resources.contains_key(&key) {
                        self.more += all - added;
                        return Ok(());
                    }
                    added += 1;
                    let verbs = self.resources.entry(key).or_default();
                    budget.take(lacking.len() * (1 + verbs.len()))?;
                    let new = |verb: &&&str| !verbs.contains(verb);
                    let new: Vec<&str> = lacking.iter().filter(new).copied().collect();
                    verbs.extend(new);
                }
            }
        }
        Ok(())
    }

    fn add_paths(&mut self, paths: &[&'v str], verbs: &[&'v str]) {
        for path in paths {
            for verb in verbs {
                if self.paths.len() >= MAX_NAMED {
                    self.more += 1;
                } else {
                    self.paths.insert([path, verb], ());
                }
            }
        }
    }

    fn finish(self) -> Missing {
        let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        let resources = self
            .resources
            .iter()
            .map(|([group, resource, name], verbs)| PolicyRule {
                verbs: owned(verbs),
                api_groups: owned(&[group]),
                resources: owned(&[resource]),
                resource_names: if name.is_empty() {
                    Vec::new()
                } else {
                    owned(&[name])
                },
                ..PolicyRule::default()
            });
        let paths = self.paths.keys().map(|[path, verb]| PolicyRule {
            verbs: owned(&[verb]),
            non_resource_urls: owned(&[path]),
            ..PolicyRule::default()
        });
        Missing {
            rules: resources.chain(paths).collect(),
            more: self.more,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Coverage {
        name: String,
        held: Vec<PolicyRule>,
        requested: Vec<PolicyRule>,
        #[serde(default)]
        missing: Vec<PolicyRule>,
    }

    #[test]
    fn coverage_is_upstreams() {
        let table: Vec<Coverage> = crate::testing::yaml(include_str!("../../../testdata/rbac/covers.yaml"));
        for case in table {
            // All in one role, and each rule in a role of its own.
            let apart: Held = case.held.iter().map(|rule| vec![rule.clone()].into()).collect();
            for held in [vec![case.held.clone().into()], apart] {
                let found = missing(&held, &case.requested).unwrap();
                assert_eq!(
                    (found.rules, found.more),
                    (case.missing.clone(), 0),
                    "{}",
                    case.name
                );
            }
        }
    }

    fn many(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{prefix}{number}")).collect()
    }

    fn product(count: usize) -> PolicyRule {
        PolicyRule {
            verbs: many("v", 2),
            api_groups: many("g", count),
            resources: many("r", count),
            ..PolicyRule::default()
        }
    }

    /// A step is a member of a set read or written, so a bound of steps is one of time and memory.
    #[test]
    fn coverage_of_many_combinations_is_bounded() {
        let requested = [product(200)];
        let everything = PolicyRule {
            verbs: vec!["*".to_owned()],
            api_groups: vec!["*".to_owned()],
            resources: vec!["*".to_owned()],
            ..PolicyRule::default()
        };
        let held: Held = vec![vec![everything].into(), vec![product(199)].into()];
        assert_eq!(missing(&held, &requested), Ok(Missing::default()));
        // 200 × 200 less 199 × 199 of them.
        let held: Held = vec![vec![product(199)].into()];
        let found = missing(&held, &requested).unwrap();
        assert_eq!(found.rules.len() + found.more, 399);
        let nothing = missing(&Vec::new(), &[product(20_000)]).unwrap();
        assert_eq!(nothing.rules.len() + nothing.more, 400_000_000);
        // As many classes as values: each is matched by another rule.
        let single = |number: usize| PolicyRule {
            verbs: vec!["v0".to_owned()],
            api_groups: vec![format!("g{number}")],
            resources: vec![format!("r{number}")],
            ..PolicyRule::default()
        };
        let held: Held = vec![(0..20_000).map(single).collect()];
        assert_eq!(missing(&held, &[product(20_000)]), Err(TooComplex));
    }

    #[test]
    fn coverage_by_more_rules_than_can_be_indexed_is_refused() {
        let rule = product(1_000);
        let role: Rules = vec![rule.clone(); 100].into();
        let held: Held = vec![role; 30];
        assert_eq!(missing(&held, &[rule]), Err(TooComplex));
    }
}
