//! Validation of FlowSchemas.

use crate::kinds::flowcontrol::mandatory::{EXEMPT, has_fixed_spec};
use crate::shared::validation::{Errors, Path, present};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;
use machinery_schema::leaf::go_quote;

const MAX_PRECEDENCE: i64 = 10_000;
/// The precedence of the schema `exempt` alone; nothing outranks it.
const EXEMPT_PRECEDENCE: i64 = 1;
const ALL: &str = "*";
const METHODS: [&str; 2] = ["ByNamespace", "ByUser"];
const SUBJECT_KINDS: [&str; 3] = ["Group", "ServiceAccount", "User"];
const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

/// Every problem of a FlowSchema.
pub(crate) fn validate(schema: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    let name = schema.str_at(&["metadata", "name"]);
    if let Some(own) = schema.get("spec") {
        spec(&mut errors, &path, own, name);
        if has_fixed_spec("FlowSchema", schema, &[]) == Some(false) {
            let detail = format!("spec of '{name}' must equal the fixed value");
            errors.invalid(&path, Shown(own.to_json()), detail);
        }
    }
    errors.into_list()
}

fn spec(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, name: &str) {
    precedence(errors, &path.child("matchingPrecedence"), spec, name);
    if let Some(method) = present(spec, "distinguisherMethod")
        && !METHODS.contains(&method.str("type"))
    {
        // As Go has it inside, where its fields have no other names.
        let shown = format!("{{\"Type\":{}}}", go_quote(method.str("type")));
        errors.not_supported(&path.child("distinguisherMethod.type"), Shown(shown), &METHODS);
    }
    let level = spec.str_at(&["priorityLevelConfiguration", "name"]);
    let at = path.child("priorityLevelConfiguration.name");
    if level.is_empty() {
        errors.required(&at, "must reference a priority level");
    } else {
        errors.all_invalid(&at, level, syntax::dns1123_subdomain(level));
    }
    let list = path.child("rules");
    for (index, rule) in spec.list("rules").enumerate() {
        rules(errors, &list.index(index), rule);
    }
}

fn precedence(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, name: &str) {
    let precedence = spec.get("matchingPrecedence").and_then(Ref::as_i64).unwrap_or(0);
    if precedence <= 0 {
        errors.invalid(path, precedence, "must be a positive value");
    }
    if precedence > MAX_PRECEDENCE {
        let detail = format!("must not be greater than {MAX_PRECEDENCE}");
        errors.invalid(path, precedence, detail);
    }
    if precedence == EXEMPT_PRECEDENCE && name != EXEMPT {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(path, precedence, detail);
    }
}

fn rules(errors: &mut Errors, path: &Path<'_>, rules: Ref<'_>) {
    let list = path.child("subjects");
    if rules.list("subjects").len() == 0 {
        errors.required(&list, "subjects must contain at least one value");
    }
    for (index, own) in rules.list("subjects").enumerate() {
        subject(errors, &list.index(index), own);
    }
    if rules.list("resourceRules").len() + rules.list("nonResourceRules").len() == 0 {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.required(path, detail);
    }
    let list = path.child("resourceRules");
    for (index, rule) in rules.list("resourceRules").enumerate() {
        resource_rule(errors, &list.index(index), rule);
    }
    let list = path.child("nonResourceRules");
    for (index, rule) in rules.list("nonResourceRules").enumerate() {
        non_resource_rule(errors, &list.index(index), rule);
    }
}

/// A subject has the member of its kind and no other.
fn subject(errors: &mut Errors, path: &Path<'_>, subject: Ref<'_>) {
    const MEMBERS: [(&str, &str); 3] = [
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
        ("Group", "group"),
    ];
    let kind = subject.str("kind");
    let Some((_, member)) = MEMBERS.iter().find(|(own, _)| *own == kind) else {
        return errors.not_supported(&path.child("kind"), kind, &SUBJECT_KINDS);
    };
    let at = path.child(member);
    match present(subject, member) {
        None => {
            let detail = format!("{member} is required when subject kind is '{kind}'");
            errors.required(&at, &detail);
        }
        Some(own) if kind == "ServiceAccount" => service_account(errors, &at, own),
        Some(own) => {
            if own.str("name").is_empty() {
                errors.required(&at.child("name"), "");
            }
        }
    }
    for (other, member) in MEMBERS {
        if other != kind && present(subject, member).is_some() {
            let detail = format!("{member} is forbidden when subject kind is not '{other}'");
            errors.forbidden(&path.child(member), &detail);
        }
    }
}

