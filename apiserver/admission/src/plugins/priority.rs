//! Priority: a pod's priority class becomes its number and its preemption policy. One class is the default at most, and the
//! system's own classes stay.

use super::objects::find;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_meta::{GroupResource, ObjectHeader};
use machinery_schema::{Ref, Tree};
use parking_lot::Mutex;
use serde::Deserialize;
use std::sync::Arc;

const GROUP: &str = "scheduling.k8s.io";
const CLASSES: &str = "priorityclasses";
const SYSTEM_CLASSES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
const DEFAULT_POLICY: &str = "PreemptLowerPriority";

pub(super) struct Priority {
    reader: Arc<dyn ObjectReader>,
    /// The classes there were when they were last read, each with the header it had: an object that has changed has
    /// another one.
    known: Mutex<Vec<(Arc<ObjectHeader>, Class)>>,
}

impl Priority {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>) -> Self {
        Self {
            reader: Arc::clone(reader),
            known: Mutex::default(),
        }
    }

    async fn class_of(&self, name: &str) -> Result<Class, AdmissionError> {
        if name.is_empty() {
            return self.default_class().await;
        }
        let found = find(&*self.reader, GROUP, CLASSES, "", name).await?;
        found
            .and_then(|object| serde_json::from_slice(&object.json).ok())
            .ok_or_else(|| AdmissionError::forbidden(format!("no PriorityClass with name {name} was found")))
    }

    /// Refuses a second default.
    async fn check_default(&self, operation: Operation, class: &Tree) -> Result<(), AdmissionError> {
        if class.at(&["globalDefault"]).and_then(Ref::as_bool) != Some(true) {
            return Ok(());
        }
        let default = self.default_class().await?.metadata.name;
        let is_own = operation == Operation::Update && default == class.str_at(&["metadata", "name"]);
        if default.is_empty() || is_own {
            return Ok(());
        }
        Err(AdmissionError::forbidden(format!(
            "PriorityClass {default} is already marked as default. Only one default can exist"
        )))
    }

    /// The lowest of the global defaults.
    async fn default_class(&self) -> Result<Class, AdmissionError> {
        let all = self.reader.list(&GroupResource::new(GROUP, CLASSES), "").await?;
        let mut known = self.known.lock();
        let same = known.len() == all.len()
            && known
                .iter()
                .zip(&all)
                .all(|((header, _), object)| Arc::ptr_eq(header, &object.header));
        if !same {
            let class = |object: &ReadObject| serde_json::from_slice(&object.json).unwrap_or_default();
            *known = all
                .iter()
                .map(|object| (Arc::clone(&object.header), class(object)))
                .collect();
        }
        let defaults = known
            .iter()
            .map(|(_, class)| class)
            .filter(|class| class.global_default);
        Ok(defaults
            .min_by_key(|class| class.value)
            .cloned()
            .unwrap_or_default())
    }
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Class {
    metadata: Metadata,
    value: i64,
    global_default: bool,
    preemption_policy: Option<String>,
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
}

