//! The objects that every cluster has, upstream's, and how they are kept up to date.
//!
//! A mandatory object is always as it should be. A suggested one is, as long as its annotation `autoupdate-spec` is true; an
//! owner who sets it to false has it alone. Objects that bear the annotation and are no longer suggested are removed.

use super::objects::{CATCH_ALL, EXEMPT, FlowSchema, Metadata, PriorityLevelConfiguration};
use apiserver_registry::FLOW_CONTROL_BOOTSTRAP_OBJECTS;
use serde::de::DeserializeOwned;

pub(crate) const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
pub(crate) const SCHEMAS: &str = "flowschemas";
pub(crate) const LEVELS: &str = "prioritylevelconfigurations";

/// An object as it should be.
#[derive(Debug, Clone)]
pub(crate) struct BootstrapObject {
    pub(crate) plural: &'static str,
    pub(crate) name: String,
    pub(crate) json: &'static str,
}

impl BootstrapObject {
    fn is_mandatory(&self) -> bool {
        is_mandatory(&self.name)
    }
}

/// All of them, levels before the schemas that name them.
pub(crate) fn objects() -> Vec<BootstrapObject> {
    #[derive(serde::Deserialize)]
    struct Head {
        kind: String,
        metadata: Metadata,
    }
    let texts = FLOW_CONTROL_BOOTSTRAP_OBJECTS
        .split("\n\n")
        .map(str::trim)
        .filter(|text| !text.is_empty());
    let mut objects: Vec<BootstrapObject> = texts
        .map(|json| {
            let head: Head = serde_json::from_str(json).expect("the file is well formed");
            BootstrapObject {
                plural: if head.kind == "FlowSchema" {
                    SCHEMAS
                } else {
                    LEVELS
                },
                name: head.metadata.name,
                json,
            }
        })
        .collect();
    objects.sort_by_key(|object| object.plural == SCHEMAS);
    objects
}

fn parsed<T: DeserializeOwned>(plural: &str) -> Vec<T> {
    let own = objects().into_iter().filter(|object| object.plural == plural);
    own.map(|object| serde_json::from_str(object.json).expect("the file is well formed"))
        .collect()
}

#[cfg(test)]
pub(super) fn flow_schemas() -> Vec<FlowSchema> {
    parsed(SCHEMAS)
}

#[cfg(test)]
pub(super) fn priority_levels() -> Vec<PriorityLevelConfiguration> {
    parsed(LEVELS)
}

/// The mandatory schemas, whatever the stored ones say; these give their metadata.
pub(super) fn mandatory_flow_schemas(stored: &[FlowSchema]) -> Vec<FlowSchema> {
    let mut schemas = parsed::<FlowSchema>(SCHEMAS);
    schemas.retain(|schema| is_mandatory(&schema.metadata.name));
    for schema in &mut schemas {
        let own = stored
            .iter()
            .find(|own| own.metadata.name == schema.metadata.name);
        if let Some(own) = own {
            schema.metadata = own.metadata.clone();
        }
    }
    schemas
}

/// The mandatory levels, whatever the stored ones say; these give their metadata, and the exempt one its shares.
pub(super) fn mandatory_priority_levels(
    stored: &[PriorityLevelConfiguration],
) -> Vec<PriorityLevelConfiguration> {
    let mut levels = parsed::<PriorityLevelConfiguration>(LEVELS);
    levels.retain(|level| is_mandatory(&level.metadata.name));
    for level in &mut levels {
        let own = stored.iter().find(|own| own.metadata.name == level.metadata.name);
        match own {
            Some(own) if own.metadata.name == EXEMPT && own.queuing().is_some() => *level = own.clone(),
            Some(own) => level.metadata = own.metadata.clone(),
            None => {}
        }
    }
    levels
}

/// Reports whether the objects of this name are mandatory: always present, with a fixed spec.
pub(super) fn is_mandatory(name: &str) -> bool {
    [EXEMPT, CATCH_ALL].contains(&name)
}

