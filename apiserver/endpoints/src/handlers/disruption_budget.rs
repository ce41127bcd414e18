//! Disruption budgets, asked by an eviction.

use super::{Call, Endpoints};
use apiserver_registry::conditions::{Condition, set_condition};
use apiserver_registry::context::LARGE_BODY_BYTES;
use apiserver_registry::error::Cause;
use apiserver_registry::options::{ListOptions, UpdateOptions};
use apiserver_registry::{
    Admitted, ObjectPart, RegistryError, RequestContext, ResourceRow, Store, Target, UpdatedObject,
    label_selector, metadata,
};
use async_trait::async_trait;
use machinery_meta::{GroupResource, ObjectHeader};
use machinery_schema::{Ref, Tree};
use std::sync::Arc;

/// Evictions that the budget's controller has not confirmed; upstream's `MaxDisruptedPodSize`.
const MAX_DISRUPTED_PODS: usize = 2_000;
/// Upstream's message when a budget does not allow an eviction.
const MESSAGE: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const MANY_BUDGETS: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";

/// The reason for which a pod may be evicted.
pub(super) enum Verdict {
    /// No budget covers it, or its budget has counted it.
    Counted,
    /// It is not ready, so that its budget does not count it.
    Unhealthy { budget: String },
}

/// Counts the eviction against the budget that covers the pod, if one does.
pub(super) async fn check_budget(
    this: &Endpoints,
    (call, eviction): (&Call, &Admitted),
    pod: &Tree,
    dry_run: bool,
) -> Result<Verdict, RegistryError> {
    let Some(budgets) = this.0.registry.store("policy", "v1", "poddisruptionbudgets") else {
        return Ok(Verdict::Counted);
    };
    let entry = call.store.encode(pod)?;
    let mut covering = covering(call, &budgets, &entry.header).await?;
    if covering.len() > 1 {
        return Err(RegistryError::Unclassified(MANY_BUDGETS.into()));
    }
    let Some(budget) = covering.pop() else {
        return Ok(Verdict::Counted);
    };
    if !is_ready(pod) && lets_unhealthy_go(&budget) {
        let budget = metadata::name(&budget).to_owned();
        return Ok(Verdict::Unhealthy { budget });
    }
    take_one((call, eviction), &budgets, metadata::name(&budget), dry_run).await?;
    Ok(Verdict::Counted)
}

async fn covering(call: &Call, budgets: &Store, pod: &ObjectHeader) -> Result<Vec<Tree>, RegistryError> {
    let page = budgets.list(&call.info.scope, &ListOptions::default()).await?;
    // The request is small, what it looks at is not: budgets are as large as their selectors.
    call.ctx.heavy_from(page.record_bytes(), LARGE_BODY_BYTES).await?;
    let mut covering = Vec::new();
    for entry in &page.entries {
        call.ctx.in_time()?;
        let budget = budgets.decode(entry)?;
        let selector = budget
            .at(&["spec", "selector"])
            .filter(|selector| !selector.is_null());
        if selector.is_some_and(|selector| label_selector::matches(selector, pod)) {
            covering.push(budget);
        }
    }
    Ok(covering)
}

fn is_ready(pod: &Tree) -> bool {
    let conditions = pod.at(&["status", "conditions"]).into_iter().flat_map(Ref::items);
    conditions
        .filter(|condition| condition.str("type") == "Ready")
        .any(|condition| condition.str("status") == "True")
}

