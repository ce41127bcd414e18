//! `pods/eviction`: deletes a pod unless a disruption budget stands in the way (upstream's `EvictionREST`).

use super::disruption_budget::{self, Verdict};
use super::write::{status_answer, sub_body};
use super::{Call, Endpoints};
use crate::body::Body;
use crate::error::ApiError;
use crate::params::RawDeleteOptions;
use crate::request_info::Query;
use crate::{params, status};
use apiserver_registry::conditions::{Condition, set_condition};
use apiserver_registry::options::{DeleteOptions, Preconditions, RevisionMatch, UpdateOptions};
use apiserver_registry::{
    Admitted, Door, ObjectPart, Operation, RegistryError, RequestContext, Store, Target, UpdatedObject,
    Written, metadata,
};
use async_trait::async_trait;
use http::Response;
use machinery_meta::{FieldError, FieldPath, GroupVersionKind};
use machinery_schema::{Ref, Tree, Value};
use std::time::Duration;

/// A pod or budget that others write meanwhile is tried this often, this far apart (upstream's `EvictionsRetry`).
const ATTEMPTS: usize = 20;
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// An admitted eviction.
struct Eviction<'a> {
    call: &'a Call,
    admitted: Admitted,
    options: DeleteOptions,
}

/// The result of an eviction that budgets do not decide.
enum UnbudgetedEviction {
    Deleted,
    /// The pod runs: budgets decide.
    Guarded(Tree),
}

pub(super) async fn evict(this: Endpoints, mut call: Call) -> Result<Response<Body>, ApiError> {
    let showing = call.negotiate_object()?;
    let options = params::create(&call.query)?;
    let mut object = sub_body(&mut call, options.field_validation, |_| {}).await?;
    metadata::place(&mut object, call.info.scope.namespace())?;
    let mut attributes = call.attributes(Operation::Create, &call.info.name, options.dry_run);
    attributes.options = (&options).into();
    let mutated = this
        .door()
        .mutate(&call.ctx, attributes, &mut object, None)
        .await?;
    check(&object, &call.info.name)?;
    check_dry_runs(&call.query, &object)?;
    let mut delete = delete_options_of(&object)?;
    delete.dry_run |= options.dry_run;
    let eviction = Eviction {
        admitted: mutated.validate(&call.ctx, &object, None).await?,
        options: delete,
        call: &call,
    };
    if let UnbudgetedEviction::Guarded(pod) = eviction.delete_unguarded().await? {
        eviction.delete_guarded(&this, &pod).await?;
    }
    let mut done = status::Status::success(None);
    done.code = 201;
    status_answer(showing, &done)
}

fn check(eviction: &Tree, name: &str) -> Result<(), RegistryError> {
    if metadata::name(eviction) != name {
        let detail = "name in URL does not match name in Eviction object";
        return Err(RegistryError::BadRequest(detail.into()));
    }
    let unsafe_option = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let asked = eviction
        .at(&["deleteOptions", unsafe_option])
        .and_then(Ref::as_bool);
    if asked != Some(true) {
        return Ok(());
    }
    let path = FieldPath::new("deleteOptions").child(unsafe_option);
    let detail = "can not be set for pod eviction, try after removing the option";
    Err(RegistryError::Invalid {
        kind: GroupVersionKind::new("policy", "v1", "Eviction").group_kind(),
        name: name.to_owned(),
        errors: vec![FieldError::invalid(&path, true, detail)],
    })
}

/// Dry runs of request and content are the same where both say something (upstream's `propagateDryRun`).
fn check_dry_runs(query: &Query, eviction: &Tree) -> Result<(), RegistryError> {
    let asked: Vec<&str> = query.all("dryRun").collect();
    let own: Vec<&str> = dry_runs(eviction).collect();
    if own.is_empty() || asked.is_empty() || own == asked {
        return Ok(());
    }
    Err(RegistryError::Unclassified(format!(
        "Non-matching dry-run options in request and content: [{}] and [{}]",
        asked.join(" "),
        own.join(" ")
    )))
}

fn dry_runs(eviction: &Tree) -> impl Iterator<Item = &str> {
    let options = eviction.get("deleteOptions").into_iter();
    options
        .flat_map(|options| options.list("dryRun"))
        .filter_map(Ref::as_str)
}

/// Options that are wrong are refused before anything changes; upstream finds them when the pod is deleted (registry/rest
/// `BeforeDelete`), with the same answer, after the budget has counted the eviction.
fn delete_options_of(eviction: &Tree) -> Result<DeleteOptions, RegistryError> {
    let text = |path: &[&str]| eviction.at(path).and_then(Ref::as_str).map(str::to_owned);
    RawDeleteOptions {
        dry_run: dry_runs(eviction).map(str::to_owned).collect(),
        grace_period_seconds: eviction
            .at(&["deleteOptions", "gracePeriodSeconds"])
            .and_then(Ref::as_i64),
        propagation_policy: text(&["deleteOptions", "propagationPolicy"]),
        orphan_dependents: eviction
            .at(&["deleteOptions", "orphanDependents"])
            .and_then(Ref::as_bool),
        uid: text(&["deleteOptions", "preconditions", "uid"]),
        resource_version: text(&["deleteOptions", "preconditions", "resourceVersion"]),
        ..RawDeleteOptions::default()
    }
    .check()
}

