//! Event: one stored object, served as core `v1` and as `events.k8s.io/v1`; gone after an hour.

mod conversion;
pub mod validation;

pub(crate) use conversion::EventsConversion;

use crate::kind::{Kind, NameRule, Traits};
use crate::row::Selectable;
use crate::store::deletion::GarbagePolicy;
use crate::strategy::{Strategy, name_rule, path_segment_problems};
use crate::validation_rules::ValidationRules;
use machinery_meta::syntax;
use std::time::Duration;

pub(crate) static KIND: Kind = Kind::of("", "events").traits(
    Traits::PLAIN
        .named(NameRule::PathSegment)
        .any_finalizers()
        .put_creates()
        .garbage_unsupported(),
);

/// Upstream's `--event-ttl`.
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventStrategy {
    /// Served as core `v1`, which asks less.
    pub(crate) core: bool,
}

impl Strategy for EventStrategy {
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        if self.core {
            path_segment_problems(name, prefix)
        } else {
            name_rule(syntax::dns1123_subdomain, name, prefix)
        }
    }

    fn counts_generation(&self) -> bool {
        false
    }

    fn wants_qualified_finalizers(&self) -> bool {
        !self.core
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }

    fn garbage_policy(&self) -> GarbagePolicy {
        GarbagePolicy::Unsupported
    }

    fn rules(&self) -> ValidationRules {
        if self.core {
            ValidationRules::create(validation::validate_core)
        } else {
            ValidationRules::create(validation::validate_events).update(validation::validate_events_update)
        }
    }

    fn ttl(&self) -> Option<Duration> {
        Some(EVENT_TTL)
    }
}

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
