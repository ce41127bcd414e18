//! PodSecurity: pods meet the Pod Security Standards that the labels of their namespace name
//! (`k8s.io/pod-security-admission`).
//!
//! A pod that violates the enforced level is refused; violations of the audited level are in the audit event, and of the
//! warned one in a warning. Objects that make pods are warned of and audited only: their pods come by here one by one. The
//! checks themselves are `machinery-pod-security`; namespaces are looked at in `namespaces.rs`.

mod configuration;
mod existing;
#[cfg(test)]
mod namespace_tests;
mod namespaces;
mod records;
#[cfg(test)]
mod tests;
mod workload;

pub use configuration::{Configuration, ConfigurationError};
pub use records::{Recorder, Uncounted};

use super::configured::aggregate;
use super::objects::find;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use existing::{BOUNDS, Bounds};
use k8s_openapi::api::core::v1::PodSpec;
use machinery_meta::FieldError;
use machinery_meta::reader::ObjectReader;
use machinery_pod_security::{Level, LevelVersion, Mode, Policy, Violations, evaluate};
use machinery_schema::Tree;
use records::{record_evaluation, record_failure, subject};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use workload::Workload;

/// A monotonic clock; the server gives its runtime's.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Begin of the audit annotations' keys.
const ANNOTATION: &str = "pod-security.kubernetes.io/";

/// See the module.
pub struct PodSecurity {
    reader: Arc<dyn ObjectReader>,
    configuration: Configuration,
    recorder: Arc<dyn Recorder>,
    clock: Clock,
    bounds: Bounds,
}

impl fmt::Debug for PodSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodSecurity").finish_non_exhaustive()
    }
}

impl Configuration {
    /// The part of the request for which nothing is checked.
    fn exempts(&self, request: &Request<'_>) -> Option<&'static str> {
        let has_namespace = self.namespaces.contains(request.namespace);
        let has_user = || self.usernames.contains(&request.user.name);
        match has_namespace {
            true => Some("namespace"),
            false => has_user().then_some("user"),
        }
    }

    fn exempts_runtime_class(&self, spec: &PodSpec) -> bool {
        let class = spec.runtime_class_name.as_ref();
        class.is_some_and(|class| self.runtime_classes.contains(class))
    }
}

impl PodSecurity {
    /// The plugin.
    pub fn new(
        reader: &Arc<dyn ObjectReader>,
        configuration: Configuration,
        recorder: Arc<dyn Recorder>,
        clock: Clock,
    ) -> Self {
        Self {
            reader: Arc::clone(reader),
            configuration,
            recorder,
            clock,
            bounds: BOUNDS,
        }
    }

    /// The policy of a namespace, and what is wrong with its labels.
    async fn policy_of(&self, namespace: &str) -> Result<(Policy, Vec<FieldError>), String> {
        let found = find(&*self.reader, "", "namespaces", "", namespace).await;
        let found = found.map_err(|error| error.to_string())?;
        let found = found.ok_or_else(|| format!("namespaces {namespace:?} not found"))?;
        Ok(Policy::of_labels(
            |name| found.header.label(name),
            self.configuration.defaults,
        ))
    }

    /// Evaluates a pod, or an object that makes pods.
    async fn examine(
        &self,
        request: &Request<'_>,
        path: &[&str],
        object: &Tree,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let is_pod = path.is_empty();
        if let Some(why) = self.configuration.exempts(request) {
            self.exempt(request, why);
            return Ok(());
        }
        let (policy, problems) = match self.policy_of(request.namespace).await {
            Ok(found) => found,
            Err(why) => {
                let what = format!("failed to lookup namespace {:?}", request.namespace);
                return self.fail(request, &why, AdmissionError::Internal(what));
            }
        };
        let is_privileged = |mode: Mode| policy.of(mode).level == Level::Privileged;
        let says_nothing = is_privileged(Mode::Audit) && is_privileged(Mode::Warn);
        if problems.is_empty() && says_nothing && (!is_pod || policy.is_privileged()) {
            if is_pod {
                annotate(request, "enforce-policy", LevelVersion::PRIVILEGED.to_string());
                record_evaluation(&*self.recorder, request, true, policy.enforce, Mode::Enforce);
            }
            return Ok(());
        }
        let is_update = is_pod && request.operation == Operation::Update;
        if is_update && old.is_some_and(|old| !workload::is_significant_update(object, old)) {
            return Ok(());
        }
        match Workload::read(object, path) {
            Ok(Some(pod)) => self.decide(request, is_pod, policy, problems, &pod),
            Ok(None) => Ok(()),
            Err(error) => {
                let refusal = AdmissionError::BadRequest("failed to decode object".to_owned());
                self.fail(request, &error.to_string(), refusal)
            }
        }
    }

