//! The Pod Security Standards, as `k8s.io/pod-security-admission` 1.37 has them: levels and versions, the policy that a
//! namespace's labels make, and the checks that a pod has to pass.
//!
//! [`Policy::of_labels`] reads the labels, [`evaluate`] holds a pod against one level and version. Pure functions: requests,
//! exemptions and answers belong to the admission plugin `PodSecurity`.
//!
//! `testdata/` holds what upstream's own checks say of the pods of its fixtures and unit tests, at every version; the table
//! in `tests.rs` compares word for word. `conformance/tools/podsecurity` writes it.

mod checks;
mod evaluation;
mod level;
mod pod;
mod policy;
#[cfg(test)]
mod tests;
mod wording;

pub use evaluation::{Violation, Violations, evaluate};
pub use level::{Level, LevelVersion, Version};
pub use pod::Pod;
pub use policy::{Mode, Policy};
