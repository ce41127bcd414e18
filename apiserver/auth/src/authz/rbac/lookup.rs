//! The rules of one role, found by what a request is for: a role may have thousands of rules, and a rule as many names.
//!
//! Words of roles are packed, since writers of roles in a namespace decide how many they have: all words of a role are one
//! text, in which lists are ranges. A name of two letters took eighty bytes in lists and sets of its own.

use super::rules::{PolicyRule, is_path_of};
use crate::authz::Attributes;
use crate::authz::attributes::{AttributesTarget, ResourceTarget};
use std::ops::Range;
use std::sync::Arc;

const ALL: &str = "*";

/// Rules in their order, and which of them may match. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Rules(Arc<Packed>);

#[derive(Debug, Default)]
struct Packed {
    /// The rules as the role has them, as JSON.
    json: Box<[u8]>,
    words: Words,
    rules: Box<[Lists]>,
    /// Words that name resources (`pods`, `pods/log`, `*/scale`, `*`), in their order, with their rules.
    by_resource: Box<[(u32, u32)]>,
    /// Rules that name paths.
    of_paths: Box<[u32]>,
}

/// Words of all rules: of each its paths, resources, verbs, groups and names.
#[derive(Debug, Default)]
struct Words {
    text: Box<str>,
    /// End of each word.
    ends: Box<[u32]>,
}

impl Words {
    fn word(&self, at: u32) -> &str {
        let at = at as usize;
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin as usize..self.ends[at] as usize]
    }
}

/// Ends of a rule's lists among the words; each list begins where the one before it ends.
#[derive(Debug, Clone, Copy, Default)]
struct Lists {
    begin: u32,
    paths: u32,
    resources: u32,
    verbs: u32,
    groups: u32,
    names: u32,
    /// Any verb, any group, any name.
    any: [bool; 3],
}

/// One list of a rule. Verbs, groups and names are sorted.
#[derive(Clone, Copy)]
pub(super) struct WordList<'a> {
    words: &'a Words,
    begin: u32,
    end: u32,
    any: bool,
}

impl<'a> WordList<'a> {
    /// Reports whether every word is meant; the list has none then.
    pub(super) fn is_any(self) -> bool {
        self.any
    }

    pub(super) fn iter(self) -> impl Iterator<Item = &'a str> {
        (self.begin..self.end).map(move |at| self.words.word(at))
    }

    fn has(self, word: &str) -> bool {
        let (mut from, mut to) = (self.begin, self.end);
        while from < to {
            let middle = from.midpoint(to);
            match self.words.word(middle).cmp(word) {
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        self.any
    }
}

/// The lists of one rule.
pub(super) struct RuleWords<'a> {
    pub(super) paths: WordList<'a>,
    pub(super) resources: WordList<'a>,
    pub(super) verbs: WordList<'a>,
    pub(super) groups: WordList<'a>,
    pub(super) names: WordList<'a>,
}

impl RuleWords<'_> {
    /// Number of its words.
    pub(super) fn len(&self) -> usize {
        (self.names.end - self.paths.begin) as usize
    }
}

/// Puts the words of rules together.
#[derive(Default)]
struct Packer {
    text: String,
    ends: Vec<u32>,
    rules: Vec<Lists>,
}

/// No role of a gigabyte comes through the API.
fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

impl Packer {
    /// Adds words, and returns their end.
    fn add<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> u32 {
        for word in words {
            self.text.push_str(word);
            self.ends.push(number(self.text.len()));
        }
        number(self.ends.len())
    }

    /// Adds the words of a list in their order, or none where one of them stands for all.
    fn add_set(&mut self, list: &[String], star: bool) -> (u32, bool) {
        let any = star && list.iter().any(|word| word == ALL);
        let mut words: Vec<&str> = list.iter().map(String::as_str).filter(|_| !any).collect();
        words.sort_unstable();
        words.dedup();
        (self.add(words.into_iter()), any)
    }

    fn push(&mut self, rule: &PolicyRule) {
        let begin = number(self.ends.len());
        let paths = self.add(rule.non_resource_urls.iter().map(String::as_str));
        let (resources, _) = self.add_set(&rule.resources, false);
        let (verbs, any_verb) = self.add_set(&rule.verbs, true);
        let (groups, any_group) = self.add_set(&rule.api_groups, true);
        let (names, _) = self.add_set(&rule.resource_names, false);
        self.rules.push(Lists {
            begin,
            paths,
            resources,
            verbs,
            groups,
            names,
            any: [any_verb, any_group, rule.resource_names.is_empty()],
        });
    }

    fn packed(self, json: Vec<u8>) -> Packed {
        let words = Words {
            text: self.text.into(),
            ends: self.ends.into(),
        };
        let rules = || self.rules.iter().zip(0_u32..);
        let of_resources =
            rules().flat_map(|(own, at)| (own.paths..own.resources).map(move |word| (word, at)));
        let mut by_resource: Vec<(u32, u32)> = of_resources.collect();
        by_resource.sort_by(|one, other| {
            let by_word = words.word(one.0).cmp(words.word(other.0));
            by_word.then(one.1.cmp(&other.1))
        });
        let of_paths = rules().filter(|(own, _)| own.begin < own.paths);
        Packed {
            json: json.into(),
            of_paths: of_paths.map(|(_, at)| at).collect(),
            by_resource: by_resource.into(),
            rules: self.rules.into(),
            words,
        }
    }
}