fn service_account(errors: &mut Errors, path: &Path<'_>, account: Ref<'_>) {
    let (name, namespace) = (account.str("name"), account.str("namespace"));
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else if name != ALL {
        errors.all_invalid(&path.child("name"), name, syntax::dns1123_subdomain(name));
    }
    if namespace.is_empty() {
        let detail = "must specify namespace for service account";
        errors.required(&path.child("namespace"), detail);
    } else {
        errors.all_invalid(
            &path.child("namespace"),
            namespace,
            syntax::dns1123_label(namespace),
        );
    }
}

fn resource_rule(errors: &mut Errors, path: &Path<'_>, rule: Ref<'_>) {
    verbs(errors, path, rule);
    let required = |noun: &str| format!("resource rules must supply at least one {noun}");
    lone_wildcard(
        errors,
        path,
        rule,
        "apiGroups",
        "api groups",
        &required("api group"),
    );
    lone_wildcard(
        errors,
        path,
        rule,
        "resources",
        "resources",
        &required("resource"),
    );
    let is_cluster_scoped = rule.get("clusterScope").and_then(Ref::as_bool) == Some(true);
    if is_cluster_scoped && rule.list("namespaces").len() == 0 {
        return;
    }
    let detail = "resource rules that are not cluster scoped must supply at least one namespace";
    if lone_wildcard(errors, path, rule, "namespaces", "namespaces", detail) {
        return;
    }
    let list = path.child("namespaces");
    for (index, namespace) in texts(rule, "namespaces").enumerate() {
        for problem in syntax::dns1123_label(namespace) {
            let detail = format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
            errors.invalid(&list.index(index), namespace, detail);
        }
    }
}

fn non_resource_rule(errors: &mut Errors, path: &Path<'_>, rule: Ref<'_>) {
    const LIST: &str = "nonResourceURLs";
    verbs(errors, path, rule);
    let detail = "nonResourceURLs must contain at least one value";
    if lone_wildcard(errors, path, rule, LIST, "non-resource URLs", detail) {
        return;
    }
    let list = path.child(LIST);
    for (index, url) in texts(rule, LIST).enumerate() {
        if let Some(problem) = url_problem(url) {
            errors.invalid(&list.index(index), url, problem);
        }
    }
}

fn verbs(errors: &mut Errors, path: &Path<'_>, rule: Ref<'_>) {
    let detail = "verbs must contain at least one value";
    let has_wildcard = lone_wildcard(errors, path, rule, "verbs", "verbs", detail);
    if !has_wildcard && texts(rule, "verbs").any(|verb| !VERBS.contains(&verb)) {
        errors.not_supported(&path.child("verbs"), shown(rule, "verbs"), &VERBS);
    }
}

/// Reports whether a list has the wildcard, which must stand alone; an empty list is a problem too.
fn lone_wildcard(
    errors: &mut Errors,
    path: &Path<'_>,
    rule: Ref<'_>,
    name: &str,
    noun: &str,
    required: &str,
) -> bool {
    let count = rule.list(name).len();
    let has_wildcard = texts(rule, name).any(|own| own == ALL);
    if count == 0 {
        errors.required(&path.child(name), required);
    } else if has_wildcard && count > 1 {
        let detail = format!("if '*' is present, must not specify other {noun}");
        errors.invalid(&path.child(name), shown(rule, name), detail);
    }
    has_wildcard
}

fn texts<'a>(rule: Ref<'a>, name: &str) -> impl Iterator<Item = &'a str> {
    rule.list(name).map(|item| item.as_str().unwrap_or_default())
}

fn shown(rule: Ref<'_>, name: &str) -> Shown {
    Shown(rule.get(name).map(Ref::to_json).unwrap_or_default())
}

/// The wildcard of a path stands for all that is below one.
fn url_problem(url: &str) -> Option<&'static str> {
    let wildcards = url.matches('*').count();
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ if wildcards > 1 || (wildcards == 1 && !url.ends_with("/*")) => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}
