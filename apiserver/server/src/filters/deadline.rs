//! Deadline of a request: its `timeout` parameter, at most the server's own limit.
//!
//! [`RequestDeadline`] reads the parameter before the client is authenticated, as upstream does; [`Timeout`] ends
//! what takes longer, within the audit log's sight, and impersonation ends by [`before`].

use super::audit::auditor::Auditor;
use super::filter::{Filter, Next};
use super::{refuse, refuse_request};
use crate::exchange::{RequestExchange, Response};
use crate::state::ServerState;
use apiserver_registry::{RegistryError, TIME_IS_UP};
use futures::future::BoxFuture;
use machinery_runtime::Runtime;
use machinery_schema::leaf::parse_duration;
use std::sync::Arc;
use std::time::Duration;

/// Upstream's bound on a request that changes something.
const MUTATION_BOUND: Duration = Duration::from_secs(34);

pub(crate) struct RequestDeadline {
    limit: Duration,
    auditor: Option<Arc<Auditor>>,
}

impl RequestDeadline {
    pub(crate) fn new(core: &Arc<ServerState>) -> Self {
        Self {
            limit: core.config.request_timeout,
            auditor: core.audit.clone(),
        }
    }
}

impl Filter for RequestDeadline {
    fn call(&self, mut exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        if exchange.is_long_running() {
            return next.run(exchange);
        }
        let error = match allowed(exchange.request.uri().query(), self.limit) {
            Ok(allowed) => {
                let allowed = match exchange.is_mutating() {
                    true => allowed.min(MUTATION_BOUND),
                    false => allowed,
                };
                exchange.context.deadline = Some(exchange.context.runtime.monotonic() + allowed);
                return next.run(exchange);
            }
            Err(error) => error,
        };
        let auditor = self.auditor.clone();
        Box::pin(async move {
            let response = refuse_request(&exchange, &error);
            if let Some(auditor) = auditor {
                auditor.refused_early(&exchange, &response).await;
            }
            response
        })
    }
}

/// The output of a part of a request.
///
/// # Errors
/// The time of the request is up.
pub(super) async fn before<T>(
    deadline: Option<Duration>,
    runtime: &Runtime,
    part: impl Future<Output = T>,
) -> Result<T, RegistryError> {
    let Some(deadline) = deadline else {
        return Ok(part.await);
    };
    let left = deadline.saturating_sub(runtime.monotonic());
    let ended = runtime.timeout(left, part).await;
    ended.map_err(|_| RegistryError::Timeout(TIME_IS_UP.to_owned()))
}

pub(crate) struct Timeout;

impl Filter for Timeout {
    fn call(&self, exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        let deadline = exchange.context.deadline;
        if deadline.is_none() {
            return next.run(exchange);
        }
        let runtime = exchange.context.runtime.clone();
        Box::pin(async move {
            let answered = before(deadline, &runtime, next.run(exchange)).await;
            answered.unwrap_or_else(|error| refuse(&error))
        })
    }
}

fn allowed(query: Option<&str>, limit: Duration) -> Result<Duration, RegistryError> {
    let mut given = query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.strip_prefix("timeout="));
    let Some(text) = given.next().filter(|text| !text.is_empty()) else {
        return Ok(limit);
    };
    let parsed = parse_duration(text).map_err(|error| {
        RegistryError::BadRequest(format!("invalid timeout specified in the request URL - {error}"))
    })?;
    // As upstream, nothing and less is no wish.
    let parsed = Duration::from_nanos(u64::try_from(parsed).unwrap_or(0));
    Ok(if parsed.is_zero() {
        limit
    } else {
        parsed.min(limit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_and_bounded() {
        let limit = Duration::from_secs(60);
        let seconds = |query: &str| allowed(Some(query), limit).map(|d| d.as_secs_f64());
        assert_eq!(seconds("a=b&timeout=1m30s").unwrap(), 60.0);
        assert_eq!(seconds("timeout=1.5s").unwrap(), 1.5);
        assert_eq!(seconds("timeout=0s").unwrap(), 60.0);
        assert_eq!(seconds("").unwrap(), 60.0);
        assert!(seconds("timeout=x").is_err() && seconds("timeout=5").is_err());
    }
}
