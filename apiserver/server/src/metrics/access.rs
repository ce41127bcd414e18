//! Authentication and authorization of requests, and the time that filters take, under upstream's names.

use super::families::{CounterCells, Families, HistogramCells};
use prometheus::core::GenericCounter;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};
use std::sync::Arc;
use std::time::Duration;

type Counters = Arc<CounterCells>;
type Histograms = Arc<HistogramCells>;

/// Filters whose time is counted, by upstream's names.
pub(crate) const FILTERS: [&str; 5] = [
    "authentication",
    "audit",
    "constrainedimpersonation",
    "priorityandfairness",
    "authorization",
];
const FILTER_BUCKETS: [f64; 13] = [
    0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0, 10.0, 15.0, 30.0,
];
const IDENTIFIED: [&str; 3] = ["success", "failure", "error"];
const DECIDED: [&str; 4] = ["allowed", "denied", "no-opinion", "error"];
/// Users that are known by name; every other one is one of the last two.
const USERS: [&str; 7] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
    "email_id",
    "other",
];

/// Outcome of an authentication, by its place in the table of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identified<'a> {
    User(&'a str),
    /// The request had no credentials.
    Nobody,
    /// The credentials are wrong.
    Refused,
}

/// Outcome of an authorization, by its place in the table of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Decided {
    Allowed = 0,
    Denied = 1,
    NoOpinion = 2,
    /// An authorizer failed or had too much under way, and none allowed the request.
    Failed = 3,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct AccessMetrics {
    filters: Histograms,
    users: Counters,
    attempts: Counters,
    identification: Histograms,
    decisions: Counters,
    decision: Histograms,
}

fn doubled() -> Result<Vec<f64>, prometheus::Error> {
    prometheus::exponential_buckets(0.001, 2.0, 15)
}

impl AccessMetrics {
    pub(super) fn new(families: &Families) -> Result<Self, prometheus::Error> {
        let counters = |name: &str, help: &str, label: &str, count| {
            families.cells(IntCounterVec::new(Opts::new(name, help), &[label])?, count)
        };
        let histograms = |name: &str, help: &str, buckets, label: &str, count| {
            let options = HistogramOpts::new(name, help).buckets(buckets);
            families.cells(HistogramVec::new(options, &[label])?, count)
        };
        Ok(Self {
            filters: histograms(
                "apiserver_request_filter_duration_seconds",
                "[ALPHA] Request filter latency distribution in seconds, for each filter type",
                FILTER_BUCKETS.to_vec(),
                "filter",
                FILTERS.len(),
            )?,
            users: counters(
                "authenticated_user_requests",
                "[ALPHA] Counter of authenticated requests broken out by username.",
                "username",
                USERS.len(),
            )?,
            attempts: counters(
                "authentication_attempts",
                "[ALPHA] Counter of authenticated attempts.",
                "result",
                IDENTIFIED.len(),
            )?,
            identification: histograms(
                "authentication_duration_seconds",
                "[ALPHA] Authentication duration in seconds broken out by result.",
                doubled()?,
                "result",
                IDENTIFIED.len(),
            )?,
            decisions: counters(
                "authorization_attempts_total",
                "[ALPHA] Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.",
                "result",
                DECIDED.len(),
            )?,
            decision: histograms(
                "authorization_duration_seconds",
                "[ALPHA] Authorization duration in seconds broken out by result.",
                doubled()?,
                "result",
                DECIDED.len(),
            )?,
        })
    }

    /// Time of a filter, by its place in [`FILTERS`], until it handed the request on or refused it.
    pub(crate) fn filtered(&self, filter: usize, took: Duration) {
        observe(&self.filters, &FILTERS, filter, took);
    }

    pub(crate) fn identified(&self, outcome: Identified<'_>, took: Duration) {
        let result = match outcome {
            Identified::User(name) => {
                increment(&self.users, &USERS, user(name));
                0
            }
            Identified::Nobody => 1,
            Identified::Refused => 2,
        };
        if !matches!(outcome, Identified::User(_)) {
            // The request goes no further.
            self.filtered(0, took);
        }
        increment(&self.attempts, &IDENTIFIED, result);
        observe(&self.identification, &IDENTIFIED, result, took);
    }

    pub(crate) fn decided(&self, outcome: Decided, took: Duration) {
        let result = outcome as usize;
        increment(&self.decisions, &DECIDED, result);
        observe(&self.decision, &DECIDED, result, took);
    }
}

/// Upstream's `compressUsername`: names of users do not become labels.
fn user(name: &str) -> usize {
    let (of_mail, other) = (USERS.len() - 2, USERS.len() - 1);
    match USERS[..of_mail].iter().position(|known| *known == name) {
        Some(known) => known,
        None if name.contains('@') => of_mail,
        None => other,
    }
}

fn increment(counters: &Counters, labels: &[&str], at: usize) {
    counters.with(at, &labels[at..=at], GenericCounter::inc);
}

fn observe(histograms: &Histograms, labels: &[&str], at: usize, took: Duration) {
    histograms.with(at, &labels[at..=at], |own| own.observe(took.as_secs_f64()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authenticated_user_requests_name_few_users() {
        for (name, expected) in [
            ("admin", "admin"),
            (
                "system:serviceaccount:kube-system:default",
                "system:serviceaccount:kube-system:default",
            ),
            ("email_id", "other"),
            ("jane@example.com", "email_id"),
            ("system:anonymous", "other"),
            ("system:serviceaccount:tenant:a", "other"),
        ] {
            assert_eq!(USERS[user(name)], expected, "{name}");
        }
    }
}
