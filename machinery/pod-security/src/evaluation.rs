//! Pods against the checks of a level and version.

use crate::checks::CHECKS;
use crate::level::{Level, LevelVersion, Version};
use crate::pod::Pod;
use std::fmt;

/// One check that a pod does not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Short, and the same for all pods: `hostPort`.
    pub reason: &'static str,
    /// The values and containers that are forbidden.
    pub detail: String,
}

/// The checks that a pod does not pass, in upstream's order. `Display` is upstream's: `reason (detail), reason (detail)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations(pub Vec<Violation>);

impl Violations {
    /// Reports whether the pod is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The reasons alone.
    pub fn reasons(&self) -> String {
        let reasons: Vec<&str> = self.0.iter().map(|own| own.reason).collect();
        reasons.join(", ")
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, own) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{} ({})", own.reason, own.detail)?;
        }
        Ok(())
    }
}

/// A check with the forms that it had over time.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) id: &'static str,
    pub(crate) level: Level,
    /// With the oldest first.
    pub(crate) forms: &'static [Form],
}

/// A check as it is from a minor version on.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) since: u64,
    pub(crate) forbids: fn(&Pod<'_>) -> Option<Violation>,
    /// The check of `baseline` that a stricter one of `restricted` replaces.
    pub(crate) replaces: Option<&'static str>,
}

impl Check {
    /// The form of a version, if the check is as old. Versions of the future have the newest form.
    fn form(&self, version: Version) -> Option<&'static Form> {
        let is_in_force = |form: &&Form| Version::Minor(form.since) <= version;
        self.forms.iter().rfind(is_in_force)
    }
}

/// Holds a pod against the checks of a level and version; those of `restricted` come after those of `baseline` that it keeps.
pub fn evaluate(wanted: LevelVersion, pod: &Pod<'_>) -> Violations {
    let applying = CHECKS.iter().filter(|check| check.level <= wanted.level);
    let forms = applying.filter_map(|check| Some((check.id, check.form(wanted.version)?)));
    let forms: Vec<(&str, &Form)> = forms.collect();
    let is_replaced = |id: &str| forms.iter().any(|(_, form)| form.replaces == Some(id));
    let kept = forms.iter().filter(|(id, _)| !is_replaced(id));
    Violations(kept.filter_map(|(_, form)| (form.forbids)(pod)).collect())
}