/// The change that a stored object needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Revision {
    /// Its spec is to be the suggested one.
    pub(crate) spec: bool,
    /// Its annotation is to be this.
    pub(crate) annotation: Option<bool>,
}

fn auto_update(metadata: &Metadata) -> Option<bool> {
    // As Go's `ParseBool`.
    match metadata.annotations.get(AUTO_UPDATE)?.as_str() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The difference between a stored object and the bootstrap object.
pub(crate) fn revision(object: &BootstrapObject, stored: &Metadata, same_spec: bool) -> Revision {
    let annotated = auto_update(stored);
    // Without the annotation, what was never changed is still ours.
    let updated = object.is_mandatory() || annotated.unwrap_or(stored.generation == 1);
    Revision {
        spec: updated && !same_spec,
        annotation: Some(updated).filter(|wanted| annotated != Some(*wanted)),
    }
}

/// Reports whether a stored object was suggested once and no longer is.
pub(crate) fn is_unwanted(objects: &[BootstrapObject], plural: &str, stored: &Metadata) -> bool {
    let is_known = objects
        .iter()
        .any(|object| object.plural == plural && object.name == stored.name);
    !is_known && auto_update(stored) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(name: &str, annotation: Option<&str>, generation: i64) -> Metadata {
        let annotations = annotation.map(|value| (AUTO_UPDATE.to_owned(), value.to_owned()));
        Metadata {
            name: name.to_owned(),
            generation,
            annotations: annotations.into_iter().collect(),
            ..Metadata::default()
        }
    }

    #[track_caller]
    fn check(name: &str, stored_as: (Option<&str>, i64, bool), spec: bool, annotation: Option<bool>) {
        let (annotated, generation, same_spec) = stored_as;
        let object = objects().into_iter().find(|object| object.name == name).unwrap();
        let found = revision(&object, &stored(name, annotated, generation), same_spec);
        assert_eq!(found, Revision { spec, annotation });
    }

    /// Cases of upstream's `ensurer/strategy.go` and its tests.
    #[test]
    fn bootstrap_objects_are_kept_as_upstreams() {
        check("exempt", (Some("true"), 1, true), false, None);
        check("exempt", (Some("true"), 2, false), true, None);
        check("exempt", (Some("false"), 2, false), true, Some(true));
        check("exempt", (None, 2, true), false, Some(true));
        check("probes", (Some("true"), 5, false), true, None);
        check("probes", (Some("false"), 5, false), false, None);
        check("probes", (Some("nonsense"), 5, false), false, Some(false));
        check("probes", (None, 1, false), true, Some(true));
        check("probes", (None, 2, false), false, Some(false));
        check("probes", (Some("true"), 1, true), false, None);
    }

    #[test]
    fn bootstrap_objects_of_before_are_removed() {
        let known = objects();
        assert!(is_unwanted(&known, SCHEMAS, &stored("old", Some("true"), 1)));
        assert!(!is_unwanted(&known, SCHEMAS, &stored("old", Some("false"), 1)));
        assert!(!is_unwanted(&known, SCHEMAS, &stored("mine", None, 1)));
        assert!(!is_unwanted(&known, SCHEMAS, &stored("probes", Some("true"), 1)));
        // The name is of one of the other kind.
        assert!(is_unwanted(&known, LEVELS, &stored("probes", Some("true"), 1)));
    }

    #[test]
    fn bootstrap_objects_are_whole() {
        let (levels, schemas) = (priority_levels(), flow_schemas());
        assert_eq!((levels.len(), schemas.len()), (8, 11));
        assert!(levels.iter().all(|level| level.queuing().is_some()));
        for schema in &schemas {
            let level = &schema.spec.priority_level_configuration.name;
            assert!(levels.iter().any(|own| own.metadata.name == *level), "{level}");
        }
    }
}
