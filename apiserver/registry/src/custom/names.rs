//! Acceptance of a definition's names, and the conditions that report it.

use crate::kinds::apiextensions::custom_resource_definition::approval;
use crate::shared::conditions::{Condition, set_condition};
use machinery_schema::{Ref, Tree};
use std::collections::HashSet;

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

/// A conflict: the condition's reason and message.
pub(super) fn conflict(names: Ref<'_>, taken: &Taken) -> Option<(&'static str, String)> {
    let resource = |name: &str| !name.is_empty() && taken.resources.contains(name);
    let kind = |name: &str| !name.is_empty() && taken.kinds.contains(name);
    let in_use = |name: &str| format!("{name:?} is already in use");
    for (field, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        if resource(names.str(field)) {
            return Some((reason, in_use(names.str(field))));
        }
    }
    let short: Vec<String> = names
        .list("shortNames")
        .filter_map(Ref::as_str)
        .filter(|name| resource(name))
        .map(in_use)
        .collect();
    if !short.is_empty() {
        return Some(("ShortNamesConflict", short.join(", ")));
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        if kind(names.str(field)) {
            return Some((reason, in_use(names.str(field))));
        }
    }
    None
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
    let found = definition
        .at(&["spec", "names"])
        .and_then(|names| conflict(names, taken));
    let say = |definition: &mut Tree, kind, status, reason, message: &str| {
        let said = Condition {
            kind,
            status,
            reason,
            message,
        };
        set_condition(definition, now, said);
    };
    match found {
        Some((reason, message)) => {
            say(definition, "NamesAccepted", "False", reason, &message);
            if !is_true(definition, "Established") {
                let message = "not all names are accepted";
                say(definition, "Established", "False", "NotAccepted", message);
            }
        }
        None => {
            accept(definition);
            let message = "no conflicts found";
            say(definition, "NamesAccepted", "True", "NoConflicts", message);
            let message = "the initial names have been accepted";
            say(definition, "Established", "True", "InitialNamesAccepted", message);
        }
    }
}

fn accept(definition: &mut Tree) {
    let names = definition.at(&["spec", "names"]).map(Ref::to_tree);
    if let Some(names) = names {
        definition.set(&["status".into(), "acceptedNames".into()], names.root());
    }
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
