//! Validation of a definition's versions, each for itself and together.

use super::{root_fields, selectable};
use crate::shared::validation::{Errors, present};
use machinery_cel::Rules;
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath, syntax};
use machinery_schema::Ref;
use machinery_schema::structural::{self, Patterns};
use std::cell::RefCell;
use std::collections::HashSet;

const MAX_WARNING_BYTES: usize = 256;
/// Each served version is a resource of its own to discovery, OpenAPI and routes. Upstream has no bound but that of a request,
/// which lets one definition make tens of thousands.
const MAX_VERSIONS: usize = 100;

/// The surroundings of the value that a rule validates.
pub(super) struct RuleScope<'a> {
    pub(super) path: FieldPath,
    /// The schema that upstream keeps beside it.
    pub(super) schema: Option<Ref<'a>>,
    /// Upstream's message if there is no schema.
    pub(super) without_schema: &'static str,
    /// The status is a subresource.
    has_status: bool,
    /// Patterns of all versions together.
    patterns: &'a RefCell<Patterns>,
}

type Rule = fn(Ref<'_>, &RuleScope<'_>, &mut Errors);

/// The members that upstream keeps once when all versions agree: their names in a version and in the spec.
const MEMBERS: [(&str, &str, Rule); 4] = [
    ("schema", "validation", schema),
    ("subresources", "subresources", subresources),
    ("additionalPrinterColumns", "additionalPrinterColumns", columns),
    ("selectableFields", "selectableFields", selectable::validate),
];

fn has_status(version: Ref<'_>) -> bool {
    let status = version.at(&["subresources", "status"]);
    status.is_some_and(|own| !own.is_null())
}

/// Reports whether all versions have the same value of a member.
fn is_shared(spec: Ref<'_>, member: &str) -> bool {
    let mut versions = spec.list("versions").map(|version| version.get(member));
    let first = versions.next();
    versions.all(|own| Some(own) == first)
}

/// Validates each version and the set of versions. `known` is the number that the definition has already and may
/// keep.
pub(super) fn each(
    spec: Ref<'_>,
    path: &FieldPath,
    (patterns, known): (&RefCell<Patterns>, usize),
    problems: &mut Errors,
) {
    let all = path.child("versions");
    let versions = spec.list("versions").count();
    if versions > MAX_VERSIONS.max(known) {
        problems.push(FieldError::too_many(&all, versions, MAX_VERSIONS));
        return;
    }
    let apart = MEMBERS.map(|(member, ..)| !is_shared(spec, member));
    for (at, version) in spec.list("versions").enumerate() {
        if version.at(&["schema", "openAPIV3Schema"]).is_none() {
            let place = all.index(at).child("schema").child("openAPIV3Schema");
            problems.push(FieldError::required(&place, ""));
        }
    }
    for (at, version) in spec.list("versions").enumerate() {
        let path = all.index(at);
        name(version, &path, problems);
        warning(version, &path.child("deprecationWarning"), problems);
        for ((member, _, rule), is_apart) in MEMBERS.into_iter().zip(apart) {
            if let Some(value) = version.get(member).filter(|_| is_apart) {
                let place = RuleScope {
                    path: path.child(member),
                    // The first of the members.
                    schema: version.get("schema").filter(|_| apart[0]),
                    without_schema: "may only be set when `version.schema.openAPIV3Schema` is not included",
                    has_status: has_status(version),
                    patterns,
                };
                rule(value, &place, problems);
            }
        }
    }
    which(spec, path, problems);
}

/// Validates the members that all versions share.
pub(super) fn shared(spec: Ref<'_>, path: &FieldPath, patterns: &RefCell<Patterns>, problems: &mut Errors) {
    let Some(first) = spec.list("versions").next() else {
        return;
    };
    for (member, name, rule) in MEMBERS {
        if let Some(value) = first.get(member).filter(|_| is_shared(spec, member)) {
            let place = RuleScope {
                path: path.child(name),
                schema: first.get("schema").filter(|_| is_shared(spec, "schema")),
                without_schema: "may only be set when validations.schema is included",
                has_status: spec.list("versions").any(has_status),
                patterns,
            };
            rule(value, &place, problems);
        }
    }
}

/// Validates the rules of each version's schema, or of the one that all have.
pub(super) fn rules(object: Ref<'_>, problems: &mut Errors) {
    let Some(spec) = object.get("spec") else { return };
    let shared = is_shared(spec, "schema");
    let path = FieldPath::new("spec");
    for (at, version) in spec.list("versions").enumerate() {
        let place = match shared {
            true => path.child("validation"),
            false => path.child("versions").index(at).child("schema"),
        };
        let schema = version.at(&["schema", "openAPIV3Schema"]).map(Ref::to_json);
        let schema = schema.filter(|own| own.contains("\"x-kubernetes-validations\""));
        let schema = schema.and_then(|own| serde_json::from_str(&own).ok());
        if let Some(rules) = schema.and_then(|own| Rules::compile(&own)) {
            problems.extend(rules.problems(&place.child("openAPIV3Schema")));
        }
        if shared {
            return;
        }
    }
}

fn name(version: Ref<'_>, path: &FieldPath, problems: &mut Errors) {
    let name = version.str("name");
    let wrong = syntax::dns1035_label(name);
    if !wrong.is_empty() {
        problems.push(FieldError::invalid(&path.child("name"), name, wrong.join(",")));
    }
}