    fn exempt(&self, request: &Request<'_>, why: &str) {
        annotate(request, "exempt", why.to_owned());
        self.recorder.exempted(subject(request));
    }

    /// Refuses a pod that cannot be evaluated; all else goes on with an annotation.
    fn fail(&self, request: &Request<'_>, why: &str, refusal: AdmissionError) -> Result<(), AdmissionError> {
        let is_pod = request.group.is_empty() && request.resource == "pods";
        record_failure(&*self.recorder, request, true);
        let shown = match &refusal {
            AdmissionError::Internal(what) if is_pod => format!("Internal error occurred: {what}"),
            other => other.to_string(),
        };
        annotate(request, "error", format!("{shown}: {why}"));
        match is_pod {
            true => Err(refusal),
            false => Ok(()),
        }
    }

    fn decide(
        &self,
        request: &Request<'_>,
        enforces: bool,
        policy: Policy,
        problems: Vec<FieldError>,
        workload: &Workload,
    ) -> Result<(), AdmissionError> {
        if self.configuration.exempts_runtime_class(&workload.spec) {
            self.exempt(request, "runtimeClass");
            return Ok(());
        }
        if !problems.is_empty() {
            let problems = aggregate(problems.iter().map(FieldError::to_string));
            annotate(request, "error", format!("Failed to parse policy: {problems}"));
            record_failure(&*self.recorder, request, false);
        }
        let mut results = Results {
            workload,
            known: Vec::new(),
        };
        let refused = match enforces {
            true => self.enforce(request, policy.enforce, &mut results),
            false => None,
        };
        if let Some(why) = self.violates(request, Mode::Audit, policy.audit, &mut results) {
            annotate(request, "audit-violations", why);
        }
        if let Some(why) = refused {
            return Err(AdmissionError::forbidden(why));
        }
        if let Some(why) = self.violates(request, Mode::Warn, policy.warn, &mut results) {
            request.remarks.warn(why);
        }
        Ok(())
    }

    /// The reason for which a pod is refused.
    fn enforce(
        &self,
        request: &Request<'_>,
        wanted: LevelVersion,
        results: &mut Results<'_>,
    ) -> Option<String> {
        annotate(request, "enforce-policy", wanted.to_string());
        let violations = results.of(wanted);
        record_evaluation(
            &*self.recorder,
            request,
            violations.is_empty(),
            wanted,
            Mode::Enforce,
        );
        (!violations.is_empty()).then(|| format!("violates PodSecurity \"{wanted}\": {violations}"))
    }

    /// A remark on a pod that would be refused in another mode.
    fn violates(
        &self,
        request: &Request<'_>,
        mode: Mode,
        wanted: LevelVersion,
        results: &mut Results<'_>,
    ) -> Option<String> {
        let violations = results.of(wanted);
        if violations.is_empty() {
            return None;
        }
        record_evaluation(&*self.recorder, request, false, wanted, mode);
        Some(format!("would violate PodSecurity \"{wanted}\": {violations}"))
    }
}

/// Violations of a pod, evaluated once for each level and version.
struct Results<'a> {
    workload: &'a Workload,
    known: Vec<(LevelVersion, Violations)>,
}

impl Results<'_> {
    fn of(&mut self, wanted: LevelVersion) -> &Violations {
        let found = self.known.iter().position(|(own, _)| *own == wanted);
        let at = found.unwrap_or_else(|| {
            self.known.push((wanted, evaluate(wanted, &self.workload.pod())));
            self.known.len() - 1
        });
        &self.known[at].1
    }
}

fn annotate(request: &Request<'_>, key: &str, value: String) {
    request.remarks.annotate(format!("{ANNOTATION}{key}"), value);
}

#[async_trait]
impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        let has_pod = || workload::path(request.group, request.resource, request.subresource).is_some();
        self.operations().contains(&request.operation) && (request.is("", "namespaces") || has_pod())
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(object) = object else { return Ok(()) };
        match workload::path(request.group, request.resource, request.subresource) {
            Some(path) => self.examine(request, path, object, old).await,
            None => self.examine_namespace(request, object, old).await,
        }
    }
}
