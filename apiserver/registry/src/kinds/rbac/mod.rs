//! Kinds of rbac.authorization.k8s.io: names are any path segment, and a PUT creates.

pub mod cluster_role;
pub mod cluster_role_binding;
mod columns;
mod defaults;
pub mod role;
pub mod role_binding;
pub mod validation;

use crate::engine::traits::{NameRule, Traits};

/// Traits of every kind of the group.
const TRAITS: Traits = Traits::PLAIN.named(NameRule::PathSegment).put_creates();
