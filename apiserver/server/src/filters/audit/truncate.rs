//! Bounds of one event, as upstream's truncating back end has them (k8s.io/apiserver/plugin/pkg/audit/truncate): an event beyond goes
//! without its objects, and one that is too large even so does not go at all.

use super::form::Event;
use super::policy::Level;
use std::borrow::Cow;

/// Annotation of an event without its objects.
pub(super) const TRUNCATED: &str = "audit.k8s.io/truncated";
/// Upstream's name of what failed.
pub(super) const PLUGIN: &str = "truncate";

/// `--audit-*-truncate-*` of one back end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditTruncateConfig {
    /// Bytes of one event.
    pub max_event_size: usize,
    /// Bytes of the events that are sent together.
    pub max_batch_size: usize,
}

impl Default for AuditTruncateConfig {
    /// Upstream's.
    fn default() -> Self {
        Self {
            max_event_size: 100 << 10,
            max_batch_size: 10 << 20,
        }
    }
}

impl AuditTruncateConfig {
    /// The problem of the flags of this back end, in upstream's words.
    pub(super) fn problem(&self, plugin: &str) -> Option<String> {
        let (event, batch) = (self.max_event_size, self.max_batch_size);
        if event == 0 {
            return Some(format!(
                "invalid audit truncate {plugin} max event size {event}, must be a positive number"
            ));
        }
        (batch < event).then(|| {
            format!("invalid audit truncate {plugin} max batch size {batch}, must be greater than max event size ({event})")
        })
    }

    /// The event's line, with or without its objects; `None` of an event that does not go.
    pub(super) fn fit<'l>(&self, line: &'l str, event: &Event<'_>) -> Option<Cow<'l, str>> {
        if line.len() <= self.max_event_size {
            return Some(line.into());
        }
        if event.level < Level::Request {
            return None;
        }
        let bare = without_objects(event)?;
        (bare.len() <= self.max_event_size).then(|| bare.into())
    }
}

/// The line of an event without its objects, which says so.
fn without_objects(event: &Event<'_>) -> Option<String> {
    let mut annotations = event.annotations.clone();
    annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
    let bare = Event {
        request_object: None,
        response_object: None,
        annotations: &annotations,
        ..event.clone()
    };
    bare.line()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::audit::form::User;
    use crate::filters::audit::policy::Stage;
    use machinery_meta::UserInfo;
    use serde_json::value::RawValue;
    use std::collections::BTreeMap;

    /// Upstream's table (truncate_test.go): whether an event goes, and whether without its objects.
    #[test]
    fn truncation_leaves_objects_out_and_then_the_event() {
        let bounds = AuditTruncateConfig {
            max_batch_size: 4 << 20,
            ..AuditTruncateConfig::default()
        };
        let large = "A".repeat(bounds.max_event_size);
        let body = RawValue::from_string(format!("{large:?}")).unwrap();
        let long = BTreeMap::from([("key".to_owned(), large)]);
        let (user, none) = (UserInfo::default(), BTreeMap::new());
        let event = |level, object, annotations| Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level,
            audit_id: "",
            stage: Stage::ResponseComplete,
            request_uri: "",
            verb: "",
            user: User::of(&user),
            impersonated_user: None,
            authentication_metadata: None,
            source_ips: &[],
            user_agent: "",
            object_ref: None,
            response_status: None,
            request_object: object,
            response_object: object,
            request_received_timestamp: String::new(),
            stage_timestamp: String::new(),
            annotations,
        };
        let check = |event: &Event<'_>, expected: Option<bool>| {
            let line = event.line().unwrap();
            let found = bounds.fit(&line, event).map(|own| own.contains(TRUNCATED));
            assert_eq!(found, expected, "{:?}", event.level);
            let found = bounds.fit(&line, event);
            assert!(found.is_none_or(|own| own.ends_with("}\n") && own.len() <= bounds.max_event_size));
        };
        check(&event(Level::Metadata, None, &none), Some(false));
        check(&event(Level::Request, Some(&body), &none), Some(true));
        check(&event(Level::Metadata, None, &long), None);
        check(&event(Level::Request, Some(&body), &long), None);
    }
}
