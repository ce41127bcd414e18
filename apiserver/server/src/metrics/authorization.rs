//! Decisions of authorizers, under upstream's name.

use apiserver_auth::authz::AuthorizerChain;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, Opts};

/// Reads [`AuthorizerChain::decisions`] at each request for metrics.
pub(crate) struct DecisionsCollector {
    authorizers: AuthorizerChain,
    decisions: IntCounterVec,
}

impl DecisionsCollector {
    pub(crate) fn new(authorizers: AuthorizerChain) -> Result<Self, prometheus::Error> {
        let decisions = Opts::new(
            "apiserver_authorization_decisions_total",
            "[ALPHA] Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.",
        );
        Ok(Self {
            authorizers,
            decisions: IntCounterVec::new(decisions, &["type", "name", "decision"])?,
        })
    }
}

impl Collector for DecisionsCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.decisions.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for own in self.authorizers.decisions() {
            for (decision, count) in [("allowed", own.allowed), ("denied", own.denied)] {
                // As upstream, there is none before it is first made.
                if count > 0 {
                    let counter = self.decisions.with_label_values(&[own.mode, &own.name, decision]);
                    counter.inc_by(count.saturating_sub(counter.get()));
                }
            }
        }
        self.decisions.collect()
    }
}
