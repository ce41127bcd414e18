//! Counts of what the plugin decides, with upstream's labels.

use crate::{Operation, Request};
use machinery_pod_security::{Level, LevelVersion, Mode, Version};
use std::borrow::Cow;
use std::fmt;

/// Takes the labels of each event; the server counts them.
pub trait Recorder: fmt::Debug + Send + Sync {
    /// A policy was evaluated: `decision`, `policy_level`, `policy_version`, `mode`, `request_operation`, `resource` and
    /// `subresource`.
    fn evaluated(&self, labels: [&str; 7]);

    /// A request is exempt: `request_operation`, `resource` and `subresource`.
    fn exempted(&self, labels: [&str; 3]);

    /// A request could not be evaluated, or not as its namespace says: `fatal`, `request_operation`, `resource` and
    /// `subresource`.
    fn failed(&self, labels: [&str; 4]);
}

/// A server that counts nothing.
#[derive(Debug, Clone, Copy)]
pub struct Uncounted;

impl Recorder for Uncounted {
    fn evaluated(&self, _: [&str; 7]) {}

    fn exempted(&self, _: [&str; 3]) {}

    fn failed(&self, _: [&str; 4]) {}
}

/// The minor version of the API that is served: policies of later ones are of the future.
const API_MINOR: u64 = 37;

/// `request_operation`, `resource` and `subresource` of a request.
pub(super) fn subject<'a>(request: &Request<'a>) -> [&'a str; 3] {
    let operation = match request.operation {
        Operation::Create => "create",
        Operation::Update => "update",
        Operation::Delete => "delete",
        Operation::Connect => "connect",
    };
    let resource = match (request.group, request.resource) {
        ("", "pods") => "pod",
        ("", "namespaces") => "namespace",
        _ => "controller",
    };
    [operation, resource, request.subresource]
}

pub(super) fn record_evaluation(
    recorder: &dyn Recorder,
    request: &Request<'_>,
    allowed: bool,
    policy: LevelVersion,
    mode: Mode,
) {
    let version: Cow<'static, str> = match (policy.level, policy.version) {
        (Level::Privileged, _) | (_, Version::Latest) => "latest".into(),
        (_, Version::Minor(minor)) if minor > API_MINOR => "future".into(),
        (_, version) => version.to_string().into(),
    };
    let decision = if allowed { "allow" } else { "deny" };
    let [operation, resource, subresource] = subject(request);
    let level = policy.level.as_str();
    recorder.evaluated([
        decision,
        level,
        &version,
        mode.as_str(),
        operation,
        resource,
        subresource,
    ]);
}

pub(super) fn record_failure(recorder: &dyn Recorder, request: &Request<'_>, fatal: bool) {
    let [operation, resource, subresource] = subject(request);
    let fatal = if fatal { "true" } else { "false" };
    recorder.failed([fatal, operation, resource, subresource]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_minor_is_that_of_the_release() {
        let release = machinery_meta::version::KUBERNETES;
        assert!(release.starts_with(&format!("v1.{API_MINOR}.")), "{release}");
    }
}
