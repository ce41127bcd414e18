//! The record of a `Scale`: of its object's owners those of the replicas, and back.
//!
//! Upstream: `scalehandler.go`. An entry of an update is known by its version, and that of a scale is another one
//! than its object's: each write of a scale moves the replicas out of such entries into one of their own, without a time.

use super::entries::{self, Entry, Key};
use super::fields::Fields;
use super::{Subject, record};
use crate::engine::row::{ResourceRow, ScalePaths, SubresourceRole};
use machinery_schema::Tree;
use machinery_schema::apply::FieldSet;
use std::collections::{HashMap, HashSet};

const API_VERSION: &str = "autoscaling/v1";
const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// Puts the owners of its object's replicas into a scale.
pub fn to_scale(parent: Subject<'_>, window: Subject<'_>, object: &Tree, scale: &mut Tree) {
    let owners = entries::read(record(object)).unwrap_or_default();
    let owners = owners.into_iter().filter(|entry| {
        let path = replicas_in(parent, &entry.api_version).flatten();
        path.is_some_and(|path| entry.fields.set().contains(&names(&path)))
    });
    let owners = owners.map(|entry| Entry {
        api_version: API_VERSION.to_owned(),
        fields: Fields::Set(FieldSet::of(&REPLICAS)),
        ..entry
    });
    put(window, scale, owners.collect());
}

/// Puts the owners of its replicas, as its scale has them, into an object.
pub fn from_scale(parent: Subject<'_>, scale: &Tree, object: &mut Tree) {
    let former = entries::read(record(object)).unwrap_or_default();
    let scaled = entries::read(record(scale)).unwrap_or_default();
    let Some(Some(own_path)) = replicas_in(parent, &parent.api_version()) else {
        return;
    };
    let times: HashMap<Key<'_>, &str> = former
        .iter()
        .map(|entry| (entry.key(), entry.time.as_str()))
        .collect();
    let in_scale: HashSet<Key<'_>> = scaled.iter().map(Entry::key).collect();
    let mut kept: HashSet<Key<'_>> = HashSet::new();
    let mut owners = Vec::new();
    for entry in &former {
        let Some(path) = replicas_in(parent, &entry.api_version) else {
            continue;
        };
        let path = path.filter(|path| entry.fields.set().contains(&names(path)));
        let mut own = entry.clone();
        if let Some(path) = path {
            if in_scale.contains(&entry.key()) {
                kept.insert(entry.key());
            } else {
                own.fields = Fields::Set(own.fields.set().difference(&FieldSet::of(&names(&path))));
            }
        }
        if !own.fields.is_empty() {
            owners.push(own);
        }
    }
    let moved = scaled
        .iter()
        .filter(|entry| !kept.contains(&entry.key()) && entry.fields.set().contains(&REPLICAS));
    owners.extend(moved.map(|entry| Entry {
        time: times.get(&entry.key()).copied().unwrap_or_default().to_owned(),
        api_version: parent.api_version(),
        fields: Fields::Set(FieldSet::of(&names(&own_path))),
        ..entry.clone()
    }));
    put(parent, object, owners);
}

/// Upstream takes a record through free-form JSON on its way between a scale and its object.
fn put(subject: Subject<'_>, object: &mut Tree, owners: Vec<Entry>) {
    // Too large a record is none, as with every update.
    entries::store(subject.in_free_form(), object, owners).unwrap_or_default();
}

fn names(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// The replicas in a version: `None` for a version that is not served, nothing in it for one without a scale.
fn replicas_in(parent: Subject<'_>, api_version: &str) -> Option<Option<Vec<String>>> {
    let path = |row: &ResourceRow| scale_paths(row).map(|paths| paths.spec_replicas.clone());
    if api_version == parent.api_version() {
        return parent.own_row().map(path);
    }
    parent.other_row(api_version).map(|row| path(&row))
}

fn scale_paths(row: &ResourceRow) -> Option<&ScalePaths> {
    row.subresources.iter().find_map(|sub| match &sub.role {
        SubresourceRole::Scale(paths) => Some(paths),
        _ => None,
    })
}
