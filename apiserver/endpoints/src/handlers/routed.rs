//! Routed requests: only requests that have a route are counted under their resource.

use super::{check_scope, connect};
use crate::request_info::RequestInfo;
use apiserver_registry::{ResourceRow, SubresourceRole, Verb};
use http::Method;

/// Reports whether scope, verb and subresource of a request are served by the row of its resource.
pub fn is_routed(row: &ResourceRow, info: &RequestInfo, method: &Method) -> bool {
    let is_watched_by_path = info.verb == "watch" && *method != Method::GET;
    if check_scope(row, info).is_err() || is_watched_by_path {
        return false;
    }
    let verb = Verb::parse(&info.verb);
    if !info.subresource.is_empty() {
        return row
            .subresource(&info.subresource)
            .is_some_and(|sub| match sub.role {
                SubresourceRole::Connect | SubresourceRole::Log => connect::connects(sub, info, method),
                _ => info.parts.len() <= 3 && verb.is_some_and(|verb| sub.verbs.has(verb)),
            });
    }
    let is_named = info.parts.len() > 1;
    (*method != Method::HEAD || row.custom && info.verb != "watch")
        && verb.is_some_and(|verb| {
            let is_placed = match verb {
                Verb::Create => !is_named || row.custom,
                Verb::Update | Verb::Patch | Verb::Get | Verb::Delete => is_named,
                _ => true,
            };
            is_placed && row.verbs.has(verb)
        })
}
