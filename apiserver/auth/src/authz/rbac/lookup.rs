//! The rules of one role, found by what a request is for: a role may have thousands of rules, and a rule as many names.

use super::rules::{PolicyRule, is_path_of};
use crate::authz::Attributes;
use crate::authz::attributes::{AttributesTarget, ResourceTarget};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const ALL: &str = "*";
/// Lists up to this length are walked, which is cheaper than hashing.
const FEW: usize = 16;

/// Rules in their order, and which of them may match. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    list: Arc<[PolicyRule]>,
    lookup: Arc<Lookup>,
}

#[derive(Debug, Default)]
struct Lookup {
    /// Positions of rules by what they say of resources: `pods`, `pods/log`, `*/scale`, `*`.
    by_resource: HashMap<Box<str>, Vec<usize>>,
    /// Positions of rules that name paths.
    of_paths: Vec<usize>,
    lists: Vec<RuleLists>,
}

/// The lists of one rule.
#[derive(Debug)]
struct RuleLists {
    verbs: StringSet,
    groups: StringSet,
    names: StringSet,
}

#[derive(Debug)]
enum StringSet {
    All,
    Few(Box<[Box<str>]>),
    Many(HashSet<Box<str>>),
}

impl StringSet {
    /// With `star`, `*` stands for every word.
    fn new(list: &[String], star: bool) -> Self {
        let words = || list.iter().map(|word| word.as_str().into());
        if star && list.iter().any(|word| word == ALL) {
            Self::All
        } else if list.len() <= FEW {
            Self::Few(words().collect())
        } else {
            Self::Many(words().collect())
        }
    }

    fn has(&self, word: &str) -> bool {
        match self {
            Self::All => true,
            Self::Few(words) => words.iter().any(|own| **own == *word),
            Self::Many(words) => words.contains(word),
        }
    }
}

impl RuleLists {
    fn new(rule: &PolicyRule) -> Self {
        let names = if rule.resource_names.is_empty() {
            StringSet::All
        } else {
            StringSet::new(&rule.resource_names, false)
        };
        Self {
            verbs: StringSet::new(&rule.verbs, true),
            groups: StringSet::new(&rule.api_groups, true),
            names,
        }
    }
}

impl Rules {
    pub(super) fn new(list: Vec<PolicyRule>) -> Self {
        let mut lookup = Lookup::default();
        for (at, rule) in list.iter().enumerate() {
            for resource in &rule.resources {
                let known = lookup.by_resource.entry(resource.as_str().into()).or_default();
                if known.last() != Some(&at) {
                    known.push(at);
                }
            }
            if !rule.non_resource_urls.is_empty() {
                lookup.of_paths.push(at);
            }
            lookup.lists.push(RuleLists::new(rule));
        }
        Self {
            list: list.into(),
            lookup: Arc::new(lookup),
        }
    }

    /// The rules as the role has them.
    pub(super) fn list(&self) -> &Arc<[PolicyRule]> {
        &self.list
    }

    /// An identity of the rules: two values have the same one if they come from the same role.
    pub(super) fn identity(&self) -> *const PolicyRule {
        self.list.as_ptr()
    }

    /// Reports whether one of the rules permits the request.
    pub(super) fn allow(&self, attributes: &Attributes<'_>) -> bool {
        match &attributes.target {
            AttributesTarget::Resource(target) => self.allow_resource(attributes.verb, target),
            AttributesTarget::Path(path) => self.lookup.of_paths.iter().any(|at| {
                let urls = &self.list[*at].non_resource_urls;
                self.lookup.lists[*at].verbs.has(attributes.verb)
                    && urls.iter().any(|url| is_path_of(url, path))
            }),
        }
    }

    fn allow_resource(&self, verb: &str, target: &ResourceTarget<'_>) -> bool {
        let (resource, sub) = (target.resource, target.subresource);
        let whole = [ALL, resource];
        let (all, exact);
        let keys: &[&str] = if sub.is_empty() {
            &whole
        } else {
            (exact, all) = (format!("{resource}/{sub}"), format!("{ALL}/{sub}"));
            &[ALL, &exact, &all]
        };
        keys.iter()
            .filter_map(|key| self.lookup.by_resource.get(*key))
            .flatten()
            .any(|at| {
                #[cfg(test)]
                looked_at::RULES.with(|count| count.set(count.get() + 1));
                let words = &self.lookup.lists[*at];
                words.verbs.has(verb) && words.groups.has(target.group) && words.names.has(target.name)
            })
    }
}

/// Figures of the cost of decisions, which tests read.
#[cfg(test)]
pub(super) mod looked_at {
    use std::cell::Cell;

    thread_local! {
        /// Rules whose words were compared with a request.
        pub(in crate::authz::rbac) static RULES: Cell<usize> = const { Cell::new(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_meta::UserInfo;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Every rule of these words, alone and all together, answers as the rules themselves do.
    #[test]
    fn rules_looked_up_answer_as_rules_walked() {
        let resources = ["*", "pods", "pods/log", "*/scale", "*/log", "", "pods/", "/log"];
        let many: Vec<String> = (0..40).map(|at| format!("n{at}")).collect();
        let mut rules = Vec::new();
        for (at, resource) in resources.iter().enumerate() {
            for names in [Vec::new(), list(&["a"]), many.clone()] {
                for groups in [["*"], [""], ["apps"]] {
                    rules.push(PolicyRule {
                        verbs: list(if at % 2 == 0 { &["get", "list"] } else { &["*"] }),
                        api_groups: list(&groups),
                        resources: list(&[resource, resource]),
                        resource_names: names.clone(),
                        non_resource_urls: Vec::new(),
                    });
                }
            }
        }
        rules.push(PolicyRule {
            verbs: list(&["get"]),
            non_resource_urls: list(&["/healthz/*", "/x"]),
            ..PolicyRule::default()
        });
        let user = UserInfo::default();
        let mut asked = 0;
        let mut compare = |verb: &str, target: AttributesTarget<'_>| {
            let attributes = Attributes {
                user: &user,
                verb,
                target,
            };
            for rule in &rules {
                let found = Rules::new(vec![rule.clone()]).allow(&attributes);
                assert_eq!(found, rule.allows(&attributes), "{rule:?} {attributes:?}");
                asked += 1;
            }
            let walked = rules.iter().any(|rule| rule.allows(&attributes));
            assert_eq!(Rules::new(rules.clone()).allow(&attributes), walked);
        };
        for verb in ["get", "watch"] {
            for path in ["/healthz/etcd", "/x", "/y"] {
                compare(verb, AttributesTarget::Path(path));
            }
            for (resource, subresource) in [("pods", ""), ("pods", "log"), ("nodes", "scale"), ("", "log")] {
                for (group, name) in [("", ""), ("apps", "a"), ("batch", "n7"), ("", "n41")] {
                    compare(
                        verb,
                        AttributesTarget::Resource(ResourceTarget {
                            group,
                            resource,
                            subresource,
                            name,
                            ..ResourceTarget::default()
                        }),
                    );
                }
            }
        }
        assert!(asked > 2_000);
    }
}