fn phase(pod: &Tree) -> &str {
    pod.str_at(&["status", "phase"])
}

/// Pods that end or have not begun are no disruption.
fn is_unguarded(pod: &Tree) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed" | "Pending") || is_deleting(pod)
}

fn is_deleting(pod: &Tree) -> bool {
    metadata::time(pod, "deletionTimestamp").is_some()
}

/// A pod that may yet become ready is deleted only as it was looked at.
fn may_become_ready(pod: &Tree) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed") && !is_deleting(pod)
}

/// The options of a delete of the pod in this very state.
fn at_revision(options: &DeleteOptions, pod: &Tree) -> DeleteOptions {
    let mut options = options.clone();
    options.preconditions.resource_version = Some(metadata::resource_version(pod).to_owned());
    options
}

impl Eviction<'_> {
    fn ctx(&self) -> &RequestContext {
        &self.call.ctx
    }

    fn pods(&self) -> &Store {
        &self.call.store
    }

    fn insists_on_revision(&self) -> bool {
        self.options.preconditions.resource_version.is_some()
    }

    async fn pod(&self) -> Result<Tree, RegistryError> {
        let (scope, name) = (&self.call.info.scope, &self.call.info.name);
        let entry = self.pods().get(scope, name, RevisionMatch::MostRecent).await?;
        self.pods().decode(&entry)
    }

    /// Deletes the pod where no budget is asked, and again where it changed meanwhile.
    async fn delete_unguarded(&self) -> Result<UnbudgetedEviction, RegistryError> {
        let mut attempt = 1;
        loop {
            let pod = self.pod().await?;
            if !is_unguarded(&pod) {
                return Ok(UnbudgetedEviction::Guarded(pod));
            }
            let deleted = if may_become_ready(&pod) && !self.insists_on_revision() {
                self.mark_and_delete(at_revision(&self.options, &pod)).await
            } else {
                self.mark_and_delete(self.options.clone()).await
            };
            match deleted {
                Ok(()) => return Ok(UnbudgetedEviction::Deleted),
                Err(error) if error.is_conflict() && !self.insists_on_revision() && attempt < ATTEMPTS => {
                    attempt += 1;
                    self.wait().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn wait(&self) -> Result<(), RegistryError> {
        let runtime = &self.ctx().runtime;
        let jitter = Duration::from_millis(runtime.random_u64() % 50);
        runtime.sleep(RETRY_AFTER + jitter).await;
        self.ctx().in_time()
    }

    /// Deletes a running pod as its budget allows.
    async fn delete_guarded(&self, this: &Endpoints, pod: &Tree) -> Result<(), RegistryError> {
        let asked = (self.call, &self.admitted);
        let verdict = disruption_budget::check_budget(this, asked, pod, self.options.dry_run).await?;
        let Verdict::Unhealthy { budget } = verdict else {
            return self.mark_and_delete(self.options.clone()).await;
        };
        // Invariant: a pod that became ready since is not deleted without its budget.
        match self.mark_and_delete(at_revision(&self.options, pod)).await {
            Err(error) if error.is_conflict() && !self.insists_on_revision() => {
                Err(disruption_budget::still_processed(&budget))
            }
            other => other,
        }
    }

    /// Notes on the pod why it goes, then deletes it.
    async fn mark_and_delete(&self, mut options: DeleteOptions) -> Result<(), RegistryError> {
        let (scope, name) = (&self.call.info.scope, self.call.info.name.as_str());
        if !options.dry_run {
            let change = DisruptionTarget {
                pods: self.pods(),
                name,
                preconditions: &options.preconditions,
                now: metadata::format_time(self.ctx().runtime.now()),
            };
            let target = Target {
                scope,
                name,
                part: ObjectPart::Status,
            };
            let door = Door::following(&self.admitted);
            let written = self
                .pods()
                .update(self.ctx(), target, &change, &UpdateOptions::default(), door)
                .await?;
            if let (Some(version), Written::Stored { entry, .. }) =
                (&mut options.preconditions.resource_version, &written)
            {
                *version = entry.revision.to_string();
            }
        }
        let door = Door::following(&self.admitted);
        let deleted = self.pods().delete(self.ctx(), scope, name, &options, door);
        deleted.await.map(drop)
    }
}

/// The condition of a pod that is evicted.
struct DisruptionTarget<'a> {
    pods: &'a Store,
    name: &'a str,
    preconditions: &'a Preconditions,
    now: String,
}

#[async_trait]
impl UpdatedObject for DisruptionTarget<'_> {
    async fn apply(&self, _: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            let resource = self.pods.row.group_resource();
            return Err(RegistryError::not_found(&resource, self.name));
        };
        self.pods.check_delete_preconditions(self.preconditions, live)?;
        let mut pod = live.clone();
        let condition = Condition {
            kind: "DisruptionTarget",
            status: "True",
            reason: "EvictionByEvictionAPI",
            message: "Eviction API: evicting",
        };
        set_condition(&mut pod, &self.now, condition);
        pod.with(&["status", "conditions"], |mut conditions| {
            let all = conditions.as_ref();
            let at = all.items().position(|own| own.str("type") == "DisruptionTarget");
            if let Some(mut own) = at.and_then(|at| conditions.item(at))
                && own.as_ref().get("lastProbeTime").is_none()
            {
                own.set("lastProbeTime", Value::Null);
            }
        });
        Ok(pod)
    }
}
