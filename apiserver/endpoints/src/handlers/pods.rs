//! What only pods have: binding to a node, eviction.

use super::write::{status_answer, sub_body};
use super::{Call, Endpoints};
use crate::bodies::{self, Expected};
use crate::body::Body;
use crate::{params, status};
use apiserver_registry::error::Cause;
use apiserver_registry::options::{ListOptions, RevisionMatch, UpdateOptions};
use apiserver_registry::{
    AdmitAll, Part, RegistryError, RequestContext, ResourceRow, Store, Target, UpdatedObject, metadata,
};
use async_trait::async_trait;
use http::Response;
use jiff::Timestamp;
use machinery_meta::{GroupResource, ObjectHeader};
use machinery_schema::{Ref, Step, Tree, Value};
use std::sync::Arc;

/// Sets the node of a pod, once.
struct Binding {
    pods: GroupResource,
    name: String,
    node: String,
    uid: String,
    /// Labels and annotations of the binding go to the pod.
    binding: Tree,
    now: Timestamp,
}

pub(crate) async fn bind(this: Endpoints, mut call: Call) -> Result<Response<Body>, RegistryError> {
    let showing = call.whole()?;
    let options = params::create(&call.query)?;
    let object = if call.row().gvk.kind == "Binding" {
        let bytes = bodies::read(std::mem::take(call.request.body_mut())).await?;
        let expected = Expected::of(call.row());
        bodies::decode(
            &call.ctx,
            call.request.headers(),
            &bytes,
            &expected,
            call.offer(),
            options.field_validation,
        )?
    } else {
        sub_body(&mut call, options.field_validation).await?
    };
    let name = if call.info.name.is_empty() {
        metadata::name(&object).to_owned()
    } else {
        call.info.name.clone()
    };
    if name != metadata::name(&object) {
        let detail = "name in URL does not match name in Binding object";
        return Err(RegistryError::BadRequest(detail.into()));
    }
    let pods = this
        .0
        .registry
        .store("", "v1", "pods")
        .ok_or_else(|| RegistryError::Internal("pods are not served".into()))?;
    check_binding(&object)?;
    let change = Binding {
        pods: pods.row.group_resource(),
        name: name.clone(),
        node: object.str_at(&["target", "name"]).to_owned(),
        uid: metadata::uid(&object).to_owned(),
        binding: object,
        now: call.ctx.runtime.now(),
    };
    let target = Target {
        namespace: call.info.scope.namespace(),
        name: &name,
        part: Part::Other("binding"),
    };
    let options = UpdateOptions {
        dry_run: options.dry_run,
        ..UpdateOptions::default()
    };
    pods.update(&call.ctx, target, &change, &options, this.0.admission.as_ref())
        .await?;
    let mut done = status::Status::success(None);
    done.code = 201;
    status_answer(showing, &done)
}

fn check_binding(object: &Tree) -> Result<(), RegistryError> {
    use machinery_meta::{FieldError, FieldPath};
    let kind = object.str_at(&["target", "kind"]);
    let mut errors = Vec::new();
    let target = FieldPath::new("target");
    if !kind.is_empty() && kind != "Node" {
        errors.push(FieldError::not_supported(
            &target.child("kind"),
            kind,
            &["Node", "<empty>"],
        ));
    }
    if object.str_at(&["target", "name"]).is_empty() {
        errors.push(FieldError::required(&target.child("name"), ""));
    }
    if errors.is_empty() {
        return Ok(());
    }
    let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Err(RegistryError::Unclassified(if all.len() == 1 {
        all.concat()
    } else {
        format!("[{}]", all.join(", "))
    }))
}