/// `unhealthyPodEvictionPolicy`: always, or as long as the application is not disrupted already.
fn lets_unhealthy_go(budget: &Tree) -> bool {
    let (healthy, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
    budget.str_at(&["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
        || (healthy >= desired && desired > 0)
}

fn number(budget: &Tree, field: &str) -> i64 {
    budget.at(&["status", field]).and_then(Ref::as_i64).unwrap_or(0)
}

async fn take_one(
    (call, eviction): (&Call, &Admitted),
    budgets: &Store,
    name: &str,
    dry_run: bool,
) -> Result<(), RegistryError> {
    let change = DecrementBudget {
        row: Arc::clone(&budgets.row),
        name: name.to_owned(),
        pod: call.info.name.clone(),
        now: metadata::format_time(call.ctx.runtime.now()),
    };
    let target = Target {
        scope: &call.info.scope,
        name,
        part: ObjectPart::Status,
    };
    let options = UpdateOptions {
        dry_run,
        ..UpdateOptions::default()
    };
    let door = eviction.disruption_budget()?;
    // A conflict that outlives the attempts is the answer (upstream: `RetryOnConflict` returns the last one).
    let written = budgets.update(&call.ctx, target, &change, &options, door);
    written.await.map(drop)
}

/// One disruption less, and the pod's name among those that are to go.
struct DecrementBudget {
    row: Arc<ResourceRow>,
    name: String,
    pod: String,
    now: String,
}

#[async_trait]
impl UpdatedObject for DecrementBudget {
    async fn apply(&self, _ctx: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            return Err(RegistryError::not_found(&self.row.group_resource(), &self.name));
        };
        let allowed = number(live, "disruptionsAllowed");
        if number(live, "observedGeneration") < metadata::generation(live) {
            return Err(still_processed(&self.name));
        }
        if allowed < 0 {
            let why = "pdb disruptions allowed is negative";
            return Err(forbidden(&self.name, why, why));
        }
        let disrupted = live
            .at(&["status", "disruptedPods"])
            .map_or(0, |pods| pods.entries().count());
        if disrupted > MAX_DISRUPTED_PODS {
            return Err(forbidden(
                &self.name,
                "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
                "too many pending evictions not confirmed by PDB controller",
            ));
        }
        if allowed == 0 {
            return Err(too_many(exhausted(live, &self.name), 0));
        }
        let mut budget = live.clone();
        budget.set_i64(&["status", "disruptionsAllowed"], allowed - 1);
        if allowed == 1 {
            self.record_exhausted(&mut budget);
        }
        budget.set_str(&["status", "disruptedPods", &self.pod], &self.now);
        Ok(budget)
    }
}

impl DecrementBudget {
    fn record_exhausted(&self, budget: &mut Tree) {
        let condition = Condition {
            kind: "DisruptionAllowed",
            status: "False",
            reason: "InsufficientPods",
            message: "",
        };
        set_condition(budget, &self.now, condition);
        let observed = number(budget, "observedGeneration");
        budget.with(&["status", "conditions"], |mut conditions| {
            conditions.each_item(|mut own| {
                if own.as_ref().str("type") == condition.kind {
                    own.set("observedGeneration", observed);
                }
            });
        });
    }
}

/// The reason for which a budget without disruptions left allows none, in upstream's words.
fn exhausted(budget: &Tree, name: &str) -> String {
    let conditions = budget
        .at(&["status", "conditions"])
        .into_iter()
        .flat_map(Ref::items);
    let refusing = conditions
        .filter(|condition| condition.str("type") == "DisruptionAllowed")
        .find(|condition| condition.str("status") == "False" && !condition.str("message").is_empty());
    let (healthy, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
    let denied = format!("The disruption budget {name} does not allow evicting pods currently");
    match refusing {
        Some(condition) if condition.str("reason") == "SyncFailed" => {
            format!("{denied} because it failed sync: {}", condition.str("message"))
        }
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        Some(condition) => {
            format!(
                "{denied} ({}): {}",
                condition.str("reason"),
                condition.str("message")
            )
        }
        None => denied,
    }
}

/// The budget's controller has not caught up: the client is to come again.
pub(super) fn still_processed(budget: &str) -> RegistryError {
    let detail = format!("The disruption budget {budget} is still being processed by the server.");
    too_many(detail, 10)
}

fn cause(message: String) -> Cause {
    Cause {
        reason: "DisruptionBudget".into(),
        message,
        field: String::new(),
    }
}

fn too_many(detail: String, seconds: u32) -> RegistryError {
    RegistryError::TooManyRequests {
        message: MESSAGE.into(),
        seconds,
        causes: vec![cause(detail)],
    }
}

fn forbidden(budget: &str, detail: &str, why: &str) -> RegistryError {
    let message = format!("The disruption budget {budget} does not allow evicting pods currently: {why}");
    RegistryError::Forbidden {
        resource: GroupResource::new("policy", "poddisruptionbudget"),
        name: budget.to_owned(),
        detail: detail.to_owned(),
        causes: vec![cause(message)],
    }
}
