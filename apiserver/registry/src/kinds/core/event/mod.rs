//! Event: one stored object, served as core `v1` and as `events.k8s.io/v1`; gone after an hour.

pub(crate) mod columns;
mod conversion;
pub mod validation;

pub(crate) use conversion::EventsConversion;

use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::traits::{NameRule, Traits};
use crate::engine::validation_rules::ValidationRules;
use std::time::Duration;

pub(crate) static KIND: Kind = Kind::of("", "events")
    .traits(
        Traits::PLAIN
            .named(NameRule::PathSegment)
            .any_finalizers()
            .put_creates()
            .garbage_unsupported()
            .expiring(EVENT_TTL),
    )
    .rules(ValidationRules::create(validation::validate_core))
    .columns(columns::cells)
    .selectable(selectable);

/// Upstream's `--event-ttl`.
pub(crate) const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// The same fields under the names of both versions; paths are those of the stored (core) form.
pub(crate) fn selectable() -> Vec<Selectable> {
    let mut all = Vec::new();
    for field in [
        "kind",
        "namespace",
        "name",
        "uid",
        "apiVersion",
        "resourceVersion",
        "fieldPath",
    ] {
        for prefix in ["involvedObject", "regarding"] {
            all.push(Selectable {
                label: format!("{prefix}.{field}"),
                path: vec!["involvedObject".into(), field.into()],
                absent: "",
                otherwise: None,
            });
        }
    }
    let renamed = [
        ("reason", "reason"),
        ("type", "type"),
        ("reportingComponent", "reportingComponent"),
        ("reportingController", "reportingComponent"),
    ];
    for (label, path) in renamed {
        let path = path.split('.').map(str::to_owned).collect();
        all.push(Selectable {
            label: label.into(),
            path,
            absent: "",
            otherwise: None,
        });
    }
    // An event written through events.k8s.io has no source of its own.
    all.push(Selectable {
        label: "source".into(),
        path: vec!["source".into(), "component".into()],
        absent: "",
        otherwise: Some(vec!["reportingComponent".into()]),
    });
    all
}