#[async_trait]
impl UpdatedObject for Binding {
    async fn apply(&self, _ctx: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            return Err(RegistryError::not_found(&self.pods, &self.name));
        };
        let refuse = |detail: String| {
            Err(RegistryError::conflict(
                &self.binding_resource(),
                &self.name,
                detail,
            ))
        };
        if !self.uid.is_empty() && self.uid != metadata::uid(live) {
            return refuse(format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                self.uid,
                metadata::uid(live)
            ));
        }
        if metadata::time(live, "deletionTimestamp").is_some() {
            return refuse(format!(
                "pod {} is being deleted, cannot be assigned to a host",
                self.name
            ));
        }
        let assigned = live.str_at(&["spec", "nodeName"]);
        if !assigned.is_empty() {
            return refuse(format!(
                "pod {} is already assigned to node {assigned:?}",
                self.name
            ));
        }
        if live
            .at(&["spec", "schedulingGates"])
            .is_some_and(|gates| !gates.is_empty())
        {
            return refuse(format!("pod {} has non-empty .spec.schedulingGates", self.name));
        }
        let mut pod = live.clone();
        pod.set_str(&["spec", "nodeName"], &self.node);
        self.copy_notes(&mut pod);
        set_scheduled(&mut pod, self.now);
        // It has its node; room that was to be made elsewhere is not wanted any more.
        pod.remove(&["status", "nominatedNodeName"]);
        Ok(pod)
    }
}

impl Binding {
    fn binding_resource(&self) -> GroupResource {
        GroupResource::new("", "pods/binding")
    }

    fn copy_notes(&self, pod: &mut Tree) {
        for notes in ["annotations", "labels"] {
            let entries = self
                .binding
                .at(&["metadata", notes])
                .into_iter()
                .flat_map(Ref::entries);
            for (key, value) in entries {
                pod.set(
                    &[Step::Name("metadata"), Step::Name(notes), Step::Name(key)],
                    value,
                );
            }
        }
    }
}

/// `PodScheduled` becomes true; its time moves only when its status does.
fn set_scheduled(pod: &mut Tree, now: Timestamp) {
    let now = metadata::format_time(now);
    pod.with(&["status"], |mut status| {
        let mut conditions = status.entry("conditions");
        let found = conditions
            .as_ref()
            .items()
            .position(|c| c.str("type") == "PodScheduled");
        let unchanged = found
            .and_then(|at| conditions.as_ref().item(at))
            .is_some_and(|c| c.str("status") == "True");
        if unchanged {
            return;
        }
        if let Some(at) = found {
            conditions.remove_item(at);
        }
        let mut condition = conditions.push(Value::EmptyMap);
        condition.set("type", "PodScheduled");
        condition.set("status", "True");
        condition.set("lastProbeTime", Value::Null);
        condition.set("lastTransitionTime", now.as_str());
    });
}

/// What upstream says when a budget does not allow an eviction.
const BUDGET_MESSAGE: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Deletes a pod unless a disruption budget stands in the way.
pub(crate) async fn evict(this: Endpoints, mut call: Call) -> Result<Response<Body>, RegistryError> {
    let showing = call.whole()?;
    let options = params::create(&call.query)?;
    let eviction = sub_body(&mut call, options.field_validation).await?;
    let name = metadata::name(&eviction);
    if !name.is_empty() && name != call.info.name {
        return Err(RegistryError::BadRequest(
            "name in URL does not match name in Eviction object".into(),
        ));
    }
    let mut delete = delete_options_of(&eviction)?;
    delete.dry_run |= options.dry_run;
    let entry = call
        .store
        .get(
            call.info.scope.namespace(),
            &call.info.name,
            RevisionMatch::MostRecent,
        )
        .await?;
    let header = &entry.record.header;
    let ended = matches!(
        header.field("status.phase"),
        Some("Succeeded" | "Failed" | "Pending")
    );
    if !ended && !header.is_deleting() && !delete.dry_run {
        take_from_budget(&this, &call, header).await?;
    }
    call.store
        .delete(
            &call.ctx,
            call.info.scope.namespace(),
            &call.info.name,
            &delete,
            this.0.admission.as_ref(),
        )
        .await?;
    let mut done = status::Status::success(None);
    done.code = 201;
    status_answer(showing, &done)
}

