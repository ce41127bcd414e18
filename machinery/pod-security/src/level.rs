//! Levels and versions of the standards.

use std::fmt;

/// A level; a later one forbids more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Forbids nothing.
    Privileged,
    /// Forbids known ways to more rights.
    Baseline,
    /// Follows the current best practice of hardening.
    Restricted,
}

impl Level {
    /// The reason for which a text is no level.
    pub const INVALID: &'static str = "must be one of privileged, baseline, restricted";

    const ALL: [Self; 3] = [Self::Privileged, Self::Baseline, Self::Restricted];

    /// Its name in labels and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }

    /// Reads a label's value.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

/// The Kubernetes version whose checks count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version 1 with this minor version.
    Minor(u64),
    /// Newer than every other one.
    Latest,
}

impl Version {
    /// The reason for which a text is no version.
    pub const INVALID: &'static str = "must be \"latest\" or \"v1.x\"";

    /// The last minor version that upstream reads: Go's `int`.
    const LAST_MINOR: u64 = i64::MAX as u64;

    /// Reads a label's value: `latest`, or `v1.` and a decimal number without leading zeros.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let is_number = !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
        let is_plain = is_number && (minor == "0" || !minor.starts_with('0'));
        let minor = minor.parse().ok().filter(|_| is_plain)?;
        (minor <= Self::LAST_MINOR).then_some(Self::Minor(minor))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Minor(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// A level as a version has it. `Display` is upstream's: `restricted:latest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LevelVersion {
    /// The level.
    pub level: Level,
    /// The version.
    pub version: Version,
}

impl LevelVersion {
    /// The level at which nothing is forbidden.
    pub const PRIVILEGED: Self = Self {
        level: Level::Privileged,
        version: Version::Latest,
    };

    /// Reports whether both forbid the same: versions of `privileged` do not differ.
    pub fn is_equivalent(self, other: Self) -> bool {
        self == other || (self.level == Level::Privileged && other.level == Level::Privileged)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.as_str(), self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases of upstream's `api/helpers_test.go`, and those of its regular expression.
    #[test]
    fn version_is_latest_or_a_minor_version_of_1() {
        for text in [
            "latest",
            "v1.0",
            "v1.1",
            "v1.20",
            "v1.10000",
            "v1.9223372036854775807",
        ] {
            assert_eq!(
                Version::parse(text).map(|own| own.to_string()).as_deref(),
                Some(text)
            );
        }
        for text in [
            "foo",
            "",
            "v2.0",
            "v1",
            "v1.",
            "1.1",
            "v1.01",
            "v1.+1",
            "v1.-1",
            "v1.1 ",
            "v1.9223372036854775808",
        ] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn level_versions_of_privileged_are_one() {
        let of = |level, minor| LevelVersion {
            level,
            version: Version::Minor(minor),
        };
        assert!(of(Level::Privileged, 1).is_equivalent(of(Level::Privileged, 2)));
        assert!(!of(Level::Baseline, 1).is_equivalent(of(Level::Baseline, 2)));
        assert!(!of(Level::Baseline, 1).is_equivalent(of(Level::Restricted, 1)));
        assert_eq!(of(Level::Baseline, 7).to_string(), "baseline:v1.7");
        assert_eq!(LevelVersion::PRIVILEGED.to_string(), "privileged:latest");
    }
}