/// One of them is what objects are stored as.
fn which(spec: Ref<'_>, path: &FieldPath, problems: &mut Errors) {
    let names: Vec<&str> = spec.list("versions").map(|version| version.str("name")).collect();
    let shown = || Shown(present(spec, "versions").map_or_else(|| "null".into(), Ref::to_json));
    let mut seen = HashSet::new();
    if !names.iter().all(|name| seen.insert(name)) {
        let detail = "must contain unique version names";
        problems.push(FieldError::invalid(&path.child("versions"), shown(), detail));
    }
    let stored = spec
        .list("versions")
        .filter(|own| own.get("storage").and_then(Ref::as_bool) == Some(true));
    if stored.count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        problems.push(FieldError::invalid(&path.child("versions"), shown(), detail));
    }
    // Upstream keeps the first version's name twice.
    let wrong = names.first().map(|name| (*name, syntax::dns1035_label(name)));
    if let Some((name, wrong)) = wrong.filter(|(name, wrong)| !name.is_empty() && !wrong.is_empty()) {
        problems.push(FieldError::invalid(&path.child("version"), name, wrong.join(",")));
    }
}

/// Validates the warning that clients of a deprecated version receive.
fn warning(version: Ref<'_>, path: &FieldPath, problems: &mut Errors) {
    let Some(own) = version.get("deprecationWarning") else {
        return;
    };
    let text = own.as_str().unwrap_or_default();
    let mut wrong = |detail: String| problems.push(FieldError::invalid(path, own, detail));
    if version.get("deprecated").and_then(Ref::as_bool) != Some(true) {
        return wrong("can only be set for deprecated versions".into());
    }
    if text.len() > MAX_WARNING_BYTES {
        wrong(format!("must be <= {MAX_WARNING_BYTES} characters long"));
    }
    if text.is_empty() {
        wrong("must not be an empty string".into());
    }
    let unprintable = |c: char| c.is_control() || (c.is_whitespace() && c != ' ');
    if let Some(at) = text.find(unprintable) {
        let rule = "must only contain printable UTF-8 characters";
        wrong(format!("{rule}; non-printable character found at index {at}"));
    }
}

fn schema(schema: Ref<'_>, place: &RuleScope<'_>, problems: &mut Errors) {
    if let Some(schema) = schema.get("openAPIV3Schema") {
        let path = place.path.child("openAPIV3Schema");
        if place.has_status {
            problems.extend(root_fields::problem(schema, &path));
        }
        let before = problems.len();
        problems.extend(structural::check_structural(
            schema,
            &path,
            &mut place.patterns.borrow_mut(),
        ));
        if problems.len() == before {
            problems.extend(structural::check_defaults(schema, &path));
        }
        problems.extend(structural::check_openapi(schema, &path));
        if problems.len() == before && structural::names_other_schema(schema) {
            let detail = "OpenAPIV3Schema 'schema' is not supported";
            problems.push(FieldError::invalid(&path, "", detail));
        }
    }
}

/// Validates the paths from which `scale` reads its numbers.
fn subresources(subresources: Ref<'_>, place: &RuleScope<'_>, problems: &mut Errors) {
    let Some(scale) = subresources.get("scale") else {
        return;
    };
    let path = place.path.child("scale");
    for (member, below, detail) in [
        (
            "specReplicasPath",
            [".spec."].as_slice(),
            "should be a json path under .spec",
        ),
        (
            "statusReplicasPath",
            &[".status."],
            "should be a json path under .status",
        ),
        (
            "labelSelectorPath",
            &[".spec.", ".status."],
            "should be a json path under either .spec or .status",
        ),
    ] {
        let (path, text) = (path.child(member), scale.str(member));
        match text {
            "" if member == "labelSelectorPath" => {}
            "" => problems.push(FieldError::required(&path, "")),
            text if !text.starts_with('.') => problems.push(simple_path(&path, text)),
            text if below.iter().any(|below| text.starts_with(below)) => {}
            text => problems.push(FieldError::invalid(&path, text, detail)),
        }
    }
}

fn simple_path(path: &FieldPath, text: &str) -> FieldError {
    FieldError::invalid(path, text, "must be a simple json path starting with .")
}

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

fn columns(columns: Ref<'_>, place: &RuleScope<'_>, problems: &mut Errors) {
    for (at, column) in columns.items().enumerate() {
        validate_column(column, &place.path.index(at), problems);
    }
}

fn validate_column(column: Ref<'_>, path: &FieldPath, problems: &mut Errors) {
    if column.str("name").is_empty() {
        problems.push(FieldError::required(&path.child("name"), ""));
    }
    for (name, known) in [("type", COLUMN_TYPES.as_slice()), ("format", &COLUMN_FORMATS)] {
        let (path, value) = (path.child(name), column.str(name));
        let detail = format!("must be one of {}", known.join(","));
        match value {
            "" if name == "type" => problems.push(FieldError::required(&path, detail)),
            "" => {}
            value if known.contains(&value) => {}
            value => problems.push(FieldError::invalid(&path, value, detail)),
        }
    }
    let (place, text) = (path.child("JSONPath"), column.str("jsonPath"));
    if text.is_empty() {
        problems.push(FieldError::required(&place, ""));
    } else if !text.starts_with('.') {
        problems.push(simple_path(&place, text));
    }
}
