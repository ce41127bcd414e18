//! Until when a request must be answered: its `timeout` parameter, at most the server's own limit.

use super::refuse;
use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::server::Core;
use apiserver_registry::{RegistryError, TIME_IS_UP};
use futures::future::BoxFuture;
use machinery_schema::leaf::parse_duration;
use std::sync::Arc;
use std::time::Duration;

/// Upstream's bound on a request that changes something.
const MUTATION_BOUND: Duration = Duration::from_secs(34);

pub(crate) struct Deadline(Duration);

impl Deadline {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self(core.config.request_timeout)
    }
}

impl Filter for Deadline {
    fn call(&self, mut exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        if exchange.is_long_running() {
            return next.run(exchange);
        }
        let allowed = match allowed(exchange.request.uri().query(), self.0) {
            Ok(allowed) if exchange.is_mutating() => allowed.min(MUTATION_BOUND),
            Ok(allowed) => allowed,
            Err(error) => return Box::pin(std::future::ready(refuse(&error))),
        };
        let runtime = exchange.context.runtime.clone();
        exchange.context.deadline = Some(runtime.monotonic() + allowed);
        Box::pin(async move {
            match runtime.timeout(allowed, next.run(exchange)).await {
                Ok(response) => response,
                Err(_) => refuse(&RegistryError::Timeout(TIME_IS_UP.to_owned())),
            }
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
