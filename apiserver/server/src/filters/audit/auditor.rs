//! Policy, log and metrics of audit.

use super::event::AuditEvent;
use super::log::{AuditLog, AuditLogConfig, Written};
use super::policy::{Decision, Level, Policy, PolicyError, Stage};
use crate::exchange::{RequestExchange, Response};
use crate::metrics::AuditMetrics;
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::sync::Arc;

/// Policy and log.
#[derive(Debug)]
pub(crate) struct Auditor {
    policy: Policy,
    pub(super) log: AuditLog,
    pub(super) metrics: AuditMetrics,
}

impl Auditor {
    /// Opens the auditor. Without a policy file everything is logged at level `Metadata`.
    pub(crate) fn open(
        log: AuditLogConfig,
        policy: Option<&[u8]>,
        runtime: &Runtime,
        metrics: AuditMetrics,
    ) -> Result<Self, PolicyError> {
        Ok(Self {
            policy: policy.map_or_else(|| Ok(Policy::metadata()), Policy::parse)?,
            log: AuditLog::open(log, runtime, metrics.errors())?,
            metrics,
        })
    }

    /// Resolves when all events so far are written.
    pub(crate) async fn flush(&self) {
        self.log.flush().await;
    }

    /// Reports whether events can be written, as far as is known.
    pub(crate) fn is_written(&self) -> bool {
        self.log.is_written()
    }

    /// The event of a request that is refused before its user is known, written with its answer. Nothing is written where
    /// the policy says so.
    pub(crate) async fn refused_early(self: &Arc<Self>, exchange: &RequestExchange, answer: &Response) {
        let decision = self.decide(None, exchange);
        if decision.level == Level::None {
            return;
        }
        self.log.wait_for_capacity().await;
        let event = AuditEvent::new(self, decision, exchange);
        event.answered(answer);
        event.write(Stage::ResponseStarted).await;
    }

    /// Decides by the policy, and counts the decision.
    pub(super) fn decide(&self, user: Option<&UserInfo>, exchange: &RequestExchange) -> Decision {
        let decision = self.policy.decide(user, &exchange.info);
        self.metrics.decided(decision.level.as_str());
        decision
    }

    /// Hands a line to the log.
    pub(super) fn write(&self, line: String) -> Written {
        self.metrics.written();
        self.log.write(line)
    }
}

/// The last event of a request on its way to the file.
#[derive(Debug, Clone, Default)]
pub(super) struct LastLine(Arc<Mutex<Option<Written>>>);

impl LastLine {
    pub(super) fn set(&self, written: Written) {
        *self.0.lock() = Some(written);
    }

    pub(super) fn take(&self) -> Option<Written> {
        self.0.lock().take()
    }
}
