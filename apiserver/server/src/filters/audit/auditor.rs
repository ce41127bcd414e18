//! Policy, back ends and metrics of audit.

use super::backend::Written;
use super::event::AuditEvent;
use super::form::Event;
use super::log::{AuditLog, AuditLogConfig};
use super::policy::{Decision, Level, Policy, PolicyError, Stage};
use super::truncate::{self, AuditTruncateConfig};
use super::webhook::AuditWebhook;
use crate::exchange::{RequestExchange, Response};
use crate::metrics::AuditMetrics;
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::Arc;

/// Policy and back ends.
#[derive(Debug)]
pub(crate) struct Auditor {
    policy: Policy,
    log: Option<AuditLog>,
    webhook: Option<AuditWebhook>,
    pub(super) metrics: AuditMetrics,
}

impl Auditor {
    /// Opens the auditor. Without a policy file everything is recorded at level `Metadata`.
    pub(crate) fn open(
        log: Option<AuditLogConfig>,
        webhook: Option<AuditWebhook>,
        policy: Option<&[u8]>,
        runtime: &Runtime,
        metrics: AuditMetrics,
    ) -> Result<Self, PolicyError> {
        let open = |log| AuditLog::open(log, runtime, metrics.errors());
        Ok(Self {
            policy: policy.map_or_else(|| Ok(Policy::metadata()), Policy::parse)?,
            log: log.map(open).transpose()?,
            webhook,
            metrics,
        })
    }

    /// Resolves when all events so far are written and sent, or could not be.
    pub(crate) async fn flush(&self) {
        let log = async {
            if let Some(log) = &self.log {
                log.flush().await;
            }
        };
        let webhook = async {
            if let Some(webhook) = &self.webhook {
                webhook.flush().await;
            }
        };
        futures::join!(log, webhook);
    }

    /// Events that the webhook was not sent so far.
    pub(crate) fn unsent(&self) -> usize {
        self.webhook.as_ref().map_or(0, AuditWebhook::unsent)
    }

    /// Reports whether lines can be written, as far as is known; `None` without a log.
    pub(crate) fn is_written(&self) -> Option<bool> {
        self.log.as_ref().map(AuditLog::is_written)
    }

    /// Resolves when a further request may begin.
    pub(super) async fn wait_for_capacity(&self) {
        if let Some(log) = &self.log {
            log.wait_for_capacity().await;
        }
        if let Some(webhook) = &self.webhook {
            webhook.wait_for_capacity().await;
        }
    }

    /// Reports whether so much waits that an event is to go without objects.
    pub(super) fn is_behind(&self) -> bool {
        self.log.as_ref().is_some_and(AuditLog::is_behind)
            || self.webhook.as_ref().is_some_and(AuditWebhook::is_behind)
    }

    /// The event of a request that is refused before its user is known, written with its answer. Nothing is written where
    /// the policy says so.
    pub(crate) async fn refused_early(self: &Arc<Self>, exchange: &RequestExchange, answer: &Response) {
        let decision = self.decide(None, exchange);
        if decision.level == Level::None {
            return;
        }
        self.wait_for_capacity().await;
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

    /// Hands an event to the back ends; `None` of one without JSON.
    pub(super) fn write(&self, event: &Event<'_>) -> Option<Written> {
        let line = event.line()?;
        self.metrics.written();
        let sent = self.webhook.as_ref().and_then(|webhook| {
            let own = self.fit(webhook.truncate(), &line, event)?;
            Some(webhook.write(&own, &event.share()))
        });
        let logged = self.log.as_ref().and_then(|log| {
            let own = match log.truncate() {
                Some(_) => self.fit(log.truncate(), &line, event)?.into_owned(),
                None => line,
            };
            Some(log.write(own))
        });
        Some(sent.unwrap_or_default().and(logged.unwrap_or_default()))
    }

    /// The event's line within the bounds of a back end, where there are any; `None` of one that is too large, which is counted.
    fn fit<'l>(
        &self,
        bounds: Option<&AuditTruncateConfig>,
        line: &'l str,
        event: &Event<'_>,
    ) -> Option<Cow<'l, str>> {
        let Some(bounds) = bounds else {
            return Some(line.into());
        };
        let fitting = bounds.fit(line, event);
        if fitting.is_none() {
            let errors = self.metrics.errors();
            errors.with_label_values(&[truncate::PLUGIN]).inc();
        }
        fitting
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
