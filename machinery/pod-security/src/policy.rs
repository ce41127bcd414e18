//! The policy of a namespace: a level and version for each mode, by its labels and the server's defaults.

use crate::level::{Level, LevelVersion, Version};
use machinery_meta::field::{FieldError, FieldPath};

/// Consequence of a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The pod is refused.
    Enforce,
    /// The audit event says so.
    Audit,
    /// The client is warned.
    Warn,
}

impl Mode {
    /// All, in the order in which upstream reads their labels.
    pub const ALL: [Self; 3] = [Self::Enforce, Self::Audit, Self::Warn];

    /// Its name in labels of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Audit => "audit",
            Self::Warn => "warn",
        }
    }

    /// The label of its level.
    pub fn level_label(self) -> &'static str {
        match self {
            Self::Enforce => "pod-security.kubernetes.io/enforce",
            Self::Audit => "pod-security.kubernetes.io/audit",
            Self::Warn => "pod-security.kubernetes.io/warn",
        }
    }

    /// The label of its version.
    pub fn version_label(self) -> &'static str {
        match self {
            Self::Enforce => "pod-security.kubernetes.io/enforce-version",
            Self::Audit => "pod-security.kubernetes.io/audit-version",
            Self::Warn => "pod-security.kubernetes.io/warn-version",
        }
    }

    /// The level of a label that names none. Enforcement fails closed, the others open.
    fn fallback(self) -> Level {
        match self {
            Self::Enforce => Level::Restricted,
            Self::Audit | Self::Warn => Level::Privileged,
        }
    }
}

/// A level and version for each mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Of pods that are admitted.
    pub enforce: LevelVersion,
    /// Of pods that need no entry in the audit log.
    pub audit: LevelVersion,
    /// Of pods that cause no warning.
    pub warn: LevelVersion,
}

/// Of a namespace without labels, unless the server is configured otherwise.
impl Default for Policy {
    fn default() -> Self {
        Self {
            enforce: LevelVersion::PRIVILEGED,
            audit: LevelVersion::PRIVILEGED,
            warn: LevelVersion::PRIVILEGED,
        }
    }
}

impl Policy {
    /// The level and version of a mode.
    pub fn of(&self, mode: Mode) -> LevelVersion {
        match mode {
            Mode::Enforce => self.enforce,
            Mode::Audit => self.audit,
            Mode::Warn => self.warn,
        }
    }

    /// The same, to be changed.
    pub fn of_mut(&mut self, mode: Mode) -> &mut LevelVersion {
        match mode {
            Mode::Enforce => &mut self.enforce,
            Mode::Audit => &mut self.audit,
            Mode::Warn => &mut self.warn,
        }
    }

    /// The policy of a namespace with these labels, and what is wrong with them. A level that is not one is enforced as
    /// `restricted` and neither audited nor warned of; a version that is not one is `latest`.
    pub fn of_labels<'l>(label: impl Fn(&str) -> Option<&'l str>, defaults: Self) -> (Self, Vec<FieldError>) {
        let (mut policy, mut problems) = (defaults, Vec::new());
        let mut enforces = false;
        for mode in Mode::ALL {
            let own = policy.of_mut(mode);
            if let Some(text) = label(mode.level_label()) {
                let level = Level::parse(text);
                own.level = level.unwrap_or(mode.fallback());
                enforces |= mode == Mode::Enforce && level.is_some();
                let invalid = level.is_none().then_some(Level::INVALID);
                problems.extend(invalid.map(|why| problem(mode.level_label(), text, why)));
            }
            if let Some(text) = label(mode.version_label()) {
                let version = Version::parse(text);
                own.version = version.unwrap_or(Version::Latest);
                let invalid = version.is_none().then_some(Version::INVALID);
                problems.extend(invalid.map(|why| problem(mode.version_label(), text, why)));
            }
        }
        // A namespace that only enforces is warned of controllers whose pods would be refused.
        let warns = label(Mode::Warn.level_label()).is_some();
        if enforces && !warns && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if label(Mode::Warn.version_label()).is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, problems)
    }

    /// Reports whether no mode forbids anything.
    pub fn is_privileged(&self) -> bool {
        let levels = Mode::ALL.map(|mode| self.of(mode).level);
        levels == [Level::Privileged; 3]
    }

    /// Reports whether both forbid the same.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let same = |mode| self.of(mode).is_equivalent(other.of(mode));
        Mode::ALL.into_iter().all(same)
    }
}

