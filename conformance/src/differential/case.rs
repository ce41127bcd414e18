//! The form of case files, and what is made of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::facts::{Facts, Resource};

/// Steps to be taken in a fresh namespace.
#[derive(Debug, Clone)]
pub struct Case {
    /// The file without `.yaml`, and the name within it: `core/pod/minimal:create`.
    pub id: String,
    /// Objects created first; how is not compared.
    pub requires: Vec<Value>,
    pub steps: Vec<Step>,
    /// Subject of a life, for the placeholders `{object}`, `{collection}`, `{item}`, `{name}`.
    pub subject: Option<Subject>,
    /// Reason why recorded answers cannot stand for a running kube-apiserver: such a case runs with `--live` only.
    pub live_only: Option<String>,
}

impl Case {
    /// Hash of all that decides the requests and the masks of this case; recorded answers to another one are stale.
    pub fn fingerprint(&self) -> Result<String> {
        let steps = self.steps.iter().map(Step::told).collect::<Result<Vec<_>>>()?;
        let subject = self.subject.as_ref();
        let parts = json!({
            "requires": self.requires,
            "steps": steps,
            "object": subject.map(|subject| &subject.object),
            "collection": subject.map(|subject| subject.resource.collection("{ns}")),
        });
        Ok(format!("{:016x}", hash(&parts.to_string())))
    }

    /// The namespace that the case runs in. It follows from the id, so that other cases can come and go.
    #[must_use]
    pub fn namespace(&self) -> String {
        format!("case-{:08x}", hash(&self.id) & 0xffff_ffff)
    }

    /// A number for names that are addresses, of at most four digits.
    #[must_use]
    pub fn index(&self) -> u64 {
        1 + hash(&self.id) % 9_999
    }
}

/// FNV-1a: the same on every machine and with every compiler.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The object whose life a case follows.
#[derive(Debug, Clone)]
pub struct Subject {
    pub object: Value,
    pub resource: Resource,
}

/// One request and what becomes of its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// `METHOD path`.
    #[serde(default)]
    pub request: String,
    /// Content type, in full or `json` `yaml` `protobuf` `merge` `strategic` `json-patch` `apply`.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Accept header, in full or `json` `yaml` `protobuf` `table` `partial` `partial-list`.
    pub accept: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body as an object; `"{variable}"` stands for what was saved.
    pub body: Option<Value>,
    /// Merged into the body, as a merge patch.
    pub with: Option<Value>,
    /// The body as text, sent as it is.
    pub text: Option<String>,
    /// The body as `[before, unit, count, after]`: a large one.
    pub large: Option<(String, String, usize, String)>,
    /// The body in hexadecimal.
    pub hex: Option<String>,
    /// Sender of the request: a user to impersonate, or `anonymous`.
    pub user: Option<String>,
    /// Variables to keep from the answer: name to path (`metadata.resourceVersion`; empty for all of it).
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// Paths left out of the comparison.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// The answer is a watch: read so many events of it.
    pub watch: Option<usize>,
    /// Start the watch now and let it run under this name …
    pub start: Option<String>,
    /// … until a later step finishes it; such a step has no request of its own.
    pub finish: Option<String>,
    /// Ask again until the answer has these values at these paths; only the last answer is compared.
    #[serde(default)]
    pub until: BTreeMap<String, Value>,
    /// Set to false where only the effect matters.
    #[serde(default = "yes")]
    pub compare: bool,
}

fn yes() -> bool {
    true
}

impl Step {
    /// The request as the case has it, or the watch that the step finishes.
    #[must_use]
    pub fn line(&self) -> String {
        match &self.finish {
            Some(watch) => format!("(watch {watch:?} ends)"),
            None => self.request.clone(),
        }
    }

    /// Members of this step in the case file, without defaults: a new member of [`Step`] makes no recording stale.
    pub(crate) fn told(&self) -> Result<Value> {
        let defaults = serde_json::to_value(serde_json::from_value::<Self>(json!({}))?)?;
        let mut told = serde_json::to_value(self)?;
        if let Some(members) = told.as_object_mut() {
            members.retain(|name, value| defaults.get(name) != Some(value));
        }
        Ok(told)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    /// A file about an object: it lives every life that fits its resource.
    object: Option<Value>,
    #[serde(default)]
    requires: Vec<Value>,
    /// Lives that this object does not live.
    #[serde(default)]
    skip: Vec<String>,
    /// Only these lives.
    only: Option<Vec<String>>,
    /// Cases shown in full.
    #[serde(default)]
    cases: Vec<Told>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Told {
    name: String,
    live_only: Option<String>,
    #[serde(default)]
    requires: Vec<Value>,
    steps: Vec<Step>,
}

/// A life that any object can live: `cases/life/<name>.yaml`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Life {
    live_only: Option<String>,
    #[serde(default)]
    verbs: Vec<String>,
    subresource: Option<String>,
    steps: Vec<Step>,
}

/// Reads every case below `folder`, sorted by id.
pub fn read_all(folder: &Path, facts: &Facts) -> Result<Vec<Case>> {
    let mut lives = BTreeMap::new();
    for path in yaml_files(&folder.join("life"))? {
        lives.insert(stem(&path), read::<Life>(&path)?);
    }
    let mut cases = Vec::new();
    for path in yaml_files(folder)? {
        let id = id_of(folder, &path)?;
        if id.starts_with("life/") {
            continue;
        }
        let file: File = read(&path)?;
        add_lives(&mut cases, &id, &file, &lives, facts).with_context(|| path.display().to_string())?;
        cases.extend(file.cases.into_iter().map(|told| Case {
            id: format!("{id}:{}", told.name),
            requires: file.requires.iter().cloned().chain(told.requires).collect(),
            steps: told.steps,
            subject: None,
            live_only: told.live_only,
        }));
    }
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(cases)
}

/// Object of a case file, with its placeholders.
#[derive(Debug)]
pub(crate) struct Object {
    /// The file without `.yaml`: `core/pod/minimal`.
    pub id: String,
    pub requires: Vec<Value>,
    pub object: Value,
}

/// The objects of all case files below `folder`.
pub(crate) fn objects(folder: &Path) -> Result<Vec<Object>> {
    let mut objects = Vec::new();
    for path in yaml_files(folder)? {
        let id = id_of(folder, &path)?;
        if id.starts_with("life/") {
            continue;
        }
        let file: File = read(&path)?;
        objects.extend(file.object.map(|object| Object {
            id,
            requires: file.requires,
            object,
        }));
    }
    Ok(objects)
}

/// The path of a case file below its folder, without `.yaml`.
fn id_of(folder: &Path, path: &Path) -> Result<String> {
    Ok(path
        .strip_prefix(folder)?
        .with_extension("")
        .display()
        .to_string())
}

/// The object of every `minimal.yaml` below `folder`, with its placeholders.
pub fn least_objects(folder: &Path) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for path in yaml_files(folder)? {
        if stem(&path) == "minimal" {
            objects.extend(read::<File>(&path)?.object);
        }
    }
    Ok(objects)
}

