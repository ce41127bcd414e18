//! One reconcile of an autoscaler: conditions, events and the next size, as upstream's `reconcileAutoscaler` finds them. Pure.

use super::calculator::{Calculator, PodRef, Tolerances};
use super::history::History;
use super::limits::{self, Limited, SCALE_UP_FACTOR, Sizes};
use super::metrics::{Failure, Fetched, Proposal, Replicas, propose};
use super::monitor::Computation;
use super::object::{Autoscaler, MetricStatus, Rules, Spec, Status};
use crate::config::Config;
use crate::views::seconds;
use jiff::{SignedDuration, Timestamp};
use std::cmp::Ordering;
use std::time::Duration;

const ABLE: &str = "AbleToScale";
const ACTIVE: &str = "ScalingActive";
const LIMITED: &str = "ScalingLimited";
const AT_ZERO: &str = "ScaledToZero";
const BELOW: &str = "Current number of replicas below Spec.MinReplicas";
const ABOVE: &str = "Current number of replicas above Spec.MaxReplicas";

/// An event to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Times and parts by which upstream's flags slow an autoscaler down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Settings {
    pub(super) tolerance: f64,
    pub(super) downscale_stabilization: Duration,
    pub(super) cpu_initialization_period: SignedDuration,
    pub(super) initial_readiness_delay: SignedDuration,
    pub(super) scale_up_factor: i32,
}

impl Settings {
    pub(super) fn of(config: &Config) -> Self {
        let signed = |span: Duration| SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
        let own = &config.horizontal_pod_autoscaler;
        Self {
            tolerance: own.tolerance,
            downscale_stabilization: own.downscale_stabilization,
            cpu_initialization_period: signed(own.cpu_initialization_period),
            initial_readiness_delay: signed(own.initial_readiness_delay),
            scale_up_factor: SCALE_UP_FACTOR,
        }
    }
}

/// Pods of the target, and what was fetched for each metric.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) pods: Vec<PodRef>,
    pub(super) fetched: Vec<Result<Fetched, String>>,
    /// Time that each fetch took.
    pub(super) took: Vec<Duration>,
}

/// A selector that cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnusableSelector {
    pub(super) event: &'static str,
    pub(super) condition: &'static str,
    pub(super) message: String,
}

/// Outcome of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// The target gets this size, for this reason.
    Resize(i32, String),
    Rest,
    /// Nothing is known of the size that the target should have.
    Failed(String),
}

