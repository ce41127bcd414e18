//! Attribute-based access control (`ABAC`): policies of a file, one in each line.
//!
//! The server reads the file once, at its start ([`AbacAuthorizer::parse`]); a changed one counts after a restart, as upstream's. A
//! request is allowed by the first policy that matches its user, its verb and what it is for; no policy denies. [`policy`] has
//! the two versions of a line and what matches.

mod policy;

#[cfg(test)]
mod tests;

use super::rbac::PolicyRule;
use super::{Attributes, Authorizer, AuthzFuture, Busy, Decision, Reason, UserRules};
use machinery_meta::UserInfo;
use policy::Policy;
use std::path::{Path, PathBuf};

/// Bytes of a line, which are fewer.
const MAX_LINE_BYTES: usize = 64 << 10;
const NO_MATCH: &str = "No policy matched.";

/// A policy file that cannot be used, in upstream's words as far as they are not its parser's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFileError {
    #[error("error reading policy file {}, line {line}: {text}: {why}", path.display())]
    Line {
        path: PathBuf,
        line: usize,
        text: String,
        why: String,
    },
    #[error("error reading policy file {}: line {line} has {MAX_LINE_BYTES} bytes or more", path.display())]
    LineTooLong { path: PathBuf, line: usize },
}

/// Answers from the policies of a file. The default has none.
#[derive(Debug, Default)]
pub struct AbacAuthorizer(Vec<Policy>);

impl AbacAuthorizer {
    /// Reads the content of the file at a path: policies, comments that begin with `#`, and empty lines.
    ///
    /// # Errors
    /// The first line that is none of them.
    pub fn parse(path: &Path, content: &str) -> Result<Self, PolicyFileError> {
        let (mut policies, mut unversioned) = (Vec::new(), 0);
        for (at, text) in content.lines().enumerate() {
            let (path, line) = (|| path.to_owned(), at + 1);
            if text.len() >= MAX_LINE_BYTES {
                return Err(PolicyFileError::LineTooLong { path: path(), line });
            }
            let trimmed = text.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            let decoded = policy::decode(text).map_err(|why| PolicyFileError::Line {
                path: path(),
                line,
                text: text.to_owned(),
                why,
            })?;
            unversioned += usize::from(!decoded.has_version);
            policies.push(decoded.policy);
        }
        if unversioned > 0 {
            tracing::warn!(
                path = %path.display(),
                unversioned,
                "the policy file has policies without a version; they are read as of version v0"
            );
        }
        Ok(Self(policies))
    }
}

impl Authorizer for AbacAuthorizer {
    fn name(&self) -> &str {
        "abac"
    }

    fn mode(&self) -> Option<&'static str> {
        Some("ABAC")
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>> {
        let decision = match self.0.iter().any(|policy| policy.allows(attributes)) {
            true => Decision::Allow(Reason::None),
            false => Decision::no_opinion(NO_MATCH),
        };
        Box::pin(std::future::ready(Ok(decision)))
    }

    fn rules_for<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> AuthzFuture<'a, UserRules> {
        let own = self.0.iter().filter(|policy| policy.is_listed(user, namespace));
        let rules: Vec<PolicyRule> = own.flat_map(Policy::rules).collect();
        Box::pin(std::future::ready(UserRules {
            rules,
            ..UserRules::default()
        }))
    }
}