fn add_lives(
    cases: &mut Vec<Case>,
    id: &str,
    file: &File,
    lives: &BTreeMap<String, Life>,
    facts: &Facts,
) -> Result<()> {
    let Some(object) = &file.object else {
        return Ok(());
    };
    let of = |name: &str| object[name].as_str().unwrap_or_default();
    let resource = facts
        .resource_of(of("apiVersion"), of("kind"))
        .with_context(|| format!("no resource keeps {} {}", of("apiVersion"), of("kind")))?;
    for (name, life) in lives {
        let fits = life.verbs.iter().all(|verb| resource.has_verb(verb))
            && life
                .subresource
                .as_ref()
                .is_none_or(|wanted| resource.has_subresource(wanted));
        let chosen = match &file.only {
            Some(only) => only.contains(name),
            None => !file.skip.contains(name),
        };
        if fits && chosen {
            cases.push(Case {
                id: format!("{id}:{name}"),
                requires: file.requires.clone(),
                steps: life.steps.clone(),
                subject: Some(Subject {
                    object: object.clone(),
                    resource: resource.clone(),
                }),
                live_only: life.live_only.clone(),
            });
        }
    }
    Ok(())
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path)?;
    serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(yaml_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
    }

    #[test]
    fn cases_are_read_and_cover_every_stored_kind() {
        let facts = Facts::read(&folder("../machinery/api/facts")).unwrap();
        let cases = read_all(&folder("cases"), &facts).unwrap();
        assert!(cases.len() >= 300, "only {} cases", cases.len());
        let ids: BTreeSet<_> = cases.iter().map(|case| &case.id).collect();
        assert_eq!(ids.len(), cases.len(), "an id is used twice");
        let namespaces: BTreeSet<_> = cases.iter().map(Case::namespace).collect();
        assert_eq!(
            namespaces.len(),
            cases.len(),
            "two cases share a namespace: rename one"
        );
        let stems_of = |resource: &Resource| {
            cases
                .iter()
                .filter(|case| {
                    let subject = case.subject.as_ref().map(|subject| &subject.resource);
                    subject.is_some_and(|it| it.group == resource.group && it.resource == resource.resource)
                })
                .filter_map(|case| case.id.split(':').next()?.rsplit('/').next())
                .collect::<BTreeSet<_>>()
        };
        for resource in facts.resources() {
            if resource.has_verb("create") && resource.has_verb("get") {
                let stems = stems_of(resource);
                assert!(
                    stems.iter().any(|stem| *stem != "minimal"),
                    "{} has no case besides the least: {stems:?}",
                    resource.resource
                );
            }
        }
    }

    #[test]
    fn fingerprint_changes_with_requests_alone() {
        let case = |step: Value, id: &str| Case {
            id: id.to_owned(),
            requires: Vec::new(),
            steps: vec![serde_json::from_value(step).unwrap()],
            subject: None,
            live_only: None,
        };
        let of = |step: Value| case(step, "a:b").fingerprint().unwrap();
        let plain = of(json!({"request": "GET /"}));
        assert_eq!(plain, "ee32a2bcb9fb34c1");
        assert_eq!(
            plain,
            of(json!({"request": "GET /", "compare": true, "ignore": []}))
        );
        assert_ne!(plain, of(json!({"request": "GET /", "body": {}})));
        assert_ne!(plain, of(json!({"request": "GET /", "ignore": ["a"]})));
        let renamed = case(json!({"request": "GET /"}), "c:d").fingerprint().unwrap();
        assert_eq!(plain, renamed);
    }

    #[test]
    fn numbers_in_addresses_of_cases_differ() {
        let facts = Facts::read(&folder("../machinery/api/facts")).unwrap();
        let cases = read_all(&folder("cases"), &facts).unwrap();
        let numbered: Vec<u64> = cases
            .iter()
            .filter(|case| format!("{case:?}").contains("{index}"))
            .map(Case::index)
            .collect();
        let different: BTreeSet<_> = numbered.iter().collect();
        assert!(!numbered.is_empty());
        assert_eq!(different.len(), numbered.len(), "rename a case: {numbered:?}");
    }
}
