//! `addedAffinity` of NodeAffinityArgs, field by field: one that upstream does not know is refused.

use super::document::{Document, Object};
use crate::object::{NodeAffinity, NodeSelector, NodeSelectorTerm, PreferredSchedulingTerm, Requirement};
use machinery_meta::FieldPath;
use serde_json::Value;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn read(document: &mut Document, mut own: Object<'_>) -> NodeAffinity {
    let path = own.path(REQUIRED);
    let required = own.take(REQUIRED).map(|value| selector(document, &path, value));
    let path = own.path(PREFERRED);
    let mut preferred = Vec::new();
    for (at, item) in own.list(document, PREFERRED).iter().enumerate() {
        let mut object = document.object(&path.index(at), item);
        let weight = object.integer(document, "weight", 0);
        let preference = object.object(document, "preference");
        preferred.push(PreferredSchedulingTerm {
            // One beyond 32 bits is refused as any other that is too large.
            weight: i32::try_from(weight).unwrap_or(i32::MAX),
            preference: term(document, preference),
        });
        object.end(document);
    }
    own.end(document);
    NodeAffinity { required, preferred }
}

fn selector(document: &mut Document, path: &FieldPath, value: &Value) -> NodeSelector {
    let mut own = document.object(path, value);
    let path = own.path("nodeSelectorTerms");
    let mut node_selector_terms = Vec::new();
    for (at, item) in own.list(document, "nodeSelectorTerms").iter().enumerate() {
        let object = document.object(&path.index(at), item);
        node_selector_terms.push(term(document, object));
    }
    own.end(document);
    NodeSelector { node_selector_terms }
}

fn term(document: &mut Document, mut own: Object<'_>) -> NodeSelectorTerm {
    let term = NodeSelectorTerm {
        match_expressions: requirements(document, &mut own, "matchExpressions"),
        match_fields: requirements(document, &mut own, "matchFields"),
    };
    own.end(document);
    term
}

fn requirements(document: &mut Document, own: &mut Object<'_>, name: &'static str) -> Vec<Requirement> {
    let path = own.path(name);
    let mut all = Vec::new();
    for (at, item) in own.list(document, name).iter().enumerate() {
        let mut object = document.object(&path.index(at), item);
        let mut values = object.strings(document, "values");
        values.sort_unstable();
        all.push(Requirement {
            key: object.string(document, "key"),
            operator: object.string(document, "operator"),
            values,
        });
        object.end(document);
    }
    all
}
