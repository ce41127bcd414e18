//! Which names of a definition are accepted, and the conditions that say so.

use machinery_schema::{Ref, Tree, Value};

/// The names in use by other definitions of the same group.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) resources: Vec<String>,
    pub(super) kinds: Vec<String>,
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
    let resource = |name: &str| !name.is_empty() && taken.resources.iter().any(|own| own == name);
    let kind = |name: &str| !name.is_empty() && taken.kinds.iter().any(|own| own == name);
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
    let found = definition
        .at(&["spec", "names"])
        .and_then(|names| conflict(names, taken));
    match found {
        Some((reason, message)) => {
            set_condition(definition, now, ("NamesAccepted", "False"), reason, &message);
            if !is_true(definition, "Established") {
                let message = "not all names are accepted";
                set_condition(definition, now, ("Established", "False"), "NotAccepted", message);
            }
        }
        None => {
            accept(definition);
            set_condition(
                definition,
                now,
                ("NamesAccepted", "True"),
                "NoConflicts",
                "no conflicts found",
            );
            let message = "the initial names have been accepted";
            set_condition(
                definition,
                now,
                ("Established", "True"),
                "InitialNamesAccepted",
                message,
            );
        }
    }
}

fn accept(definition: &mut Tree) {
    let names = definition.at(&["spec", "names"]).map(Ref::to_tree);
    if let Some(names) = names {
        definition.set(&["status".into(), "acceptedNames".into()], names.root());
    }
}

/// Whether a condition is true.
pub(super) fn is_true(definition: &Tree, kind: &str) -> bool {
    let conditions = definition
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"));
    conditions
        .into_iter()
        .any(|condition| condition.str("type") == kind && condition.str("status") == "True")
}

/// Sets a condition; its time moves only when its status does.
pub(crate) fn set_condition(
    definition: &mut Tree,
    now: &str,
    (kind, status): (&str, &str),
    reason: &str,
    message: &str,
) {
    definition.with(&["status"], |mut own| {
        let mut conditions = own.entry("conditions");
        let at = conditions
            .as_ref()
            .items()
            .position(|condition| condition.str("type") == kind);
        let index = at.unwrap_or_else(|| conditions.as_ref().items().len());
        if at.is_none() {
            conditions.push(Value::EmptyMap);
        }
        let Some(mut condition) = conditions.item(index) else {
            return;
        };
        let moved = condition.as_ref().str("status") != status;
        condition.set("type", kind);
        condition.set("status", status);
        if moved {
            condition.set("lastTransitionTime", now);
        }
        condition.set("reason", reason);
        condition.set("message", message);
    });
}
