//! PodNodeSelector: pods of a namespace get its node selector, by an annotation or the plugin's configuration, and may select
//! by no labels beyond those that the configuration lists for it. Off by default, as upstream's.

use super::objects::{annotation_in, namespace_of};
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_meta::syntax::{label_value, qualified_name};
use machinery_schema::{Ref, Tree};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
const CONFIGURATION: &str = "podNodeSelectorPluginConfig";
const DEFAULT: &str = "clusterDefaultNodeSelector";
const CONFLICT: &str = "pod node label selector conflicts with its namespace node label selector";
const NOT_LISTED: &str = "pod node label selector labels conflict with its namespace whitelist";

type Labels = BTreeMap<String, String>;

/// Node selectors as text, by namespaces, and the default of the cluster.
#[derive(Debug, Default, Clone)]
pub struct PodNodeSelectorConfiguration(BTreeMap<String, String>);

impl PodNodeSelectorConfiguration {
    /// Reads `podNodeSelectorPluginConfig`; what is not of its form counts as absent, as upstream's reader has it.
    pub fn parse(written: Option<&Value>) -> Self {
        let selectors = written
            .and_then(|own| own.get(CONFIGURATION))
            .and_then(Value::as_object);
        let texts = selectors
            .into_iter()
            .flatten()
            .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())));
        Self(texts.collect())
    }

    /// # Errors
    /// A text that is no selector.
    fn labels(&self, name: &str) -> Result<Labels, AdmissionError> {
        labels_of(self.0.get(name).map_or("", String::as_str))
    }
}

/// Upstream's `ConvertSelectorToLabelsMap`.
fn labels_of(text: &str) -> Result<Labels, AdmissionError> {
    let mut labels = Labels::new();
    if text.is_empty() {
        return Ok(labels);
    }
    for item in text.split(',') {
        let parts: Vec<&str> = item.split('=').collect();
        let [key, value] = parts.as_slice() else {
            let parts = parts.join(" ");
            return Err(AdmissionError::Unclassified(format!(
                "invalid selector: [{parts}]"
            )));
        };
        let (key, value) = (key.trim(), value.trim());
        let (of_key, of_value) = (qualified_name(key), label_value(value));
        if !of_key.is_empty() {
            let why = of_key.join("; ");
            return Err(AdmissionError::Unclassified(format!(
                "<nil>: Invalid value: {key:?}: {why}"
            )));
        }
        if !of_value.is_empty() {
            let why = of_value.join("; ");
            return Err(AdmissionError::Unclassified(format!(
                "[{key}]: Invalid value: {value:?}: {why}"
            )));
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

/// The node selector of a pod.
fn selected(pod: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let own = pod
        .at(&["spec", "nodeSelector"])
        .into_iter()
        .flat_map(Ref::entries);
    own.map(|(key, value)| (key, value.as_str().unwrap_or_default()))
}

pub(super) struct PodNodeSelector {
    reader: Arc<dyn ObjectReader>,
    configuration: PodNodeSelectorConfiguration,
}

impl PodNodeSelector {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>, configuration: PodNodeSelectorConfiguration) -> Self {
        Self {
            reader: Arc::clone(reader),
            configuration,
        }
    }

    /// The namespace's selector, or the cluster's.
    fn of_namespace(&self, namespace: &ReadObject) -> Result<Labels, AdmissionError> {
        match annotation_in(namespace, ANNOTATION) {
            Some(own) => labels_of(&own),
            None => self.configuration.labels(DEFAULT),
        }
    }

    /// The selector of the pod's namespace, which the pod's own does not contradict.
    async fn wanted(&self, request: &Request<'_>, pod: &Tree) -> Result<Labels, AdmissionError> {
        let namespace = namespace_of(&*self.reader, request.namespace).await?;
        let wanted = self.of_namespace(&namespace)?;
        let is_other = |(key, value): (&str, &str)| wanted.get(key).is_some_and(|own| own != value);
        match selected(pod).any(is_other) {
            true => Err(AdmissionError::forbidden(CONFLICT)),
            false => Ok(wanted),
        }
    }

    fn check_listed(&self, request: &Request<'_>, pod: &Tree) -> Result<(), AdmissionError> {
        let listed = self.configuration.labels(request.namespace)?;
        let is_listed = |(key, value): (&str, &str)| listed.get(key).is_some_and(|own| own == value);
        match listed.is_empty() || selected(pod).all(is_listed) {
            true => Ok(()),
            false => Err(AdmissionError::forbidden(NOT_LISTED)),
        }
    }
}

#[async_trait]
impl Plugin for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit, Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation == Operation::Create && request.is("", "pods")
    }

    async fn mutate(
        &self,
        request: &Request<'_>,
        pod: &mut Tree,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        for (key, value) in self.wanted(request, pod).await? {
            pod.set_str(&["spec", "nodeSelector", &key], &value);
        }
        self.check_listed(request, pod)
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        pod: Option<&Tree>,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(pod) = pod else { return Ok(()) };
        self.wanted(request, pod).await?;
        self.check_listed(request, pod)
    }
}
