//! The loop around [`Scheduler`]: informers in, bindings out.
//!
//! One task owns the scheduler. It first takes in what changed, then decides about a few pods, and again.
//! Bindings and the rest run in tasks of their own, as many at a time as [`MAX_IN_FLIGHT`].

use crate::actions::Actions;
use crate::config::Configuration;
use crate::decision::Decision;
use crate::extender::{Answer, Consultants};
use crate::intake::{Timed, take_in};
use crate::meter::Clock;
use crate::metrics::{GaugesOfRun, Metrics};
use crate::pod::PodInfo;
use crate::policy::reporter::{Circumstances, Report};
use crate::policy::tasks::PolicyTasks;
use crate::scheduler::Scheduler;
use crate::sources::{Changed, Sources};
use crate::usage::Sample;
use crate::volumes::Reservation;
use machinery_client::{Client, Informers};
use machinery_runtime::{Runtime, TaskHandle};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Bindings and rejections being carried out at the same time.
pub const MAX_IN_FLIGHT: usize = 256;

/// Settings of a scheduler.
#[derive(Debug, Clone)]
pub struct Settings {
    pub configuration: Configuration,
    /// Shared by all that ran: they outlive a restart.
    pub metrics: Metrics,
}

impl Settings {
    fn scheduler(&self, runtime: &Runtime) -> Scheduler {
        let runtime = runtime.clone();
        let clock: Clock = Arc::new(move || runtime.monotonic());
        Scheduler::new(&self.configuration).measured(&self.metrics, clock)
    }
}

/// Starts the scheduler; it runs until its scope ends. The client's identity is `system:kube-scheduler`.
pub fn start(client: Client, runtime: Runtime, settings: Settings) -> TaskHandle<()> {
    let inside = runtime.clone();
    runtime.spawn("scheduler", async move {
        let client = client.with_user_agent("kube-scheduler");
        let informers = Informers::new(client.clone(), inside.clone());
        let sources = Sources::new(&informers);
        sources.synced(&inside).await;
        let extenders = &settings.configuration.extenders;
        let extenders = Consultants::start(extenders, &client, &informers, &inside).await;
        let (done, results) = mpsc::channel(MAX_IN_FLIGHT);
        let policy = PolicyTasks::start(&client, &inside);
        let actions = Actions::new(client, inside.clone(), settings.metrics.clone(), extenders);
        let driver = Driver {
            _gauges: GaugesOfRun(settings.metrics.clone()),
            scheduler: settings.scheduler(&inside),
            settings,
            sources,
            actions,
            runtime: inside,
            done,
            in_flight: 0,
            policy,
        };
        driver.run(results).await;
    })
}

/// Result of carrying out a decision.
enum Outcome {
    Bound(Arc<PodInfo>),
    BindingFailed(Arc<PodInfo>),
    /// The pod waits for its claims; none of the bindings at the same time is it.
    Reserved(Arc<PodInfo>, Box<str>, Reservation),
    NotReserved(Arc<PodInfo>, Reservation),
    NotDeallocated(Arc<PodInfo>),
    /// The pod, and its victims that stay.
    NotPreempted(Arc<PodInfo>, Vec<Arc<PodInfo>>),
    Answered(Answer),
    Reported,
}

struct Driver {
    _gauges: GaugesOfRun,
    settings: Settings,
    scheduler: Scheduler,
    sources: Sources,
    actions: Actions,
    runtime: Runtime,
    done: mpsc::Sender<Outcome>,
    in_flight: usize,
    policy: PolicyTasks,
}

/// Reason for which the loop woke up.
enum WakeReason {
    Changed(Changed),
    Done(Outcome),
    Usage(Vec<Sample>),
    Decide,
}

impl Driver {
    async fn run(mut self, mut results: mpsc::Receiver<Outcome>) {
        loop {
            let now = self.runtime.monotonic();
            let may = self.in_flight < MAX_IN_FLIGHT;
            let due = self.scheduler.next_wake().filter(|_| may);
            let wait = wait(&self.runtime, may && self.scheduler.has_work(now), due);
            let woken = tokio::select! { biased;
                Some(outcome) = results.recv() => WakeReason::Done(outcome),
                changed = self.sources.changed() => WakeReason::Changed(changed),
                Some(samples) = self.policy.samples.recv() => WakeReason::Usage(samples),
                () = wait => WakeReason::Decide,
            };
            match woken {
                WakeReason::Changed(changed) => self.take_in(changed),
                WakeReason::Done(outcome) => self.finished(outcome),
                WakeReason::Usage(samples) => {
                    self.scheduler.usage_changed(samples);
                    self.report_policy();
                }
                WakeReason::Decide => loop {
                    self.decide().await;
                    tokio::task::yield_now().await;
                    // Others have their turn, and nothing changes in what the dry run looks at.
                    if !self.scheduler.is_in_dry_run() {
                        break;
                    }
                },
            }
            self.scheduler.publish();
            self.settings.metrics.set_bindings(self.in_flight);
        }
    }

    async fn decide(&mut self) {
        self.scheduler.set_wall_time(self.runtime.now());
        let room = MAX_IN_FLIGHT.saturating_sub(self.in_flight);
        let (runtime, now) = (self.runtime.clone(), self.runtime.monotonic());
        let decisions = if self.scheduler.is_heavy_next(now) {
            self.decide_on_own_thread(now, room).await
        } else {
            self.scheduler.decide_burst(now, room, || runtime.random_u64())
        };
        for decision in decisions {
            self.in_flight += 1;
            let (actions, done) = (self.actions.clone(), self.done.clone());
            let carry_out = async move {
                // The driver holds the receiver for as long as it runs.
                let _ = done.send(carry_out(&actions, decision).await).await;
            };
            self.runtime.spawn("scheduler binding", carry_out).detach();
        }
    }

