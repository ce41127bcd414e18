//! EventRateLimit: creates and updates of events above a rate are refused with 429; off unless enabled, as upstream's.
//!
//! The [configuration] sets limits of up to four types. Each limit has [token buckets](buckets) by a key: one for the server, or
//! one for each namespace, user, or source with involved object. An event takes a token of each limit, also where another
//! limit refuses it, as upstream's. Dry runs take none.
//!
//! Upstream limits core/v1 events alone, so that writers of `events.k8s.io/v1` pass; here both count.

mod buckets;
mod configuration;

pub use configuration::{Configuration, ConfigurationError, Limit, LimitType};

use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use buckets::Buckets;
use machinery_schema::Tree;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A monotonic clock; the server gives its runtime's.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Characters of a key that a message shows: sources and names of objects are text of clients.
const SHOWN_CHARACTERS: usize = 256;

/// See the module.
pub struct EventRateLimit {
    limits: Vec<(LimitType, Buckets)>,
    clock: Clock,
}

impl fmt::Debug for EventRateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = self.limits.iter().map(|(limit_type, _)| limit_type);
        f.debug_list().entries(types).finish()
    }
}

impl EventRateLimit {
    /// The plugin with full buckets.
    pub fn new(configuration: &Configuration, clock: Clock) -> Self {
        let limits = configuration.limits().iter();
        Self {
            limits: limits
                .map(|limit| (limit.limit_type, Buckets::new(limit)))
                .collect(),
            clock,
        }
    }
}

#[async_trait]
impl Plugin for EventRateLimit {
    fn name(&self) -> &'static str {
        "EventRateLimit"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update)
            && matches!(request.group, "" | "events.k8s.io")
            && request.kind == "Event"
            && !request.dry_run
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        _old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let now = (self.clock)();
        let mut problems: Vec<String> = Vec::new();
        for (limit_type, buckets) in &self.limits {
            let key = key(*limit_type, request, object);
            if buckets.take(&key, now) {
                continue;
            }
            let shown: String = key.chars().take(SHOWN_CHARACTERS).collect();
            let problem = format!("limit reached on type {limit_type} for key {shown}");
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
        // Go's words for one error and for several.
        let problems = match &problems[..] {
            [] => return Ok(()),
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        Err(AdmissionError::TooManyRequests(format!(
            "Too many requests: {problems}"
        )))
    }
}

fn key<'a>(limit_type: LimitType, request: &Request<'a>, object: Option<&Tree>) -> Cow<'a, str> {
    match limit_type {
        LimitType::Server => Cow::Borrowed(""),
        LimitType::Namespace => Cow::Borrowed(request.namespace),
        LimitType::User => Cow::Borrowed(&request.user.name),
        LimitType::SourceAndObject => Cow::Owned(object.map(source_and_object).unwrap_or_default()),
    }
}

/// Source and involved object, one behind the other as upstream has them. An event of `events.k8s.io` has other names for
/// them, and mostly a reporting controller in the place of a source.
fn source_and_object(event: &Tree) -> String {
    let first = |paths: &[[&str; 2]]| {
        let mut values = paths.iter().map(|path| event.str_at(path));
        values
            .find(|value| !value.is_empty())
            .unwrap_or_default()
            .to_owned()
    };
    let is_new = event.get("regarding").is_some() || event.get("reportingController").is_some();
    let mut key = first(&[["source", "component"], ["deprecatedSource", "component"]]);
    if key.is_empty() && is_new {
        key.push_str(event.str_at(&["reportingController"]));
    }
    key.push_str(&first(&[["source", "host"], ["deprecatedSource", "host"]]));
    for field in ["kind", "namespace", "name", "uid", "apiVersion"] {
        key.push_str(&first(&[["involvedObject", field], ["regarding", field]]));
    }
    key
}

#[cfg(test)]
mod tests;
