//! The filters in order, outermost first. A new filter is a file in `filters/` and a row here, with the reason of its place.

use crate::filters::audit::{Audit, BeforeAnswer};
use crate::filters::authentication::Authentication;
use crate::filters::authorization::Authorization;
use crate::filters::body::ReadBody;
use crate::filters::cache_control::CacheControl;
use crate::filters::count::Count;
use crate::filters::deadline::{RequestDeadline, Timeout};
use crate::filters::detach::Detach;
use crate::filters::filter::{HandlerChain, Row};
use crate::filters::head::Head;
use crate::filters::impersonation::Impersonation;
use crate::filters::measure::Measure;
use crate::filters::panic_recovery::PanicRecovery;
use crate::filters::priority_and_fairness::PriorityAndFairness;
use crate::filters::warnings::Warnings;
use crate::filters::websocket::WebSocket;
use crate::state::ServerState;
use std::sync::Arc;

/// The way of a request through a server.
pub(crate) fn chain(core: Arc<ServerState>) -> Arc<HandlerChain> {
    HandlerChain::new(rows(&core), core)
}

fn rows(core: &Arc<ServerState>) -> Vec<Row> {
    vec![
        // Outermost: no answer leaves before its last audit event is written, whichever filter below has made it.
        Row::of(BeforeAnswer::new(core)),
        // Above whatever makes answers, so that all of them are made as for GET.
        Row::of(Head),
        // A panic in any filter below becomes an answer, which those above treat as any other.
        Row::of(PanicRecovery),
        // Follows the request to its end, refusals of every filter below included.
        Row::of(Measure),
        // Answers of refused users are not to be cached either.
        Row::of(CacheControl),
        // Takes the remarks of all that follow.
        Row::of(Warnings),
        // A malformed `timeout` is refused before credentials are looked at, as upstream does.
        Row::of(RequestDeadline::new(core)),
        // Whatever follows needs the user.
        Row::timed(Authentication::new(core), "authentication"),
        // Above impersonation: an event names the requesting user and the one whom he acts as.
        Row::timed(Audit::new(core), "audit"),
        Row::timed(Impersonation::new(core), "constrainedimpersonation"),
        // Below audit, which records a request that took too long; above the first filter that lets a request wait.
        Row::of(Timeout),
        // Below impersonation, since a flow is that of the user acted as; above authorization, whose cost it bounds.
        Row::timed(PriorityAndFairness::new(core), "priorityandfairness"),
        Row::timed(Authorization::new(core), "authorization"),
        // What a filter above refuses is not counted as handled, as upstream does.
        Row::of(Count::new(core)),
        // No body is read before its sender is authorized. Waits for a slow body without seats.
        Row::of(ReadBody::new(core)),
        // Below the body: from its first write on a mutation goes on without its client.
        Row::of(Detach::new(core)),
        // Innermost: translates the stream that a handler answers with.
        Row::of(WebSocket::new(core)),
    ]
}
