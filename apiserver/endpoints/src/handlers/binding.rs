//! `pods/binding` and `bindings`: a pod gets its node.

use super::write::{status_answer, sub_body};
use super::{Call, Endpoints};
use crate::bodies::{self, Expected};
use crate::body::Body;
use crate::error::ApiError;
use crate::{params, status};
use apiserver_registry::options::{Preconditions, UpdateOptions};
use apiserver_registry::{
    Door, ObjectPart, Operation, RegistryError, RequestContext, Target, UpdatedObject, metadata,
};
use async_trait::async_trait;
use http::Response;
use jiff::Timestamp;
use machinery_meta::{GroupResource, Uid};
use machinery_schema::{Ref, Step, Tree, Value};

/// Sets the node of a pod, once.
struct Binding {
    pods: GroupResource,
    name: String,
    node: String,
    /// Labels and annotations of the binding go to the pod.
    binding: Tree,
    now: Timestamp,
}

pub(super) async fn bind(this: Endpoints, mut call: Call) -> Result<Response<Body>, ApiError> {
    let showing = call.negotiate_object()?;
    let options = params::create(&call.query)?;
    let mut object = if call.row().gvk.kind == "Binding" {
        let bytes = bodies::read(std::mem::take(call.request.body_mut())).await?;
        let expected = Expected::of(call.row());
        bodies::decode(
            &call.ctx,
            call.request.headers(),
            bytes,
            &expected,
            call.offer(),
            options.field_validation,
        )
        .await?
    } else {
        sub_body(&mut call, options.field_validation, |_| {}).await?
    };
    metadata::place(&mut object, call.info.scope.namespace())?;
    let name = if call.info.name.is_empty() {
        metadata::name(&object).to_owned()
    } else {
        call.info.name.clone()
    };
    let mut attributes = call.attributes(Operation::Create, &name, options.dry_run);
    attributes.options = (&options).into();
    let mutated = this
        .door()
        .mutate(&call.ctx, attributes, &mut object, None)
        .await?;
    if name != metadata::name(&object) {
        let detail = "name in URL does not match name in Binding object";
        return Err(RegistryError::BadRequest(detail.into()).into());
    }
    check_binding(&object)?;
    let admitted = mutated.validate(&call.ctx, &object, None).await?;
    let pods = this
        .0
        .registry
        .store("", "v1", "pods")
        .ok_or_else(|| RegistryError::Internal("pods are not served".into()))?;
    let change = Binding {
        pods: pods.row.group_resource(),
        name: name.clone(),
        node: object.str_at(&["target", "name"]).to_owned(),
        binding: object,
        now: call.ctx.runtime.now(),
    };
    let target = Target {
        scope: &call.info.scope,
        name: &name,
        part: ObjectPart::Other("binding"),
    };
    let options = UpdateOptions {
        dry_run: options.dry_run,
        ..UpdateOptions::default()
    };
    pods.update(&call.ctx, target, &change, &options, Door::following(&admitted))
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
    let (path, name) = (target.child("name"), object.str_at(&["target", "name"]));
    if name.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else if errors.is_empty() {
        let problems = machinery_meta::syntax::dns1123_subdomain(name).into_iter();
        errors.extend(problems.map(|problem| FieldError::invalid(&path, name, problem)));
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

    /// A binding that names a uid or a revision is for that very pod.
    fn preconditions(&self) -> Preconditions {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Preconditions {
            uid: given(metadata::uid(&self.binding)).map(Uid),
            resource_version: given(metadata::resource_version(&self.binding)),
        }
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

/// `PodScheduled` becomes true where it stands, without a reason; its time moves only when its status does.
fn set_scheduled(pod: &mut Tree, now: Timestamp) {
    let now = metadata::format_time(now);
    pod.with(&["status"], |mut status| {
        let mut conditions = status.entry("conditions");
        let found = conditions
            .as_ref()
            .items()
            .position(|c| c.str("type") == "PodScheduled");
        let before = found.and_then(|at| conditions.as_ref().item(at));
        let since = before
            .filter(|before| before.str("status") == "True")
            .map_or(now, |before| before.str("lastTransitionTime").to_owned());
        let index = found.unwrap_or_else(|| conditions.as_ref().items().len());
        if found.is_none() {
            conditions.push(Value::EmptyMap);
        }
        let Some(mut condition) = conditions.item(index) else {
            return;
        };
        condition.set_value(Value::EmptyMap);
        condition.set("type", "PodScheduled");
        condition.set("status", "True");
        condition.set("lastProbeTime", Value::Null);
        condition.set("lastTransitionTime", since.as_str());
    });
}
