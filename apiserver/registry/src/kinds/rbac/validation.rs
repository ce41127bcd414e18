//! Validation of roles and bindings (upstream's `pkg/apis/rbac/validation`).

use crate::shared::validation::{Errors, Path, label_selector, parse_label_selector};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_meta::syntax;
use machinery_schema::Ref;
use machinery_schema::leaf::go_quote;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Every problem of a Role.
pub fn validate_role(role: Ref<'_>) -> Vec<FieldError> {
    rules(role, true)
}

/// Every problem of a ClusterRole.
pub fn validate_cluster_role(role: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("aggregationRule");
    if let Some(aggregation) = role.get("aggregationRule") {
        let list = path.child("clusterRoleSelectors");
        if aggregation.list("clusterRoleSelectors").len() == 0 {
            errors.required(
                &list,
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            );
        }
        for (index, selector) in aggregation.list("clusterRoleSelectors").enumerate() {
            let at = list.index(index);
            label_selector(&mut errors, &at, selector);
            if parse_label_selector(Some(selector)).is_none() {
                // Upstream shows what it has made of the selector, which is nothing.
                errors.invalid(&at, Shown("null".to_owned()), "invalid label selector.");
            }
        }
    }
    let mut all = rules(role, false);
    all.extend(errors.into_list());
    all
}

fn rules(role: Ref<'_>, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Errors::new();
    // Upstream declares this one, so that it comes last.
    let mut declared = Errors::new();
    let path = Path::of("rules");
    for (index, rule) in role.list("rules").enumerate() {
        let at = path.index(index);
        if rule.list("verbs").len() == 0 {
            declared.required(&at.child("verbs"), "");
        }
        policy_rule(&mut errors, &at, rule, namespaced);
    }
    let mut all = errors.into_list();
    all.extend(declared.into_list());
    all
}

fn policy_rule(errors: &mut Errors, path: &Path<'_>, rule: Ref<'_>, namespaced: bool) {
    let count = |name| rule.list(name).len();
    if count("nonResourceURLs") > 0 {
        let at = path.child("nonResourceURLs");
        let shown = || Shown(rule.get("nonResourceURLs").map(Ref::to_json).unwrap_or_default());
        if namespaced {
            errors.invalid(&at, shown(), "namespaced rules cannot apply to non-resource URLs");
        }
        if count("apiGroups") + count("resources") + count("resourceNames") > 0 {
            errors.invalid(
                &at,
                shown(),
                "rules cannot apply to both regular resources and non-resource URLs",
            );
        }
        return;
    }
    if count("apiGroups") == 0 {
        errors.required(
            &path.child("apiGroups"),
            "resource rules must supply at least one api group",
        );
    }
    if count("resources") == 0 {
        errors.required(
            &path.child("resources"),
            "resource rules must supply at least one resource",
        );
    }
}

/// Every problem of a RoleBinding or ClusterRoleBinding.
pub fn validate_binding(binding: Ref<'_>, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("roleRef");
    let role = binding.get("roleRef");
    let text = |name| role.map_or("", |role| role.str(name));
    if text("apiGroup") != GROUP {
        errors.not_supported(&path.child("apiGroup"), text("apiGroup"), &[GROUP]);
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&text("kind")) {
        errors.not_supported(&path.child("kind"), text("kind"), kinds);
    }
    if text("name").is_empty() {
        errors.required(&path.child("name"), "");
    } else {
        errors.all_invalid(
            &path.child("name"),
            text("name"),
            syntax::path_segment_name(text("name")),
        );
    }
    let subjects = Path::of("subjects");
    // Upstream declares that subjects have names, so that it comes last.
    let mut declared = Errors::new();
    for (index, subject) in binding.list("subjects").enumerate() {
        let at = subjects.index(index);
        if subject.str("name").is_empty() {
            declared.required(&at.child("name"), "");
        }
        validate_subject(&mut errors, &at, subject, namespaced);
    }
    errors.extend(declared);
    errors.into_list()
}

/// Every problem of a changed binding: what it grants stays.
pub fn validate_binding_update(binding: Ref<'_>, old: Ref<'_>, namespaced: bool) -> Vec<FieldError> {
    let mut all = validate_binding(binding, namespaced);
    let mut errors = Errors::new();
    let shown = |binding: Ref<'_>| {
        let part = |name| go_quote(binding.str_at(&["roleRef", name]));
        // As Go has it inside, where its fields have no other names.
        format!(
            "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
            part("apiGroup"),
            part("kind"),
            part("name")
        )
    };
    if shown(binding) != shown(old) {
        errors.invalid(&Path::of("roleRef"), Shown(shown(binding)), "field is immutable");
    }
    all.extend(errors.into_list());
    all
}

fn validate_subject(errors: &mut Errors, path: &Path<'_>, subject: Ref<'_>, namespaced: bool) {
    let (kind, name, group) = (subject.str("kind"), subject.str("name"), subject.str("apiGroup"));
    let expected = match kind {
        "ServiceAccount" => "",
        "User" | "Group" => GROUP,
        other => {
            errors.not_supported(&path.child("kind"), other, &["ServiceAccount", "User", "Group"]);
            return;
        }
    };
    if kind == "ServiceAccount" {
        if !name.is_empty() {
            errors.all_invalid(&path.child("name"), name, syntax::dns1123_subdomain(name));
        }
        if !namespaced && subject.str("namespace").is_empty() {
            errors.required(&path.child("namespace"), "");
        }
    }
    if group != expected {
        errors.not_supported(&path.child("apiGroup"), group, &[expected]);
    }
}
