//! Acceptance of a definition's names, and the conditions that report it.

use crate::kinds::apiextensions::custom_resource_definition::approval;
use crate::shared::conditions::{Condition, set_condition};
use machinery_schema::{Ref, Tree};
use std::collections::HashSet;

/// The group of a definition, from its name: `plural.group`, whose plural is one label.
pub(super) fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

/// The names in use by other definitions of the same group.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) resources: HashSet<String>,
    pub(super) kinds: HashSet<String>,
}

impl Taken {
    /// Adds what a definition holds.
    pub(super) fn add(&mut self, accepted: Ref<'_>) {
        self.resources.extend([
            accepted.str("plural").to_owned(),
            accepted.str("singular").to_owned(),
        ]);
        self.resources.extend(
            accepted
                .list("shortNames")
                .filter_map(Ref::as_str)
                .map(str::to_owned),
        );
        self.kinds.extend([
            accepted.str("kind").to_owned(),
            accepted.str("listKind").to_owned(),
        ]);
    }
}

/// A name that is another definition's.
struct NameConflict {
    field: &'static str,
    /// Of the condition.
    reason: &'static str,
    message: String,
}

/// Conflicts of names that a definition does not hold already, in upstream's order.
fn conflicts(names: Ref<'_>, accepted: Option<Ref<'_>>, taken: &Taken) -> Vec<NameConflict> {
    const FIELDS: [(&str, &str); 5] = [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("shortNames", "ShortNamesConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ];
    let mut found = Vec::new();
    for (field, reason) in FIELDS {
        let used = if field.ends_with("ind") {
            &taken.kinds
        } else {
            &taken.resources
        };
        let of = |own: Ref<'_>| -> Vec<String> {
            let one = own.get(field).and_then(Ref::as_str);
            let all = one.into_iter().chain(own.list(field).filter_map(Ref::as_str));
            all.filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        let held: HashSet<String> = accepted.map(of).unwrap_or_default().into_iter().collect();
        let in_use = of(names)
            .into_iter()
            .filter(|name| !held.contains(name) && used.contains(name));
        let messages: Vec<String> = in_use.map(|name| format!("{name:?} is already in use")).collect();
        let message = match messages.as_slice() {
            [] => continue,
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        found.push(NameConflict {
            field,
            reason,
            message,
        });
    }
    found
}

/// The status a definition should have; `now` for conditions that change.
pub(super) fn settle(definition: &mut Tree, taken: &Taken, now: &str) {
    settle_names(definition, taken, now);
    if let Some(found) = approval::conformance(definition.root()) {
        let condition = Condition {
            kind: "KubernetesAPIApprovalPolicyConformant",
            status: found.status,
            reason: found.reason,
            message: &found.message,
        };
        set_condition(definition, now, condition);
    }
}

fn settle_names(definition: &mut Tree, taken: &Taken, now: &str) {
    let accepted = definition.at(&["status", "acceptedNames"]);
    let found = match definition.at(&["spec", "names"]) {
        Some(names) => conflicts(names, accepted, taken),
        None => Vec::new(),
    };
    accept(definition, &found);
    let say = |definition: &mut Tree, kind, status, reason, message: &str| {
        let said = Condition {
            kind,
            status,
            reason,
            message,
        };
        set_condition(definition, now, said);
    };
    match found.last() {
        Some(last) => {
            say(definition, "NamesAccepted", "False", last.reason, &last.message);
            if !is_true(definition, "Established") {
                let message = "not all names are accepted";
                say(definition, "Established", "False", "NotAccepted", message);
            }
        }
        None => {
            let message = "no conflicts found";
            say(definition, "NamesAccepted", "True", "NoConflicts", message);
            let message = "the initial names have been accepted";
            say(definition, "Established", "True", "InitialNamesAccepted", message);
        }
    }
}

/// Accepts the names that are free; in the place of others stays what was accepted before.
fn accept(definition: &mut Tree, refused: &[NameConflict]) {
    let Some(mut names) = definition.at(&["spec", "names"]).map(Ref::to_tree) else {
        return;
    };
    let before = definition.at(&["status", "acceptedNames"]).map(Ref::to_tree);
    for NameConflict { field, .. } in refused {
        names.remove(&[field]);
        if let Some(own) = before.as_ref().and_then(|own| own.get(field)) {
            names.set(&[(*field).into()], own);
        }
    }
    definition.set(&["status".into(), "acceptedNames".into()], names.root());
}

/// Reports whether a condition is true.
pub(super) fn is_true(definition: &Tree, kind: &str) -> bool {
    let conditions = definition
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"));
    conditions
        .into_iter()
        .any(|condition| condition.str("type") == kind && condition.str("status") == "True")
}
