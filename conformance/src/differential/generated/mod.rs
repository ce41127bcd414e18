//! Cases that are generated from the facts of the kinds and the objects of `conformance/cases`.
//!
//! An object of a case file is the start of a [`Group`]: [`walk`] finds the fields that its types have and [`values`] the
//! malformed value of each, and a [`Probe`] is one request with one such change: a create, an update, a change of the
//! status. [`requests`] adds, once a kind, requests with malformed parameters, options and patches, and requests of users
//! with fewer rights. All probes of a group share a namespace and are dry runs, so that a probe costs one request
//! ([`run`]). Recordings hold the compact form of an answer alone ([`answer`], [`record`]).

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::case::{self, Case, Step, Subject, hash};
use crate::facts::Facts;

pub(crate) mod answer;
pub(crate) mod record;
mod requests;
mod rights;
pub(crate) mod run;
mod values;
mod walk;

/// Probes that share a namespace and an object.
#[derive(Debug)]
pub struct Group {
    /// Id, namespace, subject and required objects; its steps are none.
    pub(crate) case: Case,
    pub(crate) probes: Vec<Probe>,
}

/// One request and its place in the recording.
#[derive(Debug)]
pub(crate) struct Probe {
    /// `create spec.replicas=negative`.
    pub name: String,
    pub step: Step,
    /// The body before its change; none where the step has one of its own.
    pub base: Base,
    pub edit: Option<Edit>,
}

/// Object that a probe changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// No object: the step's body is sent as it is.
    None,
    /// The object of the case file.
    Object,
    /// The object as the server has stored it.
    Stored,
}

/// Change of one field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Edit {
    /// Members and indices from the root.
    pub path: Vec<String>,
    /// The value to set; none removes the field.
    pub value: Option<Value>,
}

impl Group {
    /// Id of a probe, as in the list of known differences.
    pub(crate) fn id(&self, probe: &Probe) -> String {
        format!("{}:{}", self.case.id, probe.name)
    }

    /// Hash of all requests: answers recorded to others are stale.
    pub(crate) fn fingerprint(&self) -> Result<String> {
        let mut text = self.case.fingerprint()?;
        for probe in &self.probes {
            let edit = probe.edit.as_ref().map(|edit| (&edit.path, &edit.value));
            text.push_str(&serde_json::to_string(&(&probe.name, probe.step.told()?, edit))?);
        }
        Ok(format!("{:016x}", hash(&text)))
    }

    /// Compared probes.
    pub(crate) fn compared(&self) -> impl Iterator<Item = &Probe> {
        self.probes.iter().filter(|probe| probe.step.compare)
    }
}

impl Edit {
    /// Changes this field of a document; absent parents are made, and where a parent is a scalar nothing changes.
    pub(crate) fn apply(&self, document: &mut Value) {
        let Some((last, parents)) = self.path.split_last() else {
            return;
        };
        let place = parents
            .iter()
            .try_fold(document, |place, step| child(place, step));
        match (&self.value, place) {
            (Some(value), Some(place)) => {
                if let Some(place) = child(place, last) {
                    place.clone_from(value);
                }
            }
            (None, Some(Value::Object(members))) => drop(members.remove(last)),
            (None, _) | (_, None) => {}
        }
    }
}

/// A member, made if it is absent, or an item; nothing of scalars.
fn child<'a>(place: &'a mut Value, step: &str) -> Option<&'a mut Value> {
    match place {
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        Value::Object(_) | Value::Null => Some(&mut place[step]),
        _ => None,
    }
}

/// All groups, sorted by id: one for each object of a case file, and one for each kind (`requests`).
pub(crate) fn read_all(folder: &Path, facts: &Facts) -> Result<Vec<Group>> {
    let mut objects = case::objects(folder)?;
    // A field is changed in the first object that has it: those of pods come first, the least object of a kind last.
    objects.sort_by_key(|object| {
        let least = object.id.ends_with("/minimal");
        (!object.id.starts_with("core/pod/"), least, object.id.clone())
    });
    let mut walked = walk::Walked::default();
    let mut groups = Vec::new();
    let mut kinds = BTreeSet::new();
    for object in objects {
        let of = |name: &str| object.object[name].as_str().unwrap_or_default();
        let (api_version, kind) = (of("apiVersion").to_owned(), of("kind").to_owned());
        let resource = facts
            .resource_of(&api_version, &kind)
            .with_context(|| format!("no resource keeps {api_version} {kind}"))?;
        let case = |id: String| Case {
            id,
            requires: object.requires.clone(),
            steps: Vec::new(),
            subject: Some(Subject {
                object: object.object.clone(),
                resource: resource.clone(),
            }),
            live_only: None,
        };
        if resource.has_verb("create") {
            let probes = requests::of_fields(facts, &mut walked, &object.object, resource)?;
            if !probes.is_empty() {
                let case = case(format!("{}:fields", object.id));
                groups.push(Group { case, probes });
            }
        }
        if object.id.ends_with("/minimal") && kinds.insert((api_version, kind)) {
            let id = object.id.trim_end_matches("/minimal");
            groups.push(Group {
                case: case(format!("{id}:options")),
                probes: requests::of_options(&object.object, resource)?,
            });
            let mut case = case(format!("{id}:rights"));
            case.requires.extend(rights::bindings());
            groups.push(Group {
                case,
                probes: requests::of_rights(resource)?,
            });
        }
    }
    groups.sort_by(|a, b| a.case.id.cmp(&b.case.id));
    Ok(groups)
}

#[cfg(test)]
mod tests;
