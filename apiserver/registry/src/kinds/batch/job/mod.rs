//! Job: its validation, and the selector by its own uid.

mod columns;
mod defaults;
mod indexes;
mod policies;
pub(crate) mod status;
pub(crate) mod update;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::options::DeleteOptions;
use crate::engine::selectable::Selectable;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::Tree;

pub(crate) static KIND: Kind = Kind::of("batch", "jobs")
    .traits(Traits::COUNTED.orphaning())
    .rules(
        ValidationRules::create(validation::validate)
            .update(update::validate)
            .status(status::validate),
    )
    .warnings(crate::kinds::core::pod::workload_warnings::of_named)
    .prepare_for_create(|_, object| select_own_pods(object))
    .delete_warnings(delete_warnings)
    .default_lines(&[defaults::LINES])
    .defaults(defaults::set)
    .pod_template(crate::kinds::core::pod::template::at(&[
        "spec", "template", "spec",
    ]))
    .columns(columns::cells)
    .selectable(selectable);

fn selectable() -> Vec<Selectable> {
    vec![Selectable {
        label: "status.successful".into(),
        path: vec!["status".into(), "succeeded".into()],
        absent: "0",
        otherwise: None,
    }]
}

/// Warns that, as of old, pods of a deleted job stay; clients rarely mean it.
fn delete_warnings(options: &DeleteOptions) -> Vec<String> {
    if options.propagation.is_some() || options.orphan_dependents.is_some() {
        return Vec::new();
    }
    vec!["child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning".into()]
}

/// The labels of a job's own pods: today's, and those from before they had a prefix.
fn own_labels<'a>(uid: &'a str, name: &'a str) -> [(&'static str, &'a str); 4] {
    [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ]
}

/// A job selects its own pods by its uid, unless it says it does so itself.
fn select_own_pods(object: &mut Tree) {
    let manual = object
        .at(&["spec", "manualSelector"])
        .and_then(machinery_schema::Ref::as_bool);
    if manual == Some(true) {
        return;
    }
    let (uid, name) = (
        crate::engine::metadata::uid(object).to_owned(),
        crate::engine::metadata::name(object).to_owned(),
    );
    for (label, value) in own_labels(&uid, &name) {
        let path = ["spec", "template", "metadata", "labels", label];
        if object.str_at(&path).is_empty() {
            object.set_str(&path, value);
        }
    }
    let own = object
        .at(&["metadata", "labels"])
        .is_none_or(machinery_schema::Ref::is_empty);
    let labels = object
        .at(&["spec", "template", "metadata", "labels"])
        .map(machinery_schema::Ref::to_tree);
    if let Some(labels) = labels.filter(|_| own) {
        object.set(&["metadata".into(), "labels".into()], labels.root());
    }
    let path = [
        "spec",
        "selector",
        "matchLabels",
        "batch.kubernetes.io/controller-uid",
    ];
    if object.str_at(&path).is_empty() {
        object.set_str(&path, &uid);
    }
}
