//! Memory held by answers that clients have not read.

use apiserver_endpoints::UnreadMemory;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntGaugeVec, Opts};
use std::sync::Arc;

/// Reads [`UnreadMemory::figures`] at each request for metrics.
pub(crate) struct UnreadMemoryCollector {
    memory: Arc<UnreadMemory>,
    held: IntGaugeVec,
    ended: IntCounter,
}

impl UnreadMemoryCollector {
    pub(crate) fn new(memory: Arc<UnreadMemory>) -> Result<Self, prometheus::Error> {
        let held = Opts::new(
            "knarr_unread_held_bytes",
            "Bytes that answers hold until their clients read on, encoded or as stored objects that are referred to.",
        );
        let ended = Opts::new(
            "knarr_answers_ended_unread_total",
            "Answers, watches among them, that have been ended because their clients did not read.",
        );
        Ok(Self {
            memory,
            held: IntGaugeVec::new(held, &["kind"])?,
            ended: IntCounter::with_opts(ended)?,
        })
    }
}

impl Collector for UnreadMemoryCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.held.desc().into_iter().chain(self.ended.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (held, ended) = self.memory.figures();
        for (kind, bytes) in [("encoded", held.encoded), ("referred", held.referred)] {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.held.with_label_values(&[kind]).set(bytes);
        }
        let more = u64::try_from(ended).unwrap_or(u64::MAX);
        self.ended.inc_by(more.saturating_sub(self.ended.get()));
        self.held
            .collect()
            .into_iter()
            .chain(self.ended.collect())
            .collect()
    }
}
