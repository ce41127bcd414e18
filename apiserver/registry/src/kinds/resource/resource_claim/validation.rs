//! Validation of ResourceClaims and ResourceClaimTemplates.

use crate::kinds::resource::Problems;
use crate::kinds::resource::devices::{
    MAX_REFERENCES, RequestNames, opaque, references, request_names, selectors, tolerations,
};
use crate::kinds::resource::qualified_names::fully_qualified_name;
use crate::shared::validation::{
    Errors, Path, annotations, dns_label, dns_subdomain, immutable, labels, present,
};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;

const MAX_ALTERNATIVES: usize = 8;
const MODES: [&str; 2] = ["All", "ExactCount"];

/// Every problem of a new claim.
pub fn validate(claim: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Problems::default();
    devices(&mut problems, &Path::of("spec"), claim.get("spec"));
    problems.into_list()
}

/// Refuses a change of the spec; upstream declares this rule, so no value is shown.
pub fn validate_update(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if new.get("spec") != old.get("spec") {
        let shown = Shown("null".into());
        errors.invalid(&Path::of("spec"), shown, "field is immutable");
    }
    errors.into_list()
}

/// Every problem of a new template.
pub fn validate_template(template: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Problems::default();
    let spec = template.get("spec");
    let path = Path::of("spec");
    let meta = path.child("metadata");
    let of = |name: &str| spec.and_then(|spec| spec.at(&["metadata", name]));
    labels(&mut problems.seen, &meta.child("labels"), of("labels"));
    annotations(&mut problems.seen, &meta.child("annotations"), of("annotations"));
    let claim = spec.and_then(|spec| spec.get("spec"));
    devices(&mut problems, &path.child("spec"), claim);
    problems.into_list()
}

/// Claims were made of it.
pub fn validate_template_update(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (new, old) = (new.get("spec"), old.get("spec"));
    immutable(&mut errors, &Path::of("spec"), new, old, "field is immutable");
    errors.into_list()
}

fn devices(problems: &mut Problems, spec_path: &Path<'_>, spec: Option<Ref<'_>>) {
    let Some(own) = spec.and_then(|spec| spec.get("devices")) else {
        return;
    };
    let path = spec_path.child("devices");
    let names = request_names(Some(own));
    let list = path.child("requests");
    named(problems, &list, own, "requests", MAX_REFERENCES, request);
    bounded(problems, &path, own, "constraints", |problems, at, own| {
        constraint(problems, at, own, &names);
    });
    bounded(problems, &path, own, "config", |problems, at, own| {
        references(problems, &at.child("requests"), own, &names);
        opaque(problems, at, own);
    });
}

/// A list with a bound, beyond which nothing is looked at.
fn bounded(
    problems: &mut Problems,
    path: &Path<'_>,
    owner: Ref<'_>,
    name: &str,
    look: impl Fn(&mut Problems, &Path<'_>, Ref<'_>),
) {
    let at = path.child(name);
    let count = owner.list(name).len();
    if count > MAX_REFERENCES {
        return problems.declared.too_many(&at, count, MAX_REFERENCES);
    }
    for (index, item) in owner.list(name).enumerate() {
        look(problems, &at.index(index), item);
    }
}

/// A bounded list whose items have names of their own.
fn named(
    problems: &mut Problems,
    path: &Path<'_>,
    owner: Ref<'_>,
    member: &str,
    most: usize,
    look: impl Fn(&mut Problems, &Path<'_>, Ref<'_>),
) {
    let items: Vec<Ref<'_>> = owner.list(member).collect();
    if items.len() > most {
        return problems.declared.too_many(path, items.len(), most);
    }
    for (index, item) in items.iter().enumerate() {
        let name = item.str("name");
        if items[..index].iter().any(|other| other.str("name") == name) {
            let shown = Shown(item.to_json());
            problems.declared.duplicate(&path.index(index), shown);
        }
    }
    for (index, item) in items.iter().enumerate() {
        look(problems, &path.index(index), *item);
    }
}

fn request(problems: &mut Problems, path: &Path<'_>, own: Ref<'_>) {
    dns_label(&mut problems.seen, &path.child("name"), own.str("name"));
    let exactly = present(own, "exactly");
    let alternatives = own.list("firstAvailable").len() > 0;
    match (exactly, alternatives) {
        (None, false) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required";
            problems.seen.required(path, detail);
        }
        (Some(_), true) => {
            let detail =
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            problems.seen.invalid(path, Shown("null".into()), detail);
            let at = path.child("firstAvailable");
            for (index, own) in own.list("firstAvailable").enumerate().take(MAX_ALTERNATIVES) {
                class(&mut problems.declared, &at.index(index), own);
            }
        }
        (Some(exactly), false) => {
            let at = path.child("exactly");
            class(&mut problems.seen, &at, exactly);
            wanted(problems, &at, exactly);
        }
        (None, true) => {
            let at = path.child("firstAvailable");
            named(
                problems,
                &at,
                own,
                "firstAvailable",
                MAX_ALTERNATIVES,
                alternative,
            );
        }
    }
}

fn alternative(problems: &mut Problems, path: &Path<'_>, own: Ref<'_>) {
    dns_label(&mut problems.seen, &path.child("name"), own.str("name"));
    class(&mut problems.declared, path, own);
    wanted(problems, path, own);
}

fn class(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>) {
    let at = path.child("deviceClassName");
    match own.str("deviceClassName") {
        "" => errors.required(&at, ""),
        name => dns_subdomain(errors, &at, name),
    }
}

/// Validates the requested devices and their number.
fn wanted(problems: &mut Problems, path: &Path<'_>, own: Ref<'_>) {
    selectors(problems, &path.child("selectors"), own);
    let count = own.get("count").and_then(Ref::as_i64).unwrap_or(0);
    let at = path.child("count");
    match own.str("allocationMode") {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            problems.seen.invalid(&at, count, detail);
        }
        "ExactCount" if count <= 0 => problems.seen.invalid(&at, count, "must be greater than zero"),
        "All" | "ExactCount" => {}
        other => problems
            .declared
            .not_supported(&path.child("allocationMode"), other, &MODES),
    }
    tolerations(problems, path, own);
}

fn constraint(problems: &mut Problems, path: &Path<'_>, own: Ref<'_>, names: &RequestNames) {
    references(problems, &path.child("requests"), own, names);
    let attributes =
        ["matchAttribute", "distinctAttribute"].map(|name| Some((name, present(own, name)?.as_str()?)));
    if attributes == [None, None] {
        let detail = r#"exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#;
        problems.seen.required(path, detail);
    }
    // Upstream declares the form of both.
    for (name, value) in attributes.into_iter().flatten() {
        fully_qualified_name(&mut problems.declared, &path.child(name), value);
    }
}
