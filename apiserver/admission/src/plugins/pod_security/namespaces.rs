//! Namespaces: their labels are checked, and tightening what they enforce warns of pods that are there already.

use super::PodSecurity;
use super::existing::ExistingPods;
use crate::{AdmissionError, Operation, Request};
use machinery_meta::FieldError;
use machinery_pod_security::{Level, Mode, Policy};
use machinery_schema::{Ref, Tree};

impl PodSecurity {
    fn policy_of_labels(&self, namespace: &Tree) -> (Policy, Vec<FieldError>) {
        let label = |name: &str| namespace.at(&["metadata", "labels", name]).and_then(Ref::as_str);
        Policy::of_labels(label, self.configuration.defaults)
    }

    pub(super) async fn examine_namespace(
        &self,
        request: &Request<'_>,
        object: &Tree,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let name = object.str_at(&["metadata", "name"]);
        let (policy, problems) = self.policy_of_labels(object);
        if request.operation == Operation::Create {
            valid(problems)?;
            self.warn_of_exemption(request, name, &policy, object);
            return Ok(());
        }
        let (before, earlier) = match old {
            Some(old) => self.policy_of_labels(old),
            None => (self.configuration.defaults, Vec::new()),
        };
        // Labels that were wrong before may stay, so that all else can be changed.
        if problems != earlier {
            valid(problems)?;
        }
        if !tightens(&policy, &before) || self.warn_of_exemption(request, name, &policy, object) {
            return Ok(());
        }
        let existing = ExistingPods {
            reader: &*self.reader,
            configuration: &self.configuration,
            clock: &self.clock,
            bounds: self.bounds,
            namespace: name,
            enforce: policy.enforce,
        };
        for warning in existing.warnings(request).await {
            request.remarks.warn(warning);
        }
        Ok(())
    }

    /// Warns that the labels of an exempt namespace have no effect. Reports whether it is exempt.
    fn warn_of_exemption(
        &self,
        request: &Request<'_>,
        name: &str,
        policy: &Policy,
        namespace: &Tree,
    ) -> bool {
        if !self.configuration.namespaces.contains(name) {
            return false;
        }
        if policy.is_privileged() || policy.is_equivalent(&self.configuration.defaults) {
            return true;
        }
        let has = |label: &str| namespace.at(&["metadata", "labels", label]).is_some();
        let shown = |mode: Mode| {
            let is_set = has(mode.level_label()) || has(mode.version_label());
            let own = policy.of(mode);
            (is_set && own.level != Level::Privileged).then(|| format!("{}={own}", mode.as_str()))
        };
        let shown: Vec<String> = Mode::ALL.into_iter().filter_map(shown).collect();
        let shown = shown.join(", ");
        request.remarks.warn(format!(
            "namespace {name:?} is exempt from Pod Security, and the policy ({shown}) will be ignored"
        ));
        true
    }
}

fn valid(problems: Vec<FieldError>) -> Result<(), AdmissionError> {
    match problems.is_empty() {
        true => Ok(()),
        false => Err(AdmissionError::Invalid(problems)),
    }
}

/// Reports whether pods may be forbidden now that were not before.
fn tightens(policy: &Policy, before: &Policy) -> bool {
    let (new, old) = (policy.enforce, before.enforce);
    let is_relaxed = new.version == old.version && new.level <= old.level;
    new != old && new.level != Level::Privileged && !is_relaxed
}