fn delete_options_of(eviction: &Tree) -> Result<apiserver_registry::options::DeleteOptions, RegistryError> {
    let text = |path: &[&str]| eviction.at(path).and_then(Ref::as_str).map(str::to_owned);
    let dry_run = eviction
        .get("deleteOptions")
        .into_iter()
        .flat_map(|options| options.list("dryRun"));
    crate::params::RawDeleteOptions {
        dry_run: dry_run.filter_map(Ref::as_str).map(str::to_owned).collect(),
        grace_period_seconds: eviction
            .at(&["deleteOptions", "gracePeriodSeconds"])
            .and_then(Ref::as_i64),
        propagation_policy: text(&["deleteOptions", "propagationPolicy"]),
        orphan_dependents: eviction
            .at(&["deleteOptions", "orphanDependents"])
            .and_then(Ref::as_bool),
        uid: text(&["deleteOptions", "preconditions", "uid"]),
        resource_version: text(&["deleteOptions", "preconditions", "resourceVersion"]),
    }
    .check()
}

/// Counts the eviction against the budget that covers the pod, if one does.
async fn take_from_budget(this: &Endpoints, call: &Call, pod: &ObjectHeader) -> Result<(), RegistryError> {
    let Some(budgets) = this.0.registry.store("policy", "v1", "poddisruptionbudgets") else {
        return Ok(());
    };
    let page = budgets
        .list(call.info.scope.namespace(), &ListOptions::default())
        .await?;
    let mut covering = Vec::new();
    for entry in &page.entries {
        let budget = budgets.decode(entry)?;
        if selects(&budget, pod) {
            covering.push(budget);
        }
    }
    match covering.as_slice() {
        [] => Ok(()),
        [budget] => take_one(call, &budgets, budget, &call.info.name).await,
        _ => Err(RegistryError::Internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.".into(),
        )),
    }
}

fn selects(budget: &Tree, pod: &ObjectHeader) -> bool {
    let Some(selector) = budget.at(&["spec", "selector"]) else {
        return false;
    };
    apiserver_registry::label_selector::matches(selector, pod)
}

struct TakeOne {
    row: Arc<ResourceRow>,
    name: String,
    pod: String,
    now: String,
}

async fn take_one(call: &Call, budgets: &Store, budget: &Tree, pod: &str) -> Result<(), RegistryError> {
    let change = TakeOne {
        row: Arc::clone(&budgets.row),
        name: metadata::name(budget).to_owned(),
        pod: pod.to_owned(),
        now: metadata::format_time(call.ctx.runtime.now()),
    };
    let target = Target {
        namespace: call.info.scope.namespace(),
        name: &change.name,
        part: Part::Status,
    };
    budgets
        .update(&call.ctx, target, &change, &UpdateOptions::default(), &AdmitAll)
        .await?;
    Ok(())
}

#[async_trait]
impl UpdatedObject for TakeOne {
    async fn apply(&self, _ctx: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            return Err(RegistryError::not_found(&self.row.group_resource(), &self.name));
        };
        let number = |path: &[&str]| live.at(path).and_then(Ref::as_i64).unwrap_or(0);
        let allowed = number(&["status", "disruptionsAllowed"]);
        let observed = number(&["status", "observedGeneration"]);
        if observed < metadata::generation(live) {
            let detail = format!(
                "The disruption budget {} is still being processed by the server.",
                self.name
            );
            return Err(too_many(detail, 10));
        }
        if allowed <= 0 {
            let (healthy, desired) = (
                number(&["status", "currentHealthy"]),
                number(&["status", "desiredHealthy"]),
            );
            let detail = format!(
                "The disruption budget {} needs {desired} healthy pods and has {healthy} currently",
                self.name
            );
            return Err(too_many(detail, 0));
        }
        let mut budget = live.clone();
        budget.set_i64(&["status", "disruptionsAllowed"], allowed - 1);
        budget.set_str(&["status", "disruptedPods", &self.pod], &self.now);
        Ok(budget)
    }
}

fn too_many(detail: String, seconds: u32) -> RegistryError {
    RegistryError::TooManyRequests {
        message: BUDGET_MESSAGE.into(),
        seconds,
        causes: vec![Cause {
            reason: "DisruptionBudget".into(),
            message: detail,
            field: String::new(),
        }],
    }
}
