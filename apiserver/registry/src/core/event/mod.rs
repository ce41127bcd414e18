//! Event: one stored object, served as core `v1` and as `events.k8s.io/v1`; gone after an hour.

mod conversion;
pub mod validation;

pub(crate) use conversion::EventsConversion;

use crate::context::RequestContext;
use crate::row::Selectable;
use crate::store::deletion::GarbagePolicy;
use crate::strategy::{Strategy, path_segment_problems};
use machinery_meta::FieldError;
use machinery_schema::Ref;
use std::time::Duration;

/// Upstream's `--event-ttl`.
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventStrategy;

impl Strategy for EventStrategy {
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        path_segment_problems(name, prefix)
    }

    fn counts_generation(&self) -> bool {
        false
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }

    fn garbage_policy(&self) -> GarbagePolicy {
        GarbagePolicy::Unsupported
    }

    fn validate(&self, _ctx: &RequestContext, object: Ref<'_>) -> Vec<FieldError> {
        if object.get("regarding").is_some() {
            validation::validate_events(object)
        } else {
            validation::validate_core(object)
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