impl FromIterator<PolicyRule> for Rules {
    fn from_iter<I: IntoIterator<Item = PolicyRule>>(rules: I) -> Self {
        rules.into_iter().collect::<Vec<_>>().into()
    }
}

impl From<Vec<PolicyRule>> for Rules {
    fn from(list: Vec<PolicyRule>) -> Self {
        let mut packer = Packer::default();
        list.iter().for_each(|rule| packer.push(rule));
        let json = serde_json::to_vec(&list).expect("a rule has only texts");
        Self(Arc::new(packer.packed(json)))
    }
}

impl Rules {
    /// The rules as the role has them, parsed for each call: reviews and escalation checks need those of few roles.
    pub(super) fn list(&self) -> Vec<PolicyRule> {
        serde_json::from_slice(&self.0.json).expect("rules are read as they were written")
    }

    /// Number of rules.
    pub(super) fn len(&self) -> usize {
        self.0.rules.len()
    }

    /// The words of each rule.
    pub(super) fn each(&self) -> impl Iterator<Item = RuleWords<'_>> {
        (0..number(self.len())).map(|at| self.words(at))
    }

    fn words(&self, at: u32) -> RuleWords<'_> {
        let own = self.0.rules[at as usize];
        let list = |Range { start, end }: Range<u32>, any: bool| WordList {
            words: &self.0.words,
            begin: start,
            end,
            any,
        };
        let [any_verb, any_group, any_name] = own.any;
        RuleWords {
            paths: list(own.begin..own.paths, false),
            resources: list(own.paths..own.resources, false),
            verbs: list(own.resources..own.verbs, any_verb),
            groups: list(own.verbs..own.groups, any_group),
            names: list(own.groups..own.names, any_name),
        }
    }

    /// An identity of the rules: two values have the same one if they come from the same role.
    pub(super) fn identity(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }

    /// Reports whether one of the rules permits the request.
    pub(super) fn allow(&self, attributes: &Attributes<'_>) -> bool {
        match &attributes.target {
            AttributesTarget::Resource(target) => self.allow_resource(attributes.verb, target),
            AttributesTarget::Path(path) => self.0.of_paths.iter().any(|at| {
                let words = self.words(*at);
                words.verbs.has(attributes.verb) && words.paths.iter().any(|url| is_path_of(url, path))
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
        keys.iter().flat_map(|key| self.of_resource(key)).any(|at| {
            #[cfg(test)]
            looked_at::RULES.with(|count| count.set(count.get() + 1));
            let words = self.words(at);
            words.verbs.has(verb) && words.groups.has(target.group) && words.names.has(target.name)
        })
    }

    /// Rules that say this of resources.
    fn of_resource(&self, resource: &str) -> impl Iterator<Item = u32> {
        let (all, words) = (&self.0.by_resource, &self.0.words);
        let begin = all.partition_point(|(word, _)| words.word(*word) < resource);
        let own = all[begin..].partition_point(|(word, _)| words.word(*word) == resource);
        all[begin..begin + own].iter().map(|(_, rule)| *rule)
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
        let mut lookups = 0;
        let mut compare = |verb: &str, target: AttributesTarget<'_>| {
            let attributes = Attributes {
                asker: None,
                user: &user,
                verb,
                target,
            };
            for rule in &rules {
                let found = Rules::from(vec![rule.clone()]).allow(&attributes);
                assert_eq!(found, rule.allows(&attributes), "{rule:?} {attributes:?}");
                lookups += 1;
            }
            let walked = rules.iter().any(|rule| rule.allows(&attributes));
            assert_eq!(Rules::from(rules.clone()).allow(&attributes), walked);
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
        assert!(lookups > 2_000);
        assert_eq!(Rules::from(rules.clone()).list(), rules);
    }

    /// Memory of a role is about what the role has in JSON, however many and short its words are.
    #[test]
    fn rules_take_what_is_charged() {
        let many = |word: fn(usize) -> String| (0..10_000).map(word).collect::<Vec<_>>();
        let short = |at: usize| format!("{at:x}");
        let names = vec![PolicyRule {
            resource_names: many(short),
            ..PolicyRule::default()
        }];
        let resources = vec![PolicyRule {
            resources: many(short),
            ..PolicyRule::default()
        }];
        let verbs = |at: usize| PolicyRule {
            verbs: vec![short(at)],
            ..PolicyRule::default()
        };
        for list in [names, resources, (0..10_000).map(verbs).collect()] {
            let json = serde_json::to_vec(&list).unwrap().len();
            let before = machinery_fuzz::resident();
            let rules = Rules::from(list.clone());
            let taken = machinery_fuzz::resident() - before;
            assert!(taken <= 4 * json, "{taken} bytes for {json} of JSON");
            assert_eq!(rules.list(), list);
        }
    }
}
