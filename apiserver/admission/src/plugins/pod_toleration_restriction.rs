//! PodTolerationRestriction: pods of a namespace get its tolerations, by an annotation or the plugin's configuration, and may
//! have none beyond those that are listed. Off by default, as upstream's.

use super::configured::{check_fields, check_kind};
use super::objects::{annotation_in, namespace_of, push_json};
use super::tolerations;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_meta::Quantity;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_schema::{Ref, Tree};
use serde_json::Value;
use std::sync::Arc;

const API_VERSION: &str = "podtolerationrestriction.admission.k8s.io/v1alpha1";
const KIND: &str = "Configuration";
const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const WHITELIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
const MEMORY_PRESSURE: &str =
    r#"[{"key":"node.kubernetes.io/memory-pressure","operator":"Exists","effect":"NoSchedule"}]"#;
const TOLERATIONS: [&str; 2] = ["spec", "tolerations"];

/// Tolerations of namespaces without their own, each a list.
#[derive(Debug, Clone)]
pub struct PodTolerationRestrictionConfiguration {
    default: Tree,
    whitelist: Tree,
}

impl Default for PodTolerationRestrictionConfiguration {
    fn default() -> Self {
        let none = || Tree::from_json("[]").expect("an empty list is JSON");
        Self {
            default: none(),
            whitelist: none(),
        }
    }
}

impl PodTolerationRestrictionConfiguration {
    /// Reads a configuration; without one nothing is added and everything may be.
    ///
    /// # Errors
    /// Another kind or an unknown field is written, or a list that is none of tolerations.
    pub fn parse(written: Option<&Value>) -> Result<Self, String> {
        let Some(written) = written else {
            return Ok(Self::default());
        };
        check_kind(written, &[(API_VERSION, KIND)])?;
        check_fields(written, &[("", &["apiVersion", "kind", "default", "whitelist"])])?;
        let list = |member: &str| match written.get(member) {
            None | Some(Value::Null) => read("[]"),
            Some(list) => read(&list.to_string()),
        };
        Ok(Self {
            default: list("default")?,
            whitelist: list("whitelist")?,
        })
    }
}

/// A list of tolerations.
fn read(text: &str) -> Result<Tree, String> {
    let tree = Tree::from_json(text).map_err(|error| error.to_string())?;
    let is_list = tree
        .root()
        .items()
        .all(|one| one.get("").is_none() && one.as_str().is_none());
    match text.trim_start().starts_with('[') && is_list {
        true => Ok(tree),
        false => Err("json: cannot unmarshal into Go value of type []v1.Toleration".to_owned()),
    }
}

/// The list of an annotation of the namespace; `None` without the annotation.
fn of_namespace(namespace: &ReadObject, key: &str) -> Result<Option<Tree>, AdmissionError> {
    let Some(text) = annotation_in(namespace, key) else {
        return Ok(None);
    };
    let list = if text.is_empty() { "[]" } else { &text };
    read(list).map(Some).map_err(AdmissionError::Unclassified)
}

pub(super) struct PodTolerationRestriction {
    reader: Arc<dyn ObjectReader>,
    configuration: PodTolerationRestrictionConfiguration,
}

impl PodTolerationRestriction {
    pub(super) fn new(
        reader: &Arc<dyn ObjectReader>,
        configuration: PodTolerationRestrictionConfiguration,
    ) -> Self {
        Self {
            reader: Arc::clone(reader),
            configuration,
        }
    }

    fn check(&self, namespace: &ReadObject, pod: &Tree) -> Result<(), AdmissionError> {
        let own: Vec<Ref<'_>> = pod.at(&TOLERATIONS).into_iter().flat_map(Ref::items).collect();
        if own.is_empty() {
            return Ok(());
        }
        let of_namespace = of_namespace(namespace, WHITELIST)?;
        let scope = if of_namespace.is_some() {
            "namespace"
        } else {
            "cluster"
        };
        let whitelist = of_namespace.as_ref().unwrap_or(&self.configuration.whitelist);
        let whitelist: Vec<Ref<'_>> = whitelist.root().items().collect();
        match whitelist.is_empty() || tolerations::are_covered(&own, &whitelist) {
            true => Ok(()),
            false => Err(AdmissionError::Unclassified(format!(
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
            ))),
        }
    }
}

/// Reports whether a pod requests or limits neither processors nor memory.
fn is_best_effort(pod: &Tree) -> bool {
    // Once a pod has a class it keeps it.
    let class = pod.str_at(&["status", "qosClass"]);
    if !class.is_empty() {
        return class == "BestEffort";
    }
    let Some(spec) = pod.get("spec") else { return true };
    let is_set = |resources: Ref<'_>| {
        ["requests", "limits"].into_iter().any(|list| {
            ["cpu", "memory"].into_iter().any(|name| {
                let amount = resources.at(&[list, name]).and_then(Ref::as_str);
                amount
                    .and_then(|own| own.parse::<Quantity>().ok())
                    .is_some_and(|own| !own.is_zero())
            })
        })
    };
    if let Some(own) = spec.get("resources").filter(|own| !own.is_null()) {
        return !is_set(own);
    }
    let lists = ["initContainers", "containers"]
        .into_iter()
        .filter_map(|list| spec.get(list));
    let mut resources = lists.flat_map(Ref::items).filter_map(|own| own.get("resources"));
    !resources.any(is_set)
}

/// The pod's tolerations and these, without those that another one covers.
fn add(pod: &mut Tree, extra: &[Ref<'_>]) {
    let own = pod.at(&TOLERATIONS).into_iter().flat_map(Ref::items);
    let all: Vec<Ref<'_>> = own.chain(extra.iter().copied()).collect();
    let texts: Vec<String> = tolerations::merged(&all).into_iter().map(Ref::to_json).collect();
    pod.remove(&TOLERATIONS);
    for text in texts {
        push_json(pod, &TOLERATIONS, &text);
    }
}

#[async_trait]
impl Plugin for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit, Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update) && request.is("", "pods")
    }

    async fn mutate(
        &self,
        request: &Request<'_>,
        pod: &mut Tree,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let namespace = namespace_of(&*self.reader, request.namespace).await?;
        let of_namespace = match request.operation {
            Operation::Create => of_namespace(&namespace, DEFAULTS)?,
            _ => Some(PodTolerationRestrictionConfiguration::default().default),
        };
        let pressure = Tree::from_json(MEMORY_PRESSURE).expect("the plugin's own JSON is well formed");
        let defaults = of_namespace.as_ref().unwrap_or(&self.configuration.default);
        let mut extra: Vec<Ref<'_>> = defaults.root().items().collect();
        if !is_best_effort(pod) {
            extra.extend(pressure.root().items());
        }
        if !extra.is_empty() {
            add(pod, &extra);
        }
        self.check(&namespace, pod)
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        pod: Option<&Tree>,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(pod) = pod else { return Ok(()) };
        let namespace = namespace_of(&*self.reader, request.namespace).await?;
        self.check(&namespace, pod)
    }
}