    /// Decides where no other task waits for the thread; what changed meanwhile is taken in afterwards.
    async fn decide_on_own_thread(&mut self, now: Duration, room: usize) -> Vec<Decision> {
        let runtime = self.runtime.clone();
        let mut scheduler = std::mem::take(&mut self.scheduler);
        let deciding = self.runtime.blocking(move || {
            let decisions = scheduler.decide_burst(now, room, || runtime.random_u64());
            (scheduler, decisions)
        });
        // A panic in there took the scheduler with it: the component begins anew.
        let (scheduler, decisions) = deciding.await.expect("the decision was not cut off");
        self.scheduler = scheduler;
        decisions
    }

    fn finished(&mut self, outcome: Outcome) {
        self.in_flight -= 1;
        self.scheduler.set_wall_time(self.runtime.now());
        match outcome {
            Outcome::Bound(pod) => self.scheduler.bound(&pod),
            Outcome::BindingFailed(pod) => self.scheduler.binding_failed(&pod, self.runtime.monotonic()),
            Outcome::Reserved(pod, node, reservation) => {
                let now = self.runtime.monotonic();
                self.scheduler.volumes_written(&pod, &node, reservation, now);
            }
            Outcome::NotReserved(pod, reservation) => {
                let now = self.runtime.monotonic();
                self.scheduler.volumes_not_written(&pod, &reservation, now);
            }
            Outcome::NotDeallocated(pod) => {
                self.scheduler.not_deallocated(&pod, self.runtime.monotonic());
            }
            Outcome::NotPreempted(pod, victims) => {
                let now = self.runtime.monotonic();
                self.scheduler.not_preempted(&pod, &victims, now);
            }
            Outcome::Answered(answer) => self.scheduler.answered(answer),
            Outcome::Reported => {}
        }
    }

    /// Follows the policy that the cluster wants, the scores of the profile where it wants none.
    fn follow_policy(&mut self) {
        let wanted = self.sources.policy();
        let policy = wanted.as_ref().and_then(|own| own.policy.as_ref().ok().copied());
        let policy = policy.unwrap_or_default();
        tracing::info!(policy = policy.name(), "scheduling policy");
        self.scheduler.set_policy(policy);
        self.policy.want_usage(self.scheduler.needs_usage());
        self.report_policy();
    }

    fn report_policy(&self) {
        let circumstances = Circumstances {
            has_profile: self.scheduler.has_default_profile(),
            nodes_with_usage: self.scheduler.nodes_with_usage(self.runtime.monotonic()),
        };
        let wanted = self.sources.policy();
        self.policy
            .report(wanted.map(|own| Report::new(&own, circumstances)));
    }

    fn take_in(&mut self, changed: Changed) {
        if matches!(changed, Changed::Policy) {
            return self.follow_policy();
        }
        let timed = Timed::new(&self.runtime, &self.settings.metrics);
        let now = self.runtime.monotonic();
        take_in(&mut self.scheduler, &self.sources, timed, changed, now);
    }
}

/// Ready at once when there is something to decide, else when a waiting pod is due.
async fn wait(runtime: &Runtime, busy: bool, due: Option<Duration>) {
    match (busy, due) {
        (true, _) => {}
        (false, Some(due)) => runtime.sleep_until(due).await,
        (false, None) => std::future::pending().await,
    }
}

async fn carry_out(actions: &Actions, decision: Decision) -> Outcome {
    match decision {
        Decision::Bind { pod, node, held } => match actions.bind(&pod, &node).await {
            Ok(()) => Outcome::Bound(pod),
            Err(error) => {
                if !error.pod_is_gone() {
                    let message = error.to_string();
                    tracing::warn!(pod = %pod.key, %node, %message);
                    actions.failed(&pod, &message).await;
                }
                actions.unreserve(&pod, &held).await;
                Outcome::BindingFailed(pod)
            }
        },
        Decision::Reserve {
            pod,
            node,
            reservation,
        } => reserve(actions, pod, node, reservation).await,
        Decision::Ask(question) => Outcome::Answered(actions.ask(question).await),
        Decision::Error { pod, message } => {
            tracing::warn!(pod = %pod.key, %message);
            actions.failed(&pod, &message).await;
            Outcome::Reported
        }
        Decision::Fail { pod, message, held } => {
            tracing::warn!(pod = %pod.key, %message);
            actions.failed(&pod, &message).await;
            actions.unreserve(&pod, &held).await;
            Outcome::BindingFailed(pod)
        }
        Decision::Reject {
            pod,
            message,
            preemption,
            nomination,
            deallocation,
        } => {
            tracing::debug!(pod = %pod.key, %message, "no node fits");
            let deallocated = match deallocation {
                Some(own) => actions.deallocate(&pod, &own).await,
                None => true,
            };
            let staying = actions.reject(&pod, &message, preemption, nomination).await;
            match deallocated {
                // A pod whose devices are taken from it preempts no other.
                false => Outcome::NotDeallocated(pod),
                true if !staying.is_empty() => Outcome::NotPreempted(pod, staying),
                true => Outcome::Reported,
            }
        }
    }
}

async fn reserve(
    actions: &Actions,
    pod: Arc<PodInfo>,
    node: Box<str>,
    mut reservation: Reservation,
) -> Outcome {
    match actions.reserve(&pod, &node, &mut reservation).await {
        Ok(()) => Outcome::Reserved(pod, node, reservation),
        Err(message) => {
            tracing::warn!(pod = %pod.key, %node, %message);
            actions.failed(&pod, &message).await;
            actions.unreserve(&pod, &reservation.held).await;
            Outcome::NotReserved(pod, reservation)
        }
    }
}