/// The look.
#[derive(Debug)]
pub(super) struct Round<'a> {
    pub(super) namespace: &'a str,
    pub(super) generation: i64,
    pub(super) spec: Spec,
    pub(super) status: Status,
    pub(super) notes: Vec<Note>,
    /// Errors of metrics without which the look goes on.
    pub(super) problem: Option<String>,
    pub(super) now: Timestamp,
    /// The monotonic clock.
    pub(super) at: Duration,
    pub(super) settings: Settings,
    /// Metrics that were computed.
    pub(super) computations: Vec<Computation>,
    /// The direction in which the target is resized.
    pub(super) resize: Option<Ordering>,
    /// The autoscaler's own spec is at fault.
    pub(super) unusable_spec: bool,
    replicas: Replicas,
    statuses: Vec<MetricStatus>,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        (namespace, generation): (&'a str, i64),
        autoscaler: Autoscaler,
        settings: Settings,
        (now, at): (Timestamp, Duration),
    ) -> Self {
        Self {
            namespace,
            generation,
            spec: autoscaler.spec,
            status: autoscaler.status,
            notes: Vec::new(),
            problem: None,
            now,
            at,
            settings,
            computations: Vec::new(),
            resize: None,
            unusable_spec: false,
            replicas: Replicas { spec: 0, status: 0 },
            statuses: Vec::new(),
        }
    }

    fn set(&mut self, kind: &str, status: bool, reason: &str, message: impl Into<String>) {
        self.status.set(self.now, kind, status, reason, message);
    }

    pub(super) fn warn(&mut self, reason: &'static str, message: impl Into<String>) {
        self.notes.push(Note {
            warning: true,
            reason,
            message: message.into(),
        });
    }

    /// The target's size could not be read.
    pub(super) fn no_scale(&mut self, error: &str) {
        self.warn("FailedGetScale", error);
        let message = format!("the HPA controller was unable to get the target's current scale: {error}");
        self.set(ABLE, false, "FailedGetScale", message);
    }

    /// Begins with the target's size. `None` where the metrics decide.
    pub(super) fn begin(&mut self, replicas: Replicas, history: &mut History) -> Option<Next> {
        let message = "the HPA controller was able to get the target's current scale";
        self.set(ABLE, true, "SucceededGetScale", message);
        self.replicas = replicas;
        history.begin(replicas.spec, self.at);
        let (least, most) = (self.spec.least(), self.spec.max_replicas);
        match replicas.spec {
            0 => {
                let measures = self.is_at_zero() && (least != 0 || self.spec.has_metrics_without_pods());
                if measures {
                    return None;
                }
                let message = "scaling is disabled since the replica count of the target is zero";
                self.set(ACTIVE, false, "ScalingDisabled", message);
                Some(Next::Rest)
            }
            current if current > most => Some(Next::Resize(most, ABOVE.to_owned())),
            current if current < least => Some(Next::Resize(least, BELOW.to_owned())),
            _ => None,
        }
    }

    /// Reports whether an autoscaler made the target empty.
    fn is_at_zero(&self) -> bool {
        self.status.is(AT_ZERO)
    }

    /// The target's pods cannot be determined.
    pub(super) fn unusable(&mut self, why: UnusableSelector) -> Next {
        let message = match why.event {
            "SelectorRequired" => "the HPA target's scale is missing a selector",
            _ => &why.message,
        };
        self.unusable_spec = why.event != "AmbiguousSelector";
        self.set(ACTIVE, false, why.condition, message);
        self.warn(why.event, why.message.clone());
        self.fail(why.message)
    }

    fn fail(&mut self, error: String) -> Next {
        self.warn("FailedComputeMetricsReplicas", error.clone());
        self.write(self.status.desired_replicas, false);
        Next::Failed(error)
    }

    /// Decides by the metrics.
    pub(super) fn decide(&mut self, measured: Measured, history: &mut History) -> Next {
        let proposal = match self.compute(measured) {
            Ok(proposal) => proposal,
            Err(error) => return self.fail(error),
        };
        let (current, proposed) = (self.replicas.spec, proposal.replicas.max(0));
        let mut reason = match proposed.cmp(&current) {
            Ordering::Greater => format!("{} above target", proposal.name),
            Ordering::Less => "All metrics below target".to_owned(),
            Ordering::Equal => String::new(),
        };
        let mut desired = self.limit(proposed, history);
        let least = self.spec.least();
        if current == 0 && self.is_at_zero() && desired < least {
            desired = least;
            if reason.is_empty() {
                reason = BELOW.to_owned();
            }
        }
        match desired == current {
            true => Next::Rest,
            false => Next::Resize(desired, reason),
        }
    }

    /// The largest proposal; a failed metric counts against one that would scale down.
    fn compute(&mut self, measured: Measured) -> Result<Proposal, String> {
        let (mut best, mut failures): (Option<Proposal>, Vec<Failure>) = (None, Vec::new());
        let proposals = self.proposals(&measured.pods, measured.fetched);
        self.note_computations(&proposals, &measured.took);
        for result in proposals {
            match result {
                Ok(proposal) => {
                    self.statuses.push(proposal.status.clone());
                    let is_more = |best: &Proposal| best.replicas == 0 || proposal.replicas > best.replicas;
                    if best.as_ref().is_none_or(is_more) {
                        best = Some(proposal);
                    }
                }
                Err(failure) => {
                    self.statuses.push(MetricStatus::default());
                    self.warn(failure.reason, failure.cause.clone());
                    failures.push(failure);
                }
            }
        }
        let (failed, all) = (failures.len(), self.spec.metrics.len());
        let error = failures.first().map(|first| {
            let first = &first.error;
            format!("invalid metrics ({failed} invalid out of {all}), first error is: {first}")
        });
        let less = |best: &Proposal| failed > 0 && best.replicas < self.replicas.spec;
        match best {
            Some(best) if !less(&best) => {
                let message = format!(
                    "the HPA was able to successfully calculate a replica count from {}",
                    best.name
                );
                self.set(ACTIVE, true, "ValidMetricFound", message);
                self.problem = error;
                Ok(best)
            }
            _ => {
                if let Some(first) = failures.first() {
                    let message = format!("the HPA was unable to compute the replica count: {}", first.cause);
                    self.set(ACTIVE, false, first.reason, message);
                }
                Err(error.unwrap_or_else(|| "no metrics are specified".to_owned()))
            }
        }
    }

    fn note_computations(&mut self, proposals: &[Result<Proposal, Failure>], took: &[Duration]) {
        let present = self.status.current_replicas;
        let each = self.spec.metrics.iter().zip(proposals).enumerate();
        let noted = each.map(|(at, (metric, result))| Computation {
            kind: metric.kind.clone(),
            asks: result.as_ref().ok().map(|own| own.replicas.cmp(&present)),
            took: took.get(at).copied().unwrap_or_default(),
        });
        self.computations = noted.collect();
    }

    fn proposals(
        &self,
        pods: &[PodRef],
        fetched: Vec<Result<Fetched, String>>,
    ) -> Vec<Result<Proposal, Failure>> {
        let calculator = Calculator {
            pods,
            tolerances: self.tolerances(),
            now: self.now,
            cpu_initialization_period: self.settings.cpu_initialization_period,
            initial_readiness_delay: self.settings.initial_readiness_delay,
        };
        let each = self.spec.metrics.iter().zip(fetched);
        each.map(|(metric, fetched)| propose(&calculator, self.namespace, self.replicas, metric, fetched))
            .collect()
    }

    fn tolerances(&self) -> Tolerances {
        let behavior = self.spec.behavior.as_ref();
        let of = |rules: Option<&Rules>| {
            let own = rules.and_then(|rules| rules.tolerance);
            own.map_or(self.settings.tolerance, machinery_meta::Quantity::as_f64)
        };
        Tolerances {
            down: of(behavior.and_then(|own| own.scale_down.as_ref())),
            up: of(behavior.and_then(|own| own.scale_up.as_ref())),
        }
    }

    fn limit(&mut self, desired: i32, history: &mut History) -> i32 {
        let sizes = Sizes {
            least: self.spec.least(),
            most: self.spec.max_replicas,
            current: self.replicas.spec,
            desired,
            factor: self.settings.scale_up_factor,
        };
        let (window, at) = (self.settings.downscale_stabilization, self.at);
        let limited = match self.spec.behavior.as_ref().and_then(limits::rules) {
            Some(rules) => limits::by_rules(sizes, rules, window, history, at),
            None => limits::by_default(sizes, window, history, at),
        };
        let Limited {
            replicas,
            able,
            limited: (is_limited, why),
        } = limited;
        self.set(ABLE, true, able.0, able.1);
        self.set(LIMITED, is_limited, why.0, why.1);
        replicas
    }

    /// The target could not be given its size.
    pub(super) fn not_resized(&mut self, desired: i32, reason: &str, error: &str) {
        let message = format!("New size: {desired}; reason: {reason}; error: {error}");
        self.warn("FailedRescale", message);
        let message = format!("the HPA controller was unable to update the target scale: {error}");
        self.set(ABLE, false, "FailedUpdateScale", message);
        self.write(self.status.desired_replicas, false);
    }

    /// The target has its new size.
    pub(super) fn resized(&mut self, desired: i32, reason: &str, history: &mut History) {
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        self.set(ABLE, true, "SucceededRescale", message);
        self.notes.push(Note {
            warning: false,
            reason: "SuccessfulRescale",
            message: format!("New size: {desired}; reason: {reason}"),
        });
        let current = self.replicas.spec;
        self.resize = Some(desired.cmp(&current));
        let rules = self.spec.behavior.as_ref().and_then(limits::rules);
        history.changed(rules, [current, desired], self.at);
        let emptied = current > 0 && desired == 0 && self.spec.least() == 0;
        if emptied && self.spec.has_metrics_without_pods() {
            let message = "the HPA controller scaled the workload to zero";
            self.set(AT_ZERO, true, "ScaledToZero", message);
        } else {
            let message = "the HPA controller did not scale the workload to zero";
            self.set(AT_ZERO, false, "NotScaledToZero", message);
        }
        self.write(desired, true);
    }

    /// The target stays as it is.
    pub(super) fn rested(&mut self) {
        self.write(self.replicas.spec, false);
    }

    fn write(&mut self, desired: i32, resized: bool) {
        self.status.current_replicas = self.replicas.spec;
        self.status.desired_replicas = desired;
        self.status.current_metrics = std::mem::take(&mut self.statuses);
        self.status.observed_generation = Some(self.generation);
        if resized {
            self.status.last_scale_time = Some(seconds(self.now));
        }
    }
}