#[async_trait]
impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit, Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update, Operation::Delete]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        let is_pod = request.operation != Operation::Delete && request.is("", "pods");
        is_pod || request.is(GROUP, CLASSES)
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        class: Option<&Tree>,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        match (request.resource, class) {
            (CLASSES, Some(class)) => self.check_default(request.operation, class).await,
            (CLASSES, None) if SYSTEM_CLASSES.contains(&request.name) => Err(AdmissionError::forbidden(
                "this is a system priority class and cannot be deleted",
            )),
            _ => Ok(()),
        }
    }

    async fn mutate(
        &self,
        request: &Request<'_>,
        pod: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        if request.resource != "pods" {
            return Ok(());
        }
        if let (Operation::Update, Some(old)) = (request.operation, old) {
            keep_computed(pod, old);
            return Ok(());
        }
        let class = self.class_of(pod.str_at(&["spec", "priorityClassName"])).await?;
        if pod.str_at(&["spec", "priorityClassName"]).is_empty() && !class.metadata.name.is_empty() {
            pod.set_str(&["spec", "priorityClassName"], &class.metadata.name);
        }
        if let Some(own) = pod.at(&["spec", "priority"]).and_then(Ref::as_i64)
            && own != class.value
        {
            return Err(AdmissionError::forbidden(format!(
                "the integer value of priority ({own}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
                class.value
            )));
        }
        pod.set_i64(&["spec", "priority"], class.value);
        let policy = class.preemption_policy.as_deref().unwrap_or(DEFAULT_POLICY);
        let own = pod.str_at(&["spec", "preemptionPolicy"]);
        if !own.is_empty() && own != policy {
            return Err(AdmissionError::forbidden(format!(
                "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            )));
        }
        pod.set_str(&["spec", "preemptionPolicy"], policy);
        Ok(())
    }
}

/// Keeps the values that a pod got when it was made, where an update leaves them out.
fn keep_computed(pod: &mut Tree, old: &Tree) {
    let unset = |name: &str| pod.at(&["spec", name]).is_none_or(Ref::is_null);
    let (priority, policy) = (unset("priority"), unset("preemptionPolicy"));
    let before = |name: &str| old.at(&["spec", name]);
    if let Some(own) = before("priority").and_then(Ref::as_i64).filter(|_| priority) {
        pod.set_i64(&["spec", "priority"], own);
    }
    if let Some(own) = before("preemptionPolicy")
        .and_then(Ref::as_str)
        .filter(|_| policy)
    {
        pod.set_str(&["spec", "preemptionPolicy"], own);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Objects, block_on};
    use super::*;
    use machinery_meta::UserInfo;

    #[track_caller]
    fn check(operation: Operation, name: &str, class: Option<&str>, expected: Option<&str>) {
        let known = r#"{"metadata":{"name":"known"},"value":10,"globalDefault":true}"#;
        let other = r#"{"metadata":{"name":"other"},"value":5}"#;
        let objects = Objects::default()
            .with(CLASSES, "", "known", known)
            .with(CLASSES, "", "other", other);
        let reader: Arc<dyn ObjectReader> = Arc::new(objects);
        let user = UserInfo::named("jane", ["dev"]);
        let request = Request {
            user: &user,
            operation,
            group: GROUP,
            kind: "PriorityClass",
            resource: CLASSES,
            subresource: "",
            namespace: "",
            name,
            dry_run: false,
            remarks: &crate::Unheard,
            host: None,
            reinvocation: None,
        };
        let plugin = Priority::new(&reader);
        assert!(plugin.handles(&request));
        let class = class.map(|json| Tree::from_json(json).unwrap());
        let found = block_on(plugin.validate(&request, class.as_ref(), None));
        let found = found.err().map(|error| error.to_string());
        assert_eq!(found.as_deref(), expected, "{operation:?} {name}");
    }

    /// Cases of upstream's `TestPriorityClassAdmission` and `TestDefaultPriority`.
    #[test]
    fn priority_has_one_default_class() {
        let taken = Some("PriorityClass known is already marked as default. Only one default can exist");
        let default =
            |name: &str| format!(r#"{{"metadata":{{"name":"{name}"}},"value":1,"globalDefault":true}}"#);
        check(Operation::Create, "new", Some(&default("new")), taken);
        check(Operation::Create, "known", Some(&default("known")), taken);
        check(Operation::Update, "other", Some(&default("other")), taken);
        check(Operation::Update, "known", Some(&default("known")), None);
        let plain = r#"{"metadata":{"name":"new"},"value":1}"#;
        check(Operation::Create, "new", Some(plain), None);
    }

    #[test]
    fn priority_of_a_pod_stays_where_an_update_leaves_it_out() {
        let old = Tree::from_json(r#"{"spec":{"priority":7,"preemptionPolicy":"Never"}}"#).unwrap();
        for (new, priority) in [("{\"spec\":{}}", 7), (r#"{"spec":{"priority":8}}"#, 8)] {
            let mut pod = Tree::from_json(new).unwrap();
            keep_computed(&mut pod, &old);
            assert_eq!(
                pod.at(&["spec", "priority"]).and_then(Ref::as_i64),
                Some(priority)
            );
            assert_eq!(pod.str_at(&["spec", "preemptionPolicy"]), "Never");
        }
    }

    #[test]
    fn priority_keeps_the_systems_classes() {
        let refused = Some("this is a system priority class and cannot be deleted");
        check(Operation::Delete, "system-node-critical", None, refused);
        check(Operation::Delete, "system-cluster-critical", None, refused);
        check(Operation::Delete, "known", None, None);
    }
}