fn problem(label: &str, value: &str, why: &str) -> FieldError {
    let path = FieldPath::new("metadata").child("labels").key(label);
    FieldError::invalid(&path, value, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "pod-security.kubernetes.io/";

    /// The policy of labels without their prefix, over a default, as `enforce audit warn`, and its problems.
    fn policy(labels: &[(&str, &str)], default: Policy) -> (String, Vec<String>) {
        let find = |name: &str| {
            let name = name.strip_prefix(PREFIX)?;
            labels
                .iter()
                .find(|(own, _)| *own == name)
                .map(|(_, value)| *value)
        };
        let (policy, problems) = Policy::of_labels(find, default);
        let shown = Mode::ALL.map(|mode| policy.of(mode).to_string()).join(" ");
        let cut = |problem: FieldError| problem.to_string().replace(PREFIX, "");
        (shown, problems.into_iter().map(cut).collect())
    }

    #[track_caller]
    fn check(labels: &[(&str, &str)], expected: &str) {
        let (shown, problems) = policy(labels, Policy::default());
        assert_eq!((&*shown, problems), (expected, Vec::new()), "{labels:?}");
    }

    /// Cases of upstream's `api/helpers_test.go`, and what `PolicyToEvaluate` does beside.
    #[test]
    fn policy_warns_of_what_it_enforces_unless_told_otherwise() {
        check(&[], "privileged:latest privileged:latest privileged:latest");
        check(
            &[("enforce", "baseline")],
            "baseline:latest privileged:latest baseline:latest",
        );
        check(
            &[("enforce", "restricted"), ("enforce-version", "v1.22")],
            "restricted:v1.22 privileged:latest restricted:v1.22",
        );
        check(
            &[("enforce", "restricted"), ("warn-version", "v1.30")],
            "restricted:latest privileged:latest restricted:v1.30",
        );
        check(
            &[("enforce", "restricted"), ("warn", "baseline")],
            "restricted:latest privileged:latest baseline:latest",
        );
        check(
            &[("enforce", "restricted"), ("warn", "privileged")],
            "restricted:latest privileged:latest privileged:latest",
        );
        check(
            &[("audit", "restricted"), ("audit-version", "v1.1")],
            "privileged:latest restricted:v1.1 privileged:latest",
        );
        check(
            &[("enforce-version", "v1.2")],
            "privileged:v1.2 privileged:latest privileged:latest",
        );
        // A default that warns of more stays.
        let restricted = LevelVersion {
            level: Level::Restricted,
            version: Version::Minor(25),
        };
        let default = Policy {
            warn: restricted,
            ..Policy::default()
        };
        let (shown, _) = policy(&[("enforce", "baseline")], default);
        assert_eq!(shown, "baseline:latest privileged:latest restricted:v1.25");
    }

    #[test]
    fn policy_of_invalid_labels_fails_closed_where_it_enforces() {
        let labels = [
            ("enforce", "secret"),
            ("enforce-version", "v1"),
            ("audit", "x"),
            ("audit-version", ""),
            ("warn", ""),
            ("warn-version", "v2.1"),
        ];
        let (shown, problems) = policy(&labels, Policy::default());
        assert_eq!(shown, "restricted:latest privileged:latest privileged:latest");
        let level = "must be one of privileged, baseline, restricted";
        let version = "must be \"latest\" or \"v1.x\"";
        let expected = labels.map(|(name, value)| {
            let why = if name.ends_with("version") { version } else { level };
            format!("metadata.labels[{name}]: Invalid value: {value:?}: {why}")
        });
        assert_eq!(problems, expected);
        // Nothing is warned of in the place of an invalid level.
        let (shown, _) = policy(&[("enforce", "secret")], Policy::default());
        assert_eq!(shown, "restricted:latest privileged:latest privileged:latest");
    }

    #[test]
    fn policies_are_compared_by_what_they_forbid() {
        let of = |labels: &[(&str, &str)]| {
            let find = |name: &str| {
                let name = name.strip_prefix(PREFIX)?;
                labels
                    .iter()
                    .find(|(own, _)| *own == name)
                    .map(|(_, value)| *value)
            };
            Policy::of_labels(find, Policy::default()).0
        };
        let plain = of(&[("enforce-version", "v1.2")]);
        assert!(plain.is_privileged() && plain.is_equivalent(&Policy::default()));
        for mode in Mode::ALL {
            let own = of(&[(mode.as_str(), "baseline")]);
            assert!(!own.is_privileged() && !own.is_equivalent(&plain), "{mode:?}");
        }
    }
}
